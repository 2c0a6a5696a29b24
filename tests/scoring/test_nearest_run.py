"""The published run nearest to a plan: a distance, a least one, and an interval that it only widens."""

from math import log2
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import files
from planner.plan.plan_file import Plan
from planner.scoring import interval_spread, nearest_run, plan_answer, score
from planner.scoring.nearest_run import FREE_STEPS, nearest_of, nearest_to
from planner.specs.base import with_fields
from planner.specs.framework.own_runs import DEGREES, steps_apart
from planner.specs.parallelism import Parallelism
from planner.specs.shipped_runs import shipped_runs

GOLDEN = Path(__file__).parents[1] / "golden"
KNOWN = [(source, run) for source, runs in shipped_runs().runs.items() for run in runs]
RUNS = st.sampled_from([run for _, run in KNOWN])


def golden(name):
    return files.read(GOLDEN / name / "plan.yaml", Plan)


def far(one, other):
    peaks = shipped_runs().tflops
    return sum(steps_apart(one, other, abs(log2(peaks[one.device] / peaks[other.device]))).values())


@given(RUNS, RUNS, RUNS)
def test_it_is_a_distance(one, other, third):
    assert far(one, one) == 0.0 and far(one, other) == pytest.approx(far(other, one))
    assert (far(one, other) == 0.0) == (one == other)
    assert far(one, third) <= far(one, other) + far(other, third) + 1e-9


@given(RUNS, st.sampled_from(DEGREES), st.integers(0, 6))
def test_each_doubling_is_half_a_step(run, name, doublings):
    assert far(run, run._replace(**{name: getattr(run, name) * 2**doublings})) == pytest.approx(doublings / 2)


@given(RUNS, st.integers(1, 6), st.integers(1, 6))
def test_the_nearest_is_the_least_of_all_and_fewer_runs_are_never_nearer(run, ranks, tp):
    asked, known = run._replace(ranks=run.ranks * ranks, tp=run.tp * tp), shipped_runs()
    peak = known.tflops[run.device]
    found = nearest_of(asked, peak, known)
    assert found.distance == pytest.approx(min(far(asked, each) for _, each in KNOWN))
    fewer = with_fields(known, runs=dict(list(known.runs.items())[::2]))
    assert nearest_of(asked, peak, fewer).distance >= found.distance
    assert found.spread >= 0.0 and (found.distance > FREE_STEPS or found.spread == 0.0)


def test_a_plan_far_from_everything_measured_has_a_wider_interval():
    plan = golden("parallel_search/llama-3-8b-h100x64")
    (name, own), spread = next(iter(plan.layouts.items())), plan.prediction.spread
    widths = [
        interval_spread(with_fields(plan, layouts={name: with_fields(own, cp=cp, dtype=dtype)}), spread)
        for cp, dtype in ((1, "bf16"), (64, "bf16"), (64, "fp8"), (4096, "fp8"))
    ]
    assert spread <= widths[0] < widths[1] <= widths[2] < widths[3]


def test_of_another_layout_what_is_left_open_is_not_the_plans():
    """Its ulysses would not divide this cp."""
    plan = golden("parallel_search/llama-3-8b-h100x64")
    name, own = next(iter(plan.layouts.items()))
    sharded = with_fields(plan, layouts={name: with_fields(own, cp=4, ulysses=4, tp=2)})
    other, alone = Parallelism(cp=2, dtype=own.dtype), with_fields(own, cp=2, zero=0)
    assert nearest_run(sharded, {name: other}) == nearest_run(with_fields(plan, layouts={name: alone}))


def test_the_answer_names_it_and_its_interval_has_it():
    plan = golden("parallel_search/llama-3-8b-h100x64")
    said, nearest = plan_answer(plan, [score(plan)]), nearest_run(plan)
    low, high = said["interval_seconds"]
    assert high / low == pytest.approx(
        2.718281828459045 ** (2 * interval_spread(plan, plan.prediction.spread)), rel=1e-6
    )
    assert said["nearest_run"]["distance"] == nearest.distance == sum(said["nearest_run"]["apart"].values())
    assert nearest.source in nearest_to(plan)


@pytest.mark.parametrize("name", ["sequence_groups/demo", "sequence_groups/flexsp-gpt-7b"])
def test_what_was_timed_itself_is_near_to_nothing(name):
    """Modules with measured or published costs of their own, and CPUs."""
    plan = golden(name)
    assert nearest_run(plan) is None and nearest_to(plan) == ""
    assert interval_spread(plan, 0.2) == 0.2
