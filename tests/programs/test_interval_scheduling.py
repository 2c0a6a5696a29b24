"""Work laid out in time: against every order of small shops; rooms, waits and stretches one by one."""

from itertools import permutations
from math import inf
from random import Random

import pytest

from planner.programs.interval_scheduling import (
    IntervalProblem,
    MeasuredSpan,
    Precedence,
    Reservation,
    schedule_intervals,
)
from planner.programs.solver_answer import SolverLimits

LIMITS = SolverLimits(effort=2)


def shop(seconds, machines, waits=(), stays=(), rooms=()):
    ends = tuple(MeasuredSpan(None, each) for each in range(len(seconds)))
    return IntervalProblem(tuple(seconds), machines, waits, stays, rooms, ends, horizon=2 * sum(seconds))


@pytest.mark.parametrize("seed", range(4))
def test_two_machines_in_turn_take_what_the_best_of_all_orders_takes(seed):
    """Each job first on one machine, then on the other."""
    chance, jobs = Random(seed), 4
    seconds = [chance.uniform(0.3, 2.0) for _ in range(2 * jobs)]
    problem = shop(
        seconds,
        (tuple(range(jobs)), tuple(range(jobs, 2 * jobs))),
        tuple(Precedence(j, j + jobs, 0.1) for j in range(jobs)),
    )

    def took(order):
        first = second = 0.0
        for j in order:
            first += seconds[j]
            second = max(second, first + 0.1) + seconds[j + jobs]
        return second

    best, laid = min(map(took, permutations(range(jobs)))), schedule_intervals(problem, LIMITS)
    assert laid.proven
    assert laid.bound <= best
    assert laid.bound == pytest.approx(best, rel=1e-3)


def test_a_room_holds_no_more_than_it_does():
    """Three pieces on machines of their own, of which the room holds two at once."""
    machines, stays = ((0,), (1,), (2,)), tuple(Reservation(each, each, 0, 1.0) for each in range(3))
    ends = {
        room: schedule_intervals(shop([1.0] * 3, machines, (), stays, (room,)), LIMITS).bound
        for room in (1.0, 2.0, 3.0, inf)
    }
    assert ends == pytest.approx({1.0: 3.0, 2.0: 2.0, 3.0: 1.0, inf: 1.0}, rel=1e-3)


def test_a_stretch_counts_from_its_own_first_piece():
    """The second machine may wait for the first before it begins, and that does not count."""
    problem = IntervalProblem(
        seconds=(5.0, 1.0, 1.0),
        machines=((0,), (1, 2)),
        precedences=(Precedence(0, 2), Precedence(1, 2)),
        reservations=(),
        capacities=(),
        spans=(MeasuredSpan(1, 2, extra_seconds=0.5),),
        horizon=20.0,
    )
    laid = schedule_intervals(problem, LIMITS)
    assert laid.bound == pytest.approx(2.5, rel=1e-3)
    assert laid.starts[1] == pytest.approx(4.0, rel=1e-3)


def test_the_same_input_gives_the_same_layout():
    chance = Random(1)
    problem = shop([chance.uniform(0.5, 1.5) for _ in range(8)], ((0, 1, 2, 3), (4, 5, 6, 7)))
    assert schedule_intervals(problem, LIMITS) == schedule_intervals(problem, LIMITS)
