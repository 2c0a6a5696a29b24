"""How much of a test runs: in the soak, with --thorough, all its examples and cases, else a part of them."""

from typing import Any

import pytest
from hypothesis import settings

THOROUGH, QUICK = 100, 10  # of a test that says no number


def examples(most: int, **more: Any) -> settings:
    """Of a property test, up to `most`."""
    return settings(max_examples=share(most), **more)


def thorough() -> bool:
    """Whether this is the soak."""
    return settings().max_examples == THOROUGH


def share(most: int) -> int:
    """Of a test that draws its own, how many of `most`."""
    return max(3, most * settings().max_examples // THOROUGH)


def soaked(cases, kept):
    """The cases as parameters of a test: but for those that are kept, in the soak alone."""
    cases, kept = [*cases], {*kept}
    assert kept <= {*cases}, kept - {*cases}
    marks = {case: () if case in kept else pytest.mark.soak for case in cases}
    return [pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=marks[case]) for case in cases]
