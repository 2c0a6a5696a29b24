"""The least sum of robust squares within bounds: Levenberg and Marquardt's steps, on the coefficients off their bounds.

A residual r counts 2f²(√(1 + (r/f)²) − 1): as its square while small against f, as its size beyond, so that a
measurement far off pulls no harder than one a little off. Each step solves the least squares with the weights that
the last one left (iteratively reweighted least squares).
"""

from collections.abc import Callable

import numpy as np

from planner.calibrate.tables import Array

KNEE = 0.1  # relative error up to which errors count squared
STEPS = 300


def minimise(residuals: Callable[[Array], Array], start: Array, low: Array, high: Array, scale: Array) -> Array:
    """Coefficients within [low, high] of the least loss near `start`; `scale` is a usual size of each."""
    point = np.clip(start, low, high)
    errors, damping = residuals(point), 1e-3
    for _ in range(STEPS):
        slopes = jacobian(residuals, point, errors, scale, high) * scale
        weights = 1 / np.sqrt(1 + (errors / KNEE) ** 2)
        downhill = -slopes.T @ (weights * errors)
        free = ~(((point <= low) & (downhill < 0)) | ((point >= high) & (downhill > 0)))
        if not free.any():
            break
        normal = (slopes[:, free] * weights[:, None]).T @ slopes[:, free]
        gain = 0.0
        while damping < 1e10:
            damped = normal + damping * np.diag(np.diag(normal) + 1e-12 * np.trace(normal) + 1e-300)
            step = np.zeros(len(point))
            step[free] = np.linalg.solve(damped, downhill[free])
            there = np.clip(point + step * scale, low, high)
            then = residuals(there)
            gain = loss(errors) - loss(then)
            if gain > 0:
                point, errors, damping = there, then, max(damping / 5, 1e-9)
                break
            damping *= 5
        if gain <= 1e-13 * max(loss(errors), 1e-12):
            break
    return point


def loss(errors: Array) -> float:
    # √(1 + z) − 1 = z/(1 + √(1 + z)), which keeps its digits where z is small
    squares = (errors / KNEE) ** 2
    return float(np.sum(squares / (1 + np.sqrt(1 + squares))))


def jacobian(residuals: Callable[[Array], Array], point: Array, errors: Array, scale: Array, high: Array) -> Array:
    """Slopes [residuals, coefficients], by differences that stay below the upper bounds."""
    slopes = np.empty((len(errors), len(point)))
    for index in range(len(point)):
        step = 1e-6 * max(scale[index], abs(point[index]))
        moved = point.copy()
        moved[index] += step if point[index] + step <= high[index] else -step
        slopes[:, index] = (residuals(moved) - errors) / (moved[index] - point[index])
    return slopes
