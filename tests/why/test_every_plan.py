"""`why` answers for every plan: where no strategy makes its decisions they stay, and its own tasks are simulated."""

from pathlib import Path

import pytest

from planner import files, pipeline
from planner.errors import InputError
from planner.plan.plan_file import Plan
from planner.scoring import score
from planner.specs.base import with_fields
from planner.why import ModuleFacts, WhyNot, WhyPlan
from planner.why.plan_problem import single_step
from planner.why.why_plan import solvable_problem

GOLDEN = sorted(Path("tests/golden").rglob("plan.yaml"))
MODULES = [path for path in GOLDEN if len(files.read(path, Plan).layouts) > 1]
BY_HAND = [path for path in GOLDEN if "by_hand" in path.parts]  # others are asked in test_why.py and test_searched.py
ALONE = [path for path in BY_HAND if path not in MODULES]


def plan_at(path: Path) -> Plan:
    return pipeline.read_plan(path)


@pytest.mark.slow
@pytest.mark.parametrize("path", ALONE, ids=lambda path: path.parent.name)
@pytest.mark.every(2)
def test_the_parts_of_every_step_add_up_and_something_would_help(path):
    plan = plan_at(path)
    for step in range(len(plan.steps)):
        answer = pipeline.why(plan, step=step)
        facts = answer.facts
        if isinstance(answer.facts, ModuleFacts):
            assert sum(facts.parts.values()) == pytest.approx(facts.value) == score(plan, step).step_seconds
            assert answer.sensitivities
            continue
        assert isinstance(answer, WhyPlan)
        parts = facts.compute + facts.exchange_across + facts.exchange_within + facts.other_comm + facts.idle
        assert parts == pytest.approx(facts.value) == score(plan, step).step_seconds
        assert answer.sensitivities


@pytest.mark.slow
@pytest.mark.every(4)
@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.parent.name)
def test_of_several_modules_each_is_made_faster_by_itself(path):
    """Kept decisions on a better machine take no longer, and all modules together bound what one of them can save."""
    plan = plan_at(path)
    answer = pipeline.why(plan)
    assert isinstance(answer.facts, ModuleFacts)
    whose = [gain.what.split("`")[1] for gain in answer.sensitivities if "computing" in gain.what]
    assert whose == [*plan.layouts]
    for gain in answer.sensitivities:
        assert gain.seconds is not None and gain.seconds <= answer.facts.value * (1 + 1e-9)
        assert gain.seconds >= answer.facts.value / 2 * (1 - 1e-9)  # halved work halves a path at most
    assert max(gain.saved or 0.0 for gain in answer.sensitivities) > 0


@pytest.mark.slow
def test_a_static_layout_by_hand_is_compared_with_what_the_search_finds():
    plan = plan_at(Path("tests/golden/by_hand/zero-bubble/plan.yaml"))
    answer = pipeline.why(plan)
    assert isinstance(answer, WhyPlan) and not answer.kept
    assert answer.again <= answer.facts.value * (1 + 1e-9)
    changed = pipeline.why_not(plan, ("pp=1",))
    assert isinstance(changed, WhyNot) and changed.after and changed.again == answer.again
    with pytest.raises(InputError) as refused:
        pipeline.why(plan, "0")
    assert "static layout" in refused.value.message


@pytest.mark.slow
@pytest.mark.every(4)
@pytest.mark.parametrize("path", [path for path in MODULES if path in BY_HAND], ids=lambda path: path.parent.name)
def test_a_field_of_several_modules_is_asked_of_one_of_them(path):
    plan = plan_at(path)
    with pytest.raises(InputError) as refused:
        pipeline.why_not(plan, ("zero=1",))
    for name in plan.layouts:
        assert f"{name}.zero=1" in (refused.value.fix or "")
        answer = pipeline.why_not(plan, (f"{name}.zero=1",))
        assert answer.after or answer.infeasible


def test_a_plan_whose_order_was_imported_is_explained_by_who_decided_its_layouts():
    """As the plan before the import is, but for who ordered its passes."""
    plan = files.read(Path("tests/golden/pipeline_order/llama-3-8b-h100x8/plan.yaml"), Plan)
    decided = {**plan.made.decided, "order": "torch-csv"}
    imported = with_fields(plan, made=with_fields(plan.made, strategy="torch-csv", decided=decided))
    problem, unable = solvable_problem(single_step(imported, 0))
    assert problem and not unable and problem.job.strategy == "parallel_search"
