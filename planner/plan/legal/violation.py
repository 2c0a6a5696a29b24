"""What checks of a plan report."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken law of a legal plan: its place in the file, what is wrong, and the fix."""

    where: str
    message: str
    fix: str
