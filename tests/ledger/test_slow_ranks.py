"""A rank that holds up a run is named with its cause while the run lasts, once, and an even one never is."""

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.costs.cost_lines import Cost
from planner.ledger.slow_ranks import SLOWER, STEPS, SlowRankWatch, compare_ranks, slow_ranks
from planner.plan.task import LOADER
from planner.plan.tasks.expand import expand
from planner.runtime.run_options import Progress
from planner.simulate import simulate
from tests.plans import staged_plan

EVEN = {"forward": 1.0, "backward": 2.0, "update": 0.2, LOADER: 0.1}
EXPECTED = {"forward": 0.5, "backward": 1.0, "update": 0.1}


def slower(**more):
    return {kind: seconds * more.get(kind, more.get("all", 1.0)) for kind, seconds in EVEN.items()}


@pytest.mark.parametrize("ranks", [2, 5])
@pytest.mark.parametrize(
    ("more", "cause"),
    [
        ({"all": 1.3}, ("clock", "")),
        ({"backward": 1.5}, ("kernels", "backward")),
        ({LOADER: 6.0}, (LOADER, "")),
    ],
)
def test_a_slow_rank_is_named_with_its_cause(ranks, more, cause):
    work = [EVEN] * (ranks - 1) + [slower(**more)]
    (found,) = slow_ranks(work, [EXPECTED] * ranks)
    assert (found.rank, found.cause[:2]) == (ranks - 1, cause)
    assert found.ratio == pytest.approx(sum(work[-1].values()) / sum(EVEN.values()))


@given(st.lists(st.floats(1.0, 1.0 + SLOWER / 2), min_size=1, max_size=6))
def test_scatter_is_no_slowness(factors):
    assert slow_ranks([slower(all=each) for each in factors], [EXPECTED] * len(factors)) == []


@given(st.floats(0.2, 5.0), st.floats(0.0, 2.0))
def test_more_work_is_no_slowness_however_wrong_its_prediction(more, power):
    """Two ranks, of which one has more work, and takes as much longer as work of some power of it does."""
    expected = [EXPECTED, {kind: seconds * more for kind, seconds in EXPECTED.items()}]
    alike = {kind: seconds for kind, seconds in EVEN.items() if kind != LOADER}
    work = [alike, {kind: seconds * more**power for kind, seconds in alike.items()}]
    assert slow_ranks(work, expected) == []


def test_a_watch_says_it_once_and_again_where_it_is_another(caplog):
    plan = staged_plan(4, 3)
    tasks = expand(plan)
    watch = SlowRankWatch([simulate(tasks, lambda t: Cost(1.0, "measured", 0.0), 4)])
    heard = []
    hear = watch.hearing(heard.append)
    with caplog.at_level(logging.WARNING):
        for step in range(1, 5 * STEPS + 1):
            own = dict(watch.expected[0][0]) | {LOADER: 0.1}
            work = [own] * 4
            if 2 * STEPS < step <= 4 * STEPS:
                work = [own, own, {kind: 1.3 * seconds for kind, seconds in own.items()}, own]
            hear(Progress(step, 99, 1.0, 8, 1.0, tuple(work)))
    assert len(heard) == 5 * STEPS
    (said,) = caplog.messages
    assert "rank 2 is slow: its own work takes 30.0 % longer; its clock" in said


def test_one_slow_step_is_no_slow_rank():
    steps = [[EVEN, slower(all=3.0 if step == 2 else 1.0)] for step in range(5)]
    assert compare_ranks(steps, [[EXPECTED] * 2] * 5).slow == []
    assert compare_ranks([], []).work == []
