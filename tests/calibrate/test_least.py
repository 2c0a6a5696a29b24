"""The minimum is one: no point nearby is better, bounds hold, and a line without noise is found."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from planner.calibrate.least import loss, minimise

X = np.linspace(1, 20, 40)
LOW, HIGH, SCALE = np.array([0.0, 0.0]), np.array([50.0, 50.0]), np.array([1.0, 1.0])


def errors_of(values):
    return lambda point: np.log((point[0] + point[1] * X + 1e-9) / values)


@given(st.floats(0.1, 20), st.floats(0.01, 20))
def test_a_known_line_comes_back(offset, slope):
    found = minimise(errors_of(offset + slope * X), np.array([1.0, 1.0]), LOW, HIGH, SCALE)
    np.testing.assert_allclose(found, [offset, slope], rtol=1e-4)


@given(st.integers(0, 10_000))
def test_no_point_nearby_is_better_and_bounds_hold(seed):
    values = (X - 2 + 4 * np.random.default_rng(seed).random(40)).clip(0.2)  # wants an offset below 0, at times
    residuals = errors_of(values)
    found = minimise(residuals, np.array([1.0, 1.0]), LOW, HIGH, SCALE)
    assert (found >= LOW).all() and (found <= HIGH).all()
    for move in np.array([(-1, 0), (1, 0), (0, -1), (0, 1), (1, -1), (-1, 1)]) * 1e-3:
        assert loss(residuals(np.clip(found + move, LOW, HIGH))) >= loss(residuals(found)) - 1e-9
