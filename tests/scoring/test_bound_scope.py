"""A bound over layouts says in words which these are, of one module and of several."""

from planner.scoring import with_score
from planner.scoring.bounds.bound_scope import bound_over
from planner.scoring.bounds.step_bounds import SPACE
from planner.specs.base import with_fields
from planner.strategies.static.layouts_plan import plan_together
from tests.modality_jobs import seeing_job


def test_of_several_modules_the_layout_of_the_samples_module_is_told(tmp_path):
    plan = plan_together(seeing_job(tmp_path, fixed="llm: {dp: 4}, vit: {dp: 4}"))
    by_hand = with_fields(plan, outcome=with_fields(with_score(plan, "").outcome, bound_by=SPACE))
    assert bound_over(by_hand) == "all assignments of samples to these layouts"
    searched = with_fields(by_hand, made=with_fields(plan.made, decided={"layouts": "modality_layout"}))
    told = bound_over(searched)
    assert told.startswith("all planner layouts of every module, on any ranks, with what the job fixes")
    assert "micro-batches" not in told  # micro-batches of any size are in it
    assert bound_over(with_fields(searched, outcome=with_fields(searched.outcome, bound_by="busiest_rank"))) == ""
