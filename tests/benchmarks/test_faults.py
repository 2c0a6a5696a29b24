"""What faults do to runs: a few of the benchmark's of each kind, all of them in the long tests."""

import pytest

from benchmarks.fault_runs import Fault, accuses, do_fault, launchers, uninterrupted
from benchmarks.faults import FAULTS, RANKS, SLOW_RUNS, slow_ranks, small_plan
from planner.launch.task_board import process_state

pytestmark = pytest.mark.skipif(process_state(1) is None, reason="this system does not say how processes are")

FEW = [
    Fault("stop", 2, 0),
    Fault("kill", 2, 0),
    Fault("kill", 4, 1),
    Fault("terminate", 2, 0),
    Fault("interrupt", 4, 1),
    Fault("exception", 4, 1),
    Fault("full disk", 2, 0),
    Fault("launcher death", 2, 0),
]


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Launchers, and by ranks a plan and what it trains where nothing is done to it."""
    folder = tmp_path_factory.mktemp("faults")
    with launchers(folder / "ranks") as living:
        plans = {ranks: small_plan(ranks, folder) for ranks in RANKS}
        whole = {ranks: uninterrupted(living, plan, folder / f"whole-{ranks}") for ranks, plan in plans.items()}
        yield living, plans, whole


def require_survived(world, fault, folder):
    living, plans, whole = world
    outcome = do_fault(living, fault, plans[fault.ranks], folder, whole[fault.ranks])
    assert not outcome.wrong(fault), outcome


@pytest.mark.slow
def test_nothing_is_lost_by_some_faults_of_each_kind(world, tmp_path):
    assert {*FEW} <= {*FAULTS}
    for number, fault in enumerate(FEW):
        require_survived(world, fault, tmp_path / str(number))


@pytest.mark.slow
def test_no_healthy_rank_is_accused_for_being_slow(world, tmp_path):
    living, plans, _ = world
    for slowness in slow_ranks(3):
        assert accuses(living, slowness, plans[2], tmp_path / slowness.place) == ""


@pytest.mark.soak
@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault not in FEW], ids=lambda fault: fault.name)
def test_nothing_is_lost_by_any_fault(world, fault, tmp_path):
    require_survived(world, fault, tmp_path)


@pytest.mark.soak
def test_none_of_many_slow_ranks_is_accused(world, tmp_path):
    living, plans, _ = world
    for number, slowness in enumerate(slow_ranks(SLOW_RUNS)):
        assert accuses(living, slowness, plans[RANKS[number % 2]], tmp_path / str(number)) == ""
