"""A curve through measured seconds: what its coefficients are, which of them the data cannot tell, how far it is off.

Errors are logarithms of predicted over measured seconds, so that short and long kernels count alike and twice too
slow is as bad as twice too fast.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from planner.calibrate.least import jacobian, minimise
from planner.calibrate.tables import Array, Mask, Table
from planner.errors import InputError
from planner.specs.rates import Fitted

UNIT_MISTAKE = 100.0  # times off the curve: half of 1000 on a logarithmic scale is 32, noise stays below 10
TELLING = 1e-3  # a coefficient tells when a usual change of it moves the times by a thousandth at least
LEFT_OUT = 5  # every fifth configuration


@dataclass(frozen=True)
class Coefficient:
    """A coefficient's bounds, usual size, and the value it is held at when the data cannot tell it (None: never)."""

    name: str
    low: float
    high: float
    scale: float
    prior: float | None = 0.0


@dataclass(frozen=True)
class Form:
    """Seconds [rows] of a table's rows from coefficients by name; `axes` are the columns that make a configuration."""

    coefficients: tuple[Coefficient, ...]
    axes: tuple[str, ...]
    seconds: Callable[[Table, dict[str, float]], Array]


@dataclass(frozen=True)
class Found:
    """Coefficients by name, those held, the errors over what was fitted, and the rows left out, named."""

    values: dict[str, float]
    fitted: Fitted
    left_out: tuple[str, ...] = ()


def fit(form: Form, table: Table, inside: Mask, fastest: Array | None = None, sources: tuple[str, ...] = ()) -> Found:
    """The form's coefficients from the rows `inside`; the others are only compared.

    fastest [rows]: seconds at the device's peak; who is faster has its unit wrong. Raises InputError when there are
    fewer configurations than coefficients.
    """
    right = np.ones(len(table.lines), np.bool_) if fastest is None else table.seconds >= fastest
    refuse_few(form, table.where(inside & right))
    values, _ = solved(form, table.where(inside & right))
    off = np.abs(log_errors(form, table, values)) < np.log(UNIT_MISTAKE)
    used = inside & right & off
    refuse_few(form, table.where(used))
    values, held = solved(form, table.where(used))
    errors = relative_errors(form, table, values)
    small = errors[~inside & right]
    fitted = Fitted(
        rows=int(used.sum()),
        median_error=figure(np.median(errors[used])),
        p90_error=figure(np.quantile(errors[used], 0.9)),
        left_out_error=left_out_error(form, table.where(used)),
        outside_error=figure(np.median(small)) if len(small) else None,
        held=held,
        sources=sources or (table.path,),
    )
    return Found(values, fitted, named(table, inside, right, off))


def solved(form: Form, table: Table) -> tuple[dict[str, float], tuple[str, ...]]:
    """Coefficients by name, and which were held since the table cannot tell them."""
    held: list[str] = []
    while True:
        free = [item for item in form.coefficients if item.name not in held]
        values = least(form, table, free)
        blind = untold(form, table, values, free)
        if blind is None:
            return values, tuple(held)
        held.append(blind)


def least(form: Form, table: Table, free: list[Coefficient]) -> dict[str, float]:
    """The free coefficients of the least error, the others as assumed."""
    low, high, scale = (np.array([getattr(item, end) for item in free]) for end in ("low", "high", "scale"))
    start = np.where(low > 0, np.sqrt(np.maximum(low * high, 1e-30)), scale)
    point = minimise(lambda point: log_errors(form, table, by_name(form, free, point)), start, low, high, scale)
    return by_name(form, free, point)


def by_name(form: Form, free: list[Coefficient], point: Array) -> dict[str, float]:
    assumed = {item.name: item.prior or 0.0 for item in form.coefficients}
    return {**assumed, **{item.name: float(value) for item, value in zip(free, point, strict=True)}}


def untold(form: Form, table: Table, values: dict[str, float], free: list[Coefficient]) -> str | None:
    """The coefficient to hold when some change of the free ones, usual in size, hardly moves any time."""
    point = np.array([values[item.name] for item in free])
    scale = np.array([item.scale if item.prior is not None else values[item.name] for item in free])
    high = np.array([item.high for item in free])

    def residuals(point: Array) -> Array:
        return log_errors(form, table, by_name(form, free, point))

    slopes = jacobian(residuals, point, residuals(point), scale, high) * scale / np.sqrt(len(table.lines))
    _, sizes, directions = np.linalg.svd(slopes, full_matrices=False)
    if sizes[-1] >= TELLING:
        return None
    parts = [(abs(part), item.name) for part, item in zip(directions[-1], free, strict=True) if item.prior is not None]
    if not parts:
        message = f"the table cannot tell {', '.join(item.name for item in free)} apart"
        raise InputError(message, where=table.path, fix="measure shapes that differ more")
    return max(parts)[1]


def refuse_few(form: Form, table: Table) -> None:
    count, needed = len(set(configurations(form, table).tolist())), len(form.coefficients)
    if count < needed:
        message = f"{count} configurations cannot tell {needed} coefficients"
        raise InputError(message, where=table.path, fix="measure more shapes, or larger ones")


def configurations(form: Form, table: Table) -> Array:
    """The number of each row's configuration [rows]: what was measured twice has one."""
    columns = np.stack([table.numbers[axis] for axis in form.axes], axis=1)
    return np.asarray(np.unique(columns, axis=0, return_inverse=True)[1], np.float64).reshape(-1)


def left_out_error(form: Form, table: Table) -> float | None:
    """The median error on every fifth configuration, by coefficients from the others; None where too few are left."""
    out = configurations(form, table) % LEFT_OUT == LEFT_OUT - 1
    if not out.any() or len(set(configurations(form, table.where(~out)).tolist())) < len(form.coefficients):
        return None
    values, _ = solved(form, table.where(~out))
    return figure(np.median(relative_errors(form, table.where(out), values)))


def log_errors(form: Form, table: Table, values: dict[str, float]) -> Array:
    errors: Array = np.log(form.seconds(table, values) / table.seconds)
    return errors


def relative_errors(form: Form, table: Table, values: dict[str, float]) -> Array:
    errors: Array = np.abs(form.seconds(table, values) / table.seconds - 1)
    return errors


def figure(value: float) -> float:
    return round(float(value), 4)


def named(table: Table, inside: Mask, right: Mask, off: Mask) -> tuple[str, ...]:
    """The rows left out, each with its place and the reason."""
    fast = [f"{table.place(row)}: faster than the device's peak" for row in np.flatnonzero(~right).tolist()]
    far = np.flatnonzero(inside & right & ~off).tolist()
    return (*fast, *(f"{table.place(row)}: {UNIT_MISTAKE:.0f} times off all others: a wrong unit?" for row in far))
