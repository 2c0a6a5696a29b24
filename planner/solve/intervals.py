"""Work laid out in time: pieces on machines that do one at a time, waits between them, and room that runs of them take.

CP-SAT on whole numbers, one worker, stopped by deterministic time: the same input gives the same answer. Seconds are
rounded down to a grid, so what it proves holds for the real ones; what it finds is an order, to be timed again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor, inf

from ortools.sat.python import cp_model

from planner.solve.answer import Limits

GRID = 200_000  # units of time in the horizon: far below what anybody measures, and quick to reason about
ROOM = 10_000  # units of the largest room
NOISE = 1e-9  # relative: rounding of the sums below


@dataclass(frozen=True, slots=True)
class Wait:
    """`after` begins so many seconds or more behind the end of `before`."""

    before: int
    after: int
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Stay:
    """From the start of one piece to the end of another, so much of a room is taken."""

    first: int
    last: int
    room: int
    amount: float


@dataclass(frozen=True, slots=True)
class Stretch:
    """Seconds that count: from the start of a piece, or from the beginning (None), to the end of another and more."""

    first: int | None
    last: int
    more: float = 0.0


@dataclass(frozen=True, slots=True)
class Intervals:
    """Minimise the longest stretch."""

    seconds: tuple[float, ...]  # of each piece
    machines: tuple[tuple[int, ...], ...]  # the pieces of each
    waits: tuple[Wait, ...]
    stays: tuple[Stay, ...]
    rooms: tuple[float, ...]
    stretches: tuple[Stretch, ...]
    horizon: float  # some legal layout has its last end by then
    least: float = 0.0  # no layout's longest stretch is shorter, as is known


@dataclass(frozen=True, slots=True)
class Laid:
    """Starts, on the grid and only to tell what comes before what; and what no layout can beat."""

    starts: tuple[float, ...] | None
    bound: float
    proven: bool  # the search has ended


def lay_out(problem: Intervals, limits: Limits, hint: Sequence[float] | None = None) -> Laid:
    """The best layout found, near `hint` if there is one."""
    scale = GRID / problem.horizon
    model = cp_model.CpModel()
    horizon = 2 * GRID
    lengths = [floor(seconds * scale) for seconds in problem.seconds]
    starts = [model.new_int_var(0, horizon, "") for _ in lengths]
    pieces = [model.new_fixed_size_interval_var(at, length, "") for at, length in zip(starts, lengths, strict=True)]
    for machine in problem.machines:
        model.add_no_overlap([pieces[each] for each in machine])
    for wait in problem.waits:
        model.add(starts[wait.after] >= starts[wait.before] + lengths[wait.before] + floor(wait.seconds * scale))
    for room, size in enumerate(problem.rooms):
        stays = [stay for stay in problem.stays if stay.room == room]
        if size < inf:
            add_room(model, stays, size, starts, lengths)
    longest = model.new_int_var(floor(problem.least * scale), horizon, "")
    for stretch in problem.stretches:
        end = starts[stretch.last] + lengths[stretch.last] + floor(stretch.more * scale)
        model.add(longest >= (end if stretch.first is None else end - starts[stretch.first]))
    model.minimize(longest)
    for variable, value in zip(starts, hint or (), strict=False):
        model.add_hint(variable, floor(value * scale))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = limits.seed
    solver.parameters.max_deterministic_time = limits.work
    if limits.seconds is not None:
        solver.parameters.max_time_in_seconds = limits.seconds
    status = solver.solve(model)
    found = status in (cp_model.OPTIMAL, cp_model.FEASIBLE)
    bound = solver.best_objective_bound / scale * (1 - NOISE) if status != cp_model.INFEASIBLE else inf
    return Laid(
        tuple(solver.value(start) / scale for start in starts) if found else None, bound, status == cp_model.OPTIMAL
    )


def add_room(
    model: cp_model.CpModel, stays: list[Stay], size: float, starts: list[cp_model.IntVar], lengths: list[int]
) -> None:
    """Never more than `size` at once. Amounts are rounded down, so that nothing that fits is ruled out."""
    unit = size / ROOM
    intervals, amounts = [], []
    for stay in stays:
        span = model.new_int_var(0, 2 * GRID, "")
        end = starts[stay.last] + lengths[stay.last]
        intervals.append(model.new_interval_var(starts[stay.first], span, end, ""))
        amounts.append(floor(stay.amount / unit + 1e-6))
    model.add_cumulative(intervals, amounts, ROOM)
