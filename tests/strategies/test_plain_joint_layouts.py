"""The plainest joint layouts within the noise: never slower than that allows, never less plain than the quickest, and
what stands beside a plan gives the same seconds where a job fixes it.
"""

from dataclasses import replace

import pytest

from planner.specs.base import with_fields
from planner.specs.inputs import JobOptions, load_job
from planner.strategies import modality_layout
from planner.strategies.modality.plain_layouts import joint_points
from planner.strategies.static import predict_job

WITHIN = (0.0, 0.02)
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def inputs():
    return load_job("qwen2.5-vl-7b-h200x8", JobOptions(effort=1))


@pytest.fixture(scope="module")
def plans(inputs):
    """By how much the step may be longer."""
    jobs = {share: replace(inputs, job=with_fields(inputs.job, within=share)) for share in WITHIN}
    return {share: modality_layout.plan(each, None) for share, each in jobs.items()}


def test_the_plan_is_within_the_noise_of_the_quickest_and_the_bound_is_of_that(plans):
    for share, plan in plans.items():
        quickest, bound = plan.outcome.quickest.value, plan.outcome.bound
        assert bound <= quickest <= plan.outcome.value <= (1.0 + share) * quickest * (1 + 1e-9)
        assert plan.outcome.gap == pytest.approx(quickest / bound - 1.0)
    assert plans[0.0].outcome.value == plans[0.0].outcome.quickest.value


def test_noise_gives_no_less_plain_layouts(plans, inputs):
    rising = [joint_points(inputs, plans[share].layouts) for share in WITHIN]
    assert rising[0] == max(rising) > rising[-1]


@pytest.mark.parametrize("name", ["quickest", "conventional"])
@pytest.mark.every(2)
def test_what_stands_beside_a_plan_takes_no_longer_where_a_job_fixes_it(plans, inputs, name):
    beside = getattr(plans[0.02].outcome, name)
    fixed = with_fields(inputs.job.fix, layouts=beside.layouts)
    found = predict_job(replace(inputs, job=with_fields(inputs.job, fix=fixed)))
    assert found.fits and beside.value * 0.95 < found.plan.outcome.value <= beside.value * 1.003  # orders are compared
