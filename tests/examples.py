"""How many examples a test tries: all with --thorough, as in the soak, else a quarter of them."""

from typing import Any

from hypothesis import settings

THOROUGH, QUICK = 100, 25  # of a test that says no number


def examples(most: int, **more: Any) -> settings:
    """Of a property test, up to `most`."""
    return settings(max_examples=share(most), **more)


def thorough() -> bool:
    """Whether this is the soak."""
    return settings().max_examples == THOROUGH


def share(most: int) -> int:
    """Of a test that draws its own, how many of `most`."""
    return max(3, most * settings().max_examples // THOROUGH)
