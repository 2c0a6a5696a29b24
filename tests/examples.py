"""How many examples a property test tries: all with --thorough, as in the soak, else two fifths of them."""

from typing import Any

from hypothesis import settings

THOROUGH, QUICK = 100, 40  # of a test that says no number


def examples(most: int, **more: Any) -> settings:
    """Up to `most`."""
    return settings(max_examples=max(3, most * settings().max_examples // THOROUGH), **more)
