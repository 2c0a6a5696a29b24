"""Scheduling: intervals on machines that run one at a time, precedences between them, and reservations of capacities.

CP-SAT on integers, one worker, limited by deterministic time: the same input gives the same answer. Seconds are rounded
down to a grid, so its bound holds for the real ones; its solution is an order, to be timed again.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from planner.programs.solver_answer import SolverLimits

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

TIME_UNITS = 200_000  # units of time in the horizon: finer than any measurement, and quick to propagate
CAPACITY_UNITS = 10_000  # units of each capacity
NOISE = 1e-9  # relative: rounding of the sums below


@dataclass(frozen=True, slots=True)
class Precedence:
    """Interval `after` starts at least `seconds` after the end of `before`."""

    before: int
    after: int
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Reservation:
    """An amount of a capacity is taken from the start of one interval to the end of another."""

    first: int
    last: int
    resource: int  # index of the capacity
    amount: float


@dataclass(frozen=True, slots=True)
class MeasuredSpan:
    """Seconds from the start of an interval, or from time 0 (None), to the end of another, plus a constant."""

    first: int | None
    last: int
    extra_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class IntervalProblem:
    """A scheduling problem that minimises the longest of some spans."""

    seconds: tuple[float, ...]  # of each interval
    machines: tuple[tuple[int, ...], ...]  # intervals of each
    precedences: tuple[Precedence, ...]
    reservations: tuple[Reservation, ...]
    capacities: tuple[float, ...]  # capacities
    spans: tuple[MeasuredSpan, ...]
    horizon: float  # some feasible schedule ends by then
    lower_bound: float = 0.0  # known lower bound on the longest span


@dataclass(frozen=True, slots=True)
class IntervalSchedule:
    """Starts on the grid, which only determine an order, and a lower bound on the longest span."""

    starts: tuple[float, ...] | None
    bound: float
    proven: bool  # whether the search was completed


def schedule_intervals(
    problem: IntervalProblem, limits: SolverLimits, hint: Sequence[float] | None = None
) -> IntervalSchedule:
    """The best schedule found; `hint`: starts of a known one, seconds."""
    from ortools.sat.python import cp_model

    scale = TIME_UNITS / problem.horizon
    model = cp_model.CpModel()
    horizon = 2 * TIME_UNITS
    lengths = [math.floor(seconds * scale) for seconds in problem.seconds]
    starts = [model.new_int_var(0, horizon, "") for _ in lengths]
    interval_variables = [
        model.new_fixed_size_interval_var(at, length, "") for at, length in zip(starts, lengths, strict=True)
    ]
    for machine in problem.machines:
        model.add_no_overlap([interval_variables[each] for each in machine])
    for precedence in problem.precedences:
        model.add(
            starts[precedence.after]
            >= starts[precedence.before] + lengths[precedence.before] + math.floor(precedence.seconds * scale)
        )
    for index, size in enumerate(problem.capacities):
        reservations = [reservation for reservation in problem.reservations if reservation.resource == index]
        if size < math.inf:
            add_capacity(model, reservations, size, starts, lengths)
    longest = model.new_int_var(math.floor(problem.lower_bound * scale), horizon, "")
    for span in problem.spans:
        end = starts[span.last] + lengths[span.last] + math.floor(span.extra_seconds * scale)
        model.add(longest >= (end if span.first is None else end - starts[span.first]))
    model.minimize(longest)
    for variable, value in zip(starts, hint or (), strict=False):
        model.add_hint(variable, math.floor(value * scale))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = limits.seed
    solver.parameters.max_deterministic_time = limits.work
    if limits.seconds is not None:
        solver.parameters.max_time_in_seconds = limits.seconds
    status = solver.solve(model)
    found = status in (cp_model.OPTIMAL, cp_model.FEASIBLE)
    bound = solver.best_objective_bound / scale * (1 - NOISE) if status != cp_model.INFEASIBLE else math.inf
    return IntervalSchedule(
        tuple(solver.value(start) / scale for start in starts) if found else None, bound, status == cp_model.OPTIMAL
    )


def add_capacity(
    model: "cp_model.CpModel",
    reservations: list[Reservation],
    size: float,
    starts: "list[cp_model.IntVar]",
    lengths: list[int],
) -> None:
    """Limit the amounts reserved at once to a capacity; amounts are rounded down, so that nothing that fits is
    excluded.
    """
    unit = size / CAPACITY_UNITS
    intervals, amounts = [], []
    for reservation in reservations:
        length = model.new_int_var(0, 2 * TIME_UNITS, "")
        end = starts[reservation.last] + lengths[reservation.last]
        intervals.append(model.new_interval_var(starts[reservation.first], length, end, ""))
        amounts.append(math.floor(reservation.amount / unit + 1e-6))
    model.add_cumulative(intervals, amounts, CAPACITY_UNITS)
