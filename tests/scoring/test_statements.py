"""What a plan file states is what its own numbers give, or every verb that reads it refuses it."""

import re
import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from planner import files, pipeline
from planner.cli.app import app
from planner.errors import InputError
from planner.plan.plan_file import Plan
from planner.scoring.statements import computed_by_hand, false_statements, with_bound_digest
from planner.specs.base import with_fields
from tests.check.small_plans import solve, write_job
from tests.examples import examples
from tests.test_golden import GOLDEN

EDITS = {  # field → what someone makes of its number
    "value": lambda was: was / 2,
    "bound": lambda was: was * 1.5,
    "gap": lambda was: was / 3 + 0.05,
    "peak_memory_gib": lambda was: was / 2,
}
OF_PREDICTION = {name: EDITS["value"] for name in ("step_seconds", "spread", "compute")}
PLANS = ("data_ranks/offload-h200x8", "parallel_search/llama-3-8b-h100x64", "pipeline_order/llama-3-8b-h100x8")
VERBS = {
    "show": ["show", "PLAN"],
    "check": ["check", "GOOD", "PLAN"],
    "check of the old": ["check", "PLAN", "GOOD"],
    "predict": ["predict", "PLAN"],
    "fits": ["fits", "PLAN"],
    "simulate": ["simulate", "PLAN"],
    "report": ["report", "PLAN", "-o", "OUT"],
    "why": ["why", "PLAN"],
    "why-not": ["why-not", "PLAN", "zero=2"],
    "export": ["export", "PLAN", "--to", "torch-csv", "-o", "OUT"],
    "run": ["run", "PLAN"],
}


def edited_text(text, name, edit):
    """The file with its first number of this name changed."""
    changed, count = re.subn(rf"\b{name}: ([\d.e+-]+)", lambda m: f"{name}: {edit(float(m[1])):.9g}", text, count=1)
    assert count == 1
    return changed


def invoke(verb, plan, good, out):
    words = {"PLAN": str(plan), "GOOD": str(good), "OUT": str(out)}
    return CliRunner().invoke(app, [words.get(word, word) for word in VERBS[verb]])


@pytest.mark.every(10)
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("name", EDITS)
def test_every_verb_refuses_an_edited_number(verb, name, tmp_path):
    good, edited = GOLDEN / PLANS[0] / "plan.yaml", tmp_path / "plan.yaml"
    edited.write_text(edited_text(good.read_text(), name, EDITS[name]))
    done = invoke(verb, edited, good, tmp_path / "out")
    error = done.exception
    assert isinstance(error, InputError) and error.exit_code == 2, done.output
    assert str(edited) in error.where and name in error.where and "solve" in error.fix
    assert done.stdout == "" and not (tmp_path / "out").exists()


@pytest.mark.parametrize("folder", PLANS)
@pytest.mark.parametrize("name", EDITS | OF_PREDICTION)
@pytest.mark.every(7)
def test_edits_of_plans_of_every_bound(folder, name, tmp_path):
    edited = tmp_path / "plan.yaml"
    edited.write_text(edited_text((GOLDEN / folder / "plan.yaml").read_text(), name, (EDITS | OF_PREDICTION)[name]))
    with pytest.raises(InputError, match=r"the plan states") as refused:
        pipeline.read_plan(edited)
    assert "planner solve" in refused.value.fix


@pytest.mark.parametrize("share", [1.0, 0.9])
def test_an_edited_bound_over_a_space_is_refused_whatever_its_gap(share, tmp_path):
    bound, edited = files.read(GOLDEN / PLANS[1] / "plan.yaml", Plan).outcome.value * share, tmp_path / "plan.yaml"
    files.write(edited, bounded(bound))
    with pytest.raises(InputError, match=r"not the one that was found"):
        pipeline.read_plan(edited)


@pytest.mark.slow
def test_a_raised_bound_with_a_forged_digest_is_found_by_check(tmp_path):
    good, edited = GOLDEN / PLANS[1] / "plan.yaml", tmp_path / "plan.yaml"
    plan = bounded(files.read(good, Plan).outcome.value)
    files.write(edited, with_bound_digest(plan))
    pipeline.read_plan(edited)
    with pytest.raises(InputError, match=r"can be proven"):
        pipeline.check(good, edited, pipeline.Tolerances())


def bounded(bound: float) -> Plan:
    """A plan from a search, with another bound and the gap that goes with it."""
    plan = files.read(GOLDEN / PLANS[1] / "plan.yaml", Plan)
    value = plan.outcome.value
    return with_fields(plan, outcome=with_fields(plan.outcome, bound=bound, gap=(value - bound) / bound))


@pytest.mark.parametrize("name", ["value", "gap", "peak_memory_gib"])
@pytest.mark.every(3)
def test_a_folder_with_an_edited_plan_is_blocked(name, tmp_path):
    folder = tmp_path / "case"
    shutil.copytree(GOLDEN / PLANS[0], folder)
    text = (folder / "plan.yaml").read_text()
    (folder / "plan.yaml").write_text(edited_text(text, name, EDITS[name]))
    done = CliRunner().invoke(app, ["check", str(tmp_path)])
    assert done.exit_code == 1 and "not what it states" in " ".join(done.stdout.split())


def test_a_plan_by_hand_states_what_its_decisions_give(tmp_path):
    plan = files.read(GOLDEN / "by_hand/zero-bubble/plan.yaml", Plan)
    files.write(tmp_path / "plan.yaml", with_fields(plan, outcome=with_fields(plan.outcome, value=1e-3, gap=0.0)))
    assert pipeline.read_plan(tmp_path / "plan.yaml") == plan
    assert pipeline.check(GOLDEN / "by_hand/zero-bubble/plan.yaml", tmp_path / "plan.yaml", pipeline.Tolerances()) == []


@pytest.mark.slow
@examples(10)
@given(rows=st.integers(1, 12), batches=st.integers(1, 3), seed=st.integers(0, 99))
def test_what_solve_writes_is_true(tmp_path_factory, rows, batches, seed):
    plan = solve(write_job(tmp_path_factory.mktemp("job"), rows), batches=batches, seed=seed)
    scores = pipeline.simulate(plan)
    assert not [*false_statements(plan, scores)]
    by_hand = with_fields(plan, outcome=with_fields(plan.outcome, status="by_hand", value=1.0))
    again = computed_by_hand(by_hand, scores)
    assert not [*false_statements(again, scores)]
    assert again.outcome.value == pytest.approx(plan.outcome.value)
