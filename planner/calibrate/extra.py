"""What the extra `calibrate` installs: scipy, whose least squares every fit here uses."""

import sys
from importlib.util import find_spec

from planner.errors import InputError


def require_scipy() -> None:
    """Raises InputError when scipy is not installed."""
    if find_spec("scipy") is None:
        raise InputError(
            "calibrate needs scipy, which is not installed", where=sys.prefix, fix="pip install 'planner[calibrate]'"
        )
