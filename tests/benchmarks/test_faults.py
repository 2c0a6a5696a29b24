"""What faults do to runs: the whole benchmark, in the soak; elsewhere `test_elastic.py` kills a rank."""

from functools import cache

import pytest

from benchmarks.fault_runs import accuses, do_fault, launchers, uninterrupted
from benchmarks.faults import FAULTS, RANKS, SLOW_RUNS, slow_ranks, small_plan
from planner.launch.task_board import process_state

pytestmark = pytest.mark.skipif(process_state(1) is None, reason="this system does not say how processes are")


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Launchers; by ranks a plan, and the files of a run of it to which nothing is done."""
    folder = tmp_path_factory.mktemp("faults")
    with launchers(folder / "ranks") as living:
        plans = {ranks: small_plan(ranks, folder) for ranks in RANKS}
        yield living, plans, cache(lambda ranks: uninterrupted(living, plans[ranks], folder / f"whole-{ranks}"))


def require_survived(world, fault, folder):
    living, plans, whole = world
    outcome = do_fault(living, fault, plans[fault.ranks], folder, whole(fault.ranks))
    assert not outcome.wrong(fault), outcome


@pytest.mark.soak
def test_no_healthy_rank_is_accused_for_being_slow(world, tmp_path):
    living, plans, _ = world
    for slowness in slow_ranks(1):
        assert accuses(living, slowness, plans[2], tmp_path / slowness.place) == ""


@pytest.mark.soak
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_nothing_is_lost_by_any_fault(world, fault, tmp_path):
    require_survived(world, fault, tmp_path)


@pytest.mark.soak
def test_none_of_many_slow_ranks_is_accused(world, tmp_path):
    living, plans, _ = world
    for number, slowness in enumerate(slow_ranks(SLOW_RUNS)):
        assert accuses(living, slowness, plans[RANKS[number % 2]], tmp_path / str(number)) == ""
