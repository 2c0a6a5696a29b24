"""Gavel's 100 jobs on 8 V100, 16 P100 and 24 K80 (OSDI 2020): what our clock reaches, and its own clock again."""

import pytest

from planner.policies import least_makespan, schedule_jobs
from planner.simulate import State, arrived
from planner.specs.cluster_jobs.actions_file import PolicyChoice
from planner.specs.cluster_jobs.read_jobs import read_fleet
from planner.workflows.scheduling import ClusterQuestion, trace_jobs
from tests.cluster_jobs import require_lawful

GPUS = "8xv100,16xp100,24xk80"
BOUND = 63_750
THEIR_FIFO = 90_701, 40_258  # makespan and mean completion in its simulator, with its fastest kind for each job


@pytest.fixture(scope="module")
def hundred(shared):
    folder = shared / "data" / "cluster"
    fleet = read_fleet("", GPUS)
    table = folder / "gavel_throughputs.csv.gz"
    jobs, _ = trace_jobs(ClusterQuestion(folder / "gavel_makespan_100jobs.csv", throughputs=table), fleet)
    return jobs, fleet


def outcome_of(hundred, **choice):
    schedule = schedule_jobs(*hundred, PolicyChoice(**choice))
    require_lawful(*hundred, schedule.history)
    return schedule.outcome


def test_no_schedule_of_them_ends_sooner(hundred):
    jobs, fleet = hundred
    waiting = {job.id: arrived(job, number, fleet) for number, job in enumerate(jobs)}
    assert least_makespan(State(0.0, fleet, waiting, {}, {}))[0] == pytest.approx(BOUND, abs=0.5)


@pytest.mark.slow
def test_the_makespan_is_nearly_the_least(hundred):
    assert BOUND - 1 <= outcome_of(hundred, order="makespan").makespan_s <= 64_300


@pytest.mark.slow
def test_kinds_chosen_jointly_shorten_the_mean(hundred):
    assert outcome_of(hundred, order="srtf", place="joint", preempt=True).mean_completion_s <= 27_100


def test_in_its_rounds_fifo_is_as_in_its_simulator(hundred):
    outcome = outcome_of(hundred, rounds="gavel", backfill=False)
    assert (outcome.makespan_s, outcome.mean_completion_s) == pytest.approx(THEIR_FIFO, rel=0.02)


@pytest.mark.slow
def test_in_its_rounds_the_makespan_is_less_than_its_own(hundred):
    assert outcome_of(hundred, order="makespan", rounds="gavel").makespan_s < 64_721


@pytest.mark.slow
def test_in_its_rounds_the_mean_of_max_min_is_less_than_its_own(hundred):
    assert outcome_of(hundred, order="max_min", rounds="gavel").mean_completion_s < 35_659
