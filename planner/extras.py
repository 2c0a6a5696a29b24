"""Packages of the optional extras: asked for before work starts, so that a missing one costs nothing."""

import sys
from importlib.util import find_spec

from planner.errors import InputError


def require_extra(package: str, extra: str, purpose: str) -> None:
    """Raises InputError where `package`, which the extra brings, is not installed."""
    if find_spec(package) is None:
        raise InputError(
            f"{purpose} needs {package}, which is not installed",
            where=sys.prefix,
            fix=f"pip install '.[{extra}]' in the folder of planner's source",
        )


def require_torch(verb: str) -> None:
    """Raises InputError where torch is not installed."""
    require_extra("torch", "torch", verb)


def require_scipy() -> None:
    """Raises InputError where scipy is not installed, whose least squares every fit uses."""
    require_extra("scipy", "calibrate", "calibrate")
