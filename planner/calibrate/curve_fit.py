"""Fit of a formula to measured seconds: its coefficients, which of them the data cannot determine, and its errors.

Residuals are logarithms of predicted over measured seconds, so that short and long kernels weigh alike and twice too
slow is as bad as twice too fast. A residual r costs KNEE²(√(1 + (r/KNEE)²) − 1), scipy's `soft_l1`: quadratic while
small against the knee and linear beyond, so that a measurement far off pulls no harder than one a little off.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from planner.calibrate.kernel_tables import Array, KernelTable, Mask
from planner.errors import InputError
from planner.extras import require_scipy
from planner.specs.hardware.device_rates import FitQuality

KNEE = 0.1  # residual beyond which its cost grows linearly
CONVERGED = 1e-12  # relative change of loss or coefficients, or gradient, at which the search ends
EVALUATIONS = 1000  # most evaluations of the residuals in a search
DIFFERENCE = 1e-6  # step of finite differences, over a coefficient or its usual size, whichever is larger
UNIT_MISTAKE = 100.0  # times off the curve: half of 1000 on a logarithmic scale is 32, noise stays below 10
LEAST_EFFECT = 1e-3  # root mean square of log seconds that a usual change of a determined coefficient moves at least
LEFT_OUT = 5  # every fifth configuration is held out


@dataclass(frozen=True)
class BoundedCoefficient:
    """A coefficient's bounds, usual size, and the value it keeps when the data cannot determine it (None: required)."""

    name: str
    low: float
    high: float
    scale: float
    prior: float | None = 0.0


@dataclass(frozen=True)
class KernelFormula:
    """Seconds (rows,) of a table's rows from coefficients by name; `axes` are the columns of a configuration."""

    coefficients: tuple[BoundedCoefficient, ...]
    axes: tuple[str, ...]
    seconds: Callable[[KernelTable, dict[str, float]], Array]


@dataclass(frozen=True)
class FittedCurve:
    """Coefficients by name, the errors over the fitted rows, and a message for every row that was left out."""

    values: dict[str, float]
    summary: FitQuality
    rejected_rows: tuple[str, ...] = ()

    @property
    def rounded(self) -> dict[str, float]:
        """Coefficients rounded for files: shares to four decimals, lengths and microseconds to two."""
        return {name: round(value, 4 if name.endswith("share") else 2) for name, value in self.values.items()}


def fit_curve(form: KernelFormula, table: KernelTable, inside: Mask, fastest: Array | None = None) -> FittedCurve:
    """The formula's coefficients from the rows `inside`; the other rows are only compared.

    `fastest` (rows,): seconds at the device's peak; a faster row has its unit wrong. Raises InputError when there are
    fewer configurations than coefficients, and when scipy is not installed.
    """
    plausible = np.ones(len(table.lines), np.bool_) if fastest is None else table.seconds >= fastest
    require_configurations(form, table.where(inside & plausible))
    values, _ = determined(form, table.where(inside & plausible))
    near = np.abs(log_errors(form, table, values)) < np.log(UNIT_MISTAKE)
    used = inside & plausible & near
    require_configurations(form, table.where(used))
    values, held = determined(form, table.where(used))
    errors = relative_errors(form, table, values)
    small = errors[~inside & plausible]
    fitted = FitQuality(
        rows=int(used.sum()),
        median_error=four_places(np.median(errors[used])),
        p90_error=four_places(np.quantile(errors[used], 0.9)),
        left_out_error=held_out_error(form, table.where(used)),
        outside_error=four_places(np.median(small)) if len(small) else None,
        held=held,
        sources=(table.path,),
    )
    return FittedCurve(values, fitted, rejection_messages(table, inside, plausible, near))


def determined(form: KernelFormula, table: KernelTable) -> tuple[dict[str, float], tuple[str, ...]]:
    """Coefficients by name, and which of them keep their prior since the table cannot determine them."""
    held: list[str] = []
    while True:
        free = [item for item in form.coefficients if item.name not in held]
        values = minimised(form, table, free)
        name = undetermined(form, table, values, free)
        if name is None:
            return values, tuple(held)
        held.append(name)


def minimised(form: KernelFormula, table: KernelTable, free: list[BoundedCoefficient]) -> dict[str, float]:
    """The free coefficients of the least loss, the others at their priors."""
    low, high, scale = (np.array([getattr(item, field) for item in free]) for field in ("low", "high", "scale"))
    start = np.where(low > 0, np.sqrt(np.maximum(low * high, 1e-30)), scale)
    point = robust_least_squares(
        lambda point: log_errors(form, table, with_priors(form, free, point)), start, low, high
    )
    return with_priors(form, free, point)


