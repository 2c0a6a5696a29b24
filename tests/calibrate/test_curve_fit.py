"""The minimum is one: no point nearby is better, bounds hold, and a line without noise is found."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from planner.calibrate.curve_fit import KNEE, robust_least_squares

X = np.linspace(1, 20, 40)
LOW, HIGH = np.array([0.0, 0.0]), np.array([50.0, 50.0])


def errors_of(values):
    return lambda point: np.log((point[0] + point[1] * X + 1e-9) / values)


def loss(errors):
    return float(np.sum(np.sqrt(1 + (errors / KNEE) ** 2) - 1))


@given(st.floats(0.1, 20), st.floats(0.01, 20))
def test_a_known_line_comes_back(offset, slope):
    found = robust_least_squares(errors_of(offset + slope * X), np.array([1.0, 1.0]), LOW, HIGH)
    np.testing.assert_allclose(found, [offset, slope], rtol=1e-4)


@given(st.integers(0, 10_000))
def test_no_point_nearby_is_better_and_bounds_hold(seed):
    values = (X - 2 + 4 * np.random.default_rng(seed).random(40)).clip(0.2)  # some need an offset below the bound of 0
    residuals = errors_of(values)
    found = robust_least_squares(residuals, np.array([1.0, 1.0]), LOW, HIGH)
    assert (found >= LOW).all() and (found <= HIGH).all()
    for move in np.array([(-1, 0), (1, 0), (0, -1), (0, 1), (1, -1), (-1, 1)]) * 1e-3:
        assert loss(residuals(np.clip(found + move, LOW, HIGH))) >= loss(residuals(found)) - 1e-9
