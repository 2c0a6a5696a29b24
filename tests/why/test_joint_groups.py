"""Why a step with samples in groups beside encoders is as it is, and what a change would cost: its strategy plans it
again, with the layouts that are kept.
"""

import pytest

from planner import pipeline
from planner.callbacks import silent
from planner.errors import InputError
from planner.plan.legal.plan_laws import violations
from planner.solve_job import solve_job
from tests.examples import soaked
from tests.grouped_jobs import GROUPED, grouped_job


@pytest.fixture(scope="module", params=soaked(GROUPED, ["data_ranks"]))
def plan(request, tmp_path_factory):
    return solve_job(grouped_job(tmp_path_factory.mktemp("job"), request.param), silent).plan


@pytest.mark.slow
def test_its_own_decisions_are_found_again(plan):
    found = pipeline.why(plan)
    assert found.unplaced == "" and found.again == pytest.approx(plan.outcome.value, rel=1e-6)
    for each in found.placements:  # groups are on all ranks, and encoders with them
        assert each.gain.seconds is None and "all ranks" in each.gain.because


@pytest.mark.slow
def test_a_change_of_an_encoder_keeps_groups_and_one_of_the_llm_its_states(plan):
    encoder = pipeline.why_not(plan, ("vit.recompute=full",))
    assert encoder.infeasible is None and encoder.after.value >= encoder.before.value * (1 - 1e-9)
    llm = pipeline.why_not(plan, ("llm.recompute=full",))
    assert llm.infeasible is None and llm.after.value > llm.before.value
    assert llm.again == pytest.approx(plan.outcome.value, rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(("word", "says"), [("llm.tp=2", "tp of `llm`"), ("vit.ranks=0-1", "ranks of `vit`")])
def test_what_groups_cannot_keep_says_so(plan, word, says):
    found = pipeline.why_not(plan, (word,))
    assert found.after is None and says in found.infeasible.message and found.infeasible.fix


def test_a_group_and_an_item_are_explained(plan):
    assert violations(plan) == []
    group = next(name for name in plan.groups if "." not in name)
    assert pipeline.why(plan, group) and pipeline.why(plan, "4")
    with pytest.raises(InputError):
        pipeline.why(plan, "g9")
