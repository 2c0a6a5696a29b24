"""How long work tells of its progress."""

from collections.abc import Callable

OnProgress = Callable[[int, int, str], None]  # done, of how many, what


def silent(done: int, of: int, what: str) -> None:
    """Show no progress."""