def robust_least_squares(residuals: Callable[[Array], Array], start: Array, low: Array, high: Array) -> Array:
    """Coefficients within [low, high] of the least robust loss near `start` (trust-region reflective, scipy)."""
    require_scipy()
    from scipy.optimize import least_squares

    found = least_squares(
        residuals,
        np.clip(start, low, high),
        bounds=(low, high),
        method="trf",
        x_scale="jac",
        loss="soft_l1",
        f_scale=KNEE,
        ftol=CONVERGED,
        xtol=CONVERGED,
        gtol=CONVERGED,
        max_nfev=EVALUATIONS,
    )
    return np.asarray(found.x, np.float64)


def with_priors(form: KernelFormula, free: list[BoundedCoefficient], point: Array) -> dict[str, float]:
    """Every coefficient by name: those of `point` (free,), and the priors of the others."""
    priors = {item.name: item.prior or 0.0 for item in form.coefficients}
    return {**priors, **{item.name: float(value) for item, value in zip(free, point, strict=True)}}


def undetermined(
    form: KernelFormula, table: KernelTable, values: dict[str, float], free: list[BoundedCoefficient]
) -> str | None:
    """The coefficient to keep at its prior, when some usual change of the free ones hardly moves any time.

    The smallest singular value of the scaled Jacobian tells; the coefficient is that of its direction's largest part.
    Raises InputError where none of them has a prior.
    """
    from scipy.optimize import approx_fprime

    point = np.array([values[item.name] for item in free])
    scale = np.array([item.scale if item.prior is not None else values[item.name] for item in free])
    step = DIFFERENCE * np.maximum(scale, np.abs(point))
    step = np.where(point + step <= [item.high for item in free], step, -step)

    def residuals(point: Array) -> Array:
        return log_errors(form, table, with_priors(form, free, point))

    slopes = approx_fprime(point, residuals, step).reshape(-1, len(free)) * scale / np.sqrt(len(table.lines))
    _, sizes, directions = np.linalg.svd(slopes, full_matrices=False)
    if sizes[-1] >= LEAST_EFFECT:
        return None
    parts = [(abs(part), item.name) for part, item in zip(directions[-1], free, strict=True) if item.prior is not None]
    if not parts:
        message = f"the table cannot determine {', '.join(item.name for item in free)}"
        raise InputError(message, where=table.path, fix="measure shapes that differ more")
    return max(parts)[1]


def require_configurations(form: KernelFormula, table: KernelTable) -> None:
    """Raises InputError when there are fewer configurations than coefficients."""
    count, needed = len(set(configuration_numbers(form, table).tolist())), len(form.coefficients)
    if count < needed:
        message = f"{count} configurations cannot determine {needed} coefficients"
        raise InputError(message, where=table.path, fix="measure more shapes, or larger ones")


def configuration_numbers(form: KernelFormula, table: KernelTable) -> Array:
    """The number of each row's configuration (rows,): repeated measurements share one."""
    columns = np.stack([table.numbers[axis] for axis in form.axes], axis=1)
    return np.asarray(np.unique(columns, axis=0, return_inverse=True)[1], np.float64).reshape(-1)


def held_out_error(form: KernelFormula, table: KernelTable) -> float | None:
    """The median error on every fifth configuration, by coefficients from the others; None where too few remain."""
    held_out = configuration_numbers(form, table) % LEFT_OUT == LEFT_OUT - 1
    if not held_out.any() or len(set(configuration_numbers(form, table.where(~held_out)).tolist())) < len(
        form.coefficients
    ):
        return None
    values, _ = determined(form, table.where(~held_out))
    return four_places(np.median(relative_errors(form, table.where(held_out), values)))


def log_errors(form: KernelFormula, table: KernelTable, values: dict[str, float]) -> Array:
    """Logarithms of predicted over measured seconds (rows,)."""
    errors: Array = np.log(form.seconds(table, values) / table.seconds)
    return errors


def relative_errors(form: KernelFormula, table: KernelTable, values: dict[str, float]) -> Array:
    """Absolute errors of the predicted seconds over the measured ones (rows,)."""
    errors: Array = np.abs(form.seconds(table, values) / table.seconds - 1)
    return errors


def four_places(value: float) -> float:
    return round(float(value), 4)


def rejection_messages(table: KernelTable, inside: Mask, plausible: Mask, near: Mask) -> tuple[str, ...]:
    """A message for each rejected row, with its file and line and the reason."""
    fast = [f"{table.location(row)}: faster than the device's peak" for row in np.flatnonzero(~plausible).tolist()]
    far = np.flatnonzero(inside & plausible & ~near).tolist()
    return (*fast, *(f"{table.location(row)}: {UNIT_MISTAKE:.0f} times off all others: a wrong unit?" for row in far))
