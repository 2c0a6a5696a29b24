"""A plan is the same in every objective, and its gap too; its values follow from each other and know one direction."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from planner import files, pipeline
from planner.check import compare
from planner.cli.app import app
from planner.costs.objective import OBJECTIVES, STEP_SECONDS
from planner.errors import InputError
from planner.plan.plan_file import Plan
from planner.report import plan_page
from planner.scoring.objective_value import objective_value, restate_in_objective, sample_tokens, seconds_for_value
from planner.scoring.plan_answer import plan_answer
from planner.specs.base import with_fields
from planner.specs.inputs import JobOptions
from planner.specs.library import shipped_folder
from tests.check.small_plans import at, one_by_one, write_job

runner = CliRunner()
QUICK = JobOptions(effort=1)
HOURLY = 0.5  # dollars of one of four ranks


def job(folder: Path, objective: str, price: str = f", usd_per_hour: {HOURLY}", strategy: str = "") -> str:
    """The small job on a cluster of its own, which says what ranks cost."""
    path = write_job(folder, rows=6)
    text = (shipped_folder() / "clusters" / "cpu-4.yaml").read_text()
    (folder / "cluster.yaml").write_text(text.replace("per_node: 4}", f"per_node: 4{price}}}"))
    text = path.read_text().replace("cpu-4", "cluster.yaml") + f"objective: {objective}\n"
    path.write_text(text.replace("zero: 3, ", "") + f"strategy: {strategy}\n" if strategy else text)
    return str(path)


@pytest.fixture(scope="module")
def solved(tmp_path_factory) -> dict[str, Plan]:
    """The same job of two batches in each objective."""
    folder = tmp_path_factory.mktemp("objectives")
    return {name: pipeline.solve(job(folder, name), JobOptions(batches=2, effort=1)).plan for name in OBJECTIVES}


def test_the_same_is_decided_whatever_is_best(solved):
    for plan in solved.values():
        assert [step.micro_batches for step in plan.steps] == [
            step.micro_batches for step in solved[STEP_SECONDS].steps
        ]
        assert plan.outcome.gap == solved[STEP_SECONDS].outcome.gap
        assert OBJECTIVES[plan.outcome.objective].gap(plan.outcome.value, plan.outcome.bound) == pytest.approx(
            plan.outcome.gap, abs=1e-7
        )


def test_values_are_those_of_the_seconds(solved):
    """Of all steps, and of each; tokens per dollar are all tokens over all dollars, no sum or mean over steps."""
    seconds = solved[STEP_SECONDS]
    sizes, steps = seconds.uses.items["llm"], [set(), set()]
    for items, step in zip(steps, seconds.steps, strict=True):
        items |= {item for row in step.micro_batches for each in row.values() for item in each}
    stated = {name: (plan.outcome, *(step.outcome for step in plan.steps)) for name, plan in solved.items()}
    for number, items in enumerate((steps[0] | steps[1], *steps)):
        of_seconds, of_dollars, of_rate = (stated[name][number] for name in OBJECTIVES)
        for said in ("value", "bound"):
            dollars = getattr(of_seconds, said) * 4 * HOURLY / 3600
            assert getattr(of_dollars, said) == pytest.approx(dollars)
            assert getattr(of_rate, said) == pytest.approx(sum(sizes[item] for item in items) / dollars)


def test_seconds_come_back(solved):
    for plan in solved.values():
        assert seconds_for_value(plan, objective_value(plan, 7.5, [1]), [1]) == pytest.approx(7.5)
        assert sample_tokens(plan, range(2)) == sample_tokens(plan, [0]) + sample_tokens(plan, [1])


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.every(4)
def test_check_knows_which_way_is_worse(name, tmp_path):
    """A slower plan is a regression in every unit, a quicker one a gain; findings say both in the plan's unit."""
    quick = pipeline.solve(job(tmp_path, name)).plan
    slow = restate_in_objective(one_by_one(quick), name)
    assert not compare(quick, quick) and not compare(slow, slow)
    for old, new, expected in ((quick, slow, "regression"), (slow, quick, "gain")):
        (finding,) = at(compare(old, new), "outcome.value")
        assert finding.category == expected
        assert (finding.old, finding.new) == pytest.approx((old.outcome.value, new.outcome.value))
        assert OBJECTIVES[name].formatted(new.outcome.value) in finding.message


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.every(3)
def test_a_bound_that_the_plan_beats_is_refuted(name, tmp_path):
    """Which is below its value, or above it where more is better."""
    plan = pipeline.solve(job(tmp_path, name)).plan
    beaten = plan.outcome.value * (0.5 if OBJECTIVES[name].larger_is_better else 2.0)
    with pytest.raises(InputError, match="states a bound of") as refused:
        compare(plan, with_fields(plan, outcome=with_fields(plan.outcome, bound=beaten)))
    assert refused.value.where == "new (outcome.bound)"


def test_plans_that_are_best_by_different_things_are_judged_by_their_seconds(solved, tmp_path):
    seconds, dollars, path = solved[STEP_SECONDS], solved["dollars"], job(tmp_path, STEP_SECONDS)
    found = compare(pipeline.solve(path).plan, restate_in_objective(one_by_one(pipeline.solve(path).plan), "dollars"))
    assert at(found, "outcome.step_seconds")[0].category == "regression"
    assert not at(compare(seconds, dollars), "outcome.step_seconds")  # in seconds they are the same


@pytest.mark.slow
def test_best_takes_what_is_best_by_the_objective(tmp_path):
    """What it did not take is worse, by as much in every unit; said as seconds in answers."""
    plans = [pipeline.solve(job(tmp_path / name, name, strategy="best"), QUICK).plan for name in OBJECTIVES]
    for plan in plans:
        loss = OBJECTIVES[plan.outcome.objective].loss
        valued = [other for other in plan.alternatives if other.value]
        more = [loss(other.value) / loss(plan.outcome.value) for other in valued]
        same_numerics = ["changes numerics" not in other.because for other in valued]
        assert any(same_numerics) and min(each for each, same in zip(more, same_numerics, strict=True) if same) >= 1
        said = plan_answer(plan, pipeline.simulate(plan))["alternatives"]
        assert [each["step_seconds"] / plan.prediction.step_seconds for each in said if each["step_seconds"]] == (
            pytest.approx(more)
        )
    assert len({plan.made.strategy for plan in plans}) == 1


def test_dollars_need_what_an_hour_costs(tmp_path):
    with pytest.raises(InputError, match="an hour of a cpu costs") as caught:
        pipeline.solve(job(tmp_path, "dollars", price=""))
    assert "cluster.yaml (ranks)" in caught.value.where and "usd_per_hour" in caught.value.fix


def test_an_unknown_objective_is_refused_and_the_known_ones_listed(tmp_path, solved):
    path = job(tmp_path, "joules")
    for ask in (pipeline.solve, pipeline.predict, pipeline.fits):
        with pytest.raises(InputError, match="no objective is called `joules`") as caught:
            ask(path)
        where = caught.value.where
        assert where.startswith(f"{path}:") and where.endswith(" (objective)")
        assert all(name in caught.value.fix for name in OBJECTIVES)
    plan = solved["dollars"]
    files.write(tmp_path / "plan.yaml", with_fields(plan, outcome=with_fields(plan.outcome, objective="joules")))
    with pytest.raises(InputError, match="joules") as caught:
        pipeline.read_plan(tmp_path / "plan.yaml")
    assert "outcome.objective" in caught.value.where


@pytest.mark.parametrize("name", [name for name in OBJECTIVES if name != STEP_SECONDS])
@pytest.mark.every(2)
def test_verbs_say_the_unit(name, solved, tmp_path):
    plan, path = solved[name], tmp_path / "plan.yaml"
    files.write(path, plan)
    said = OBJECTIVES[name].formatted
    shown = runner.invoke(app, ["show", str(path)]).stdout
    assert said(plan.outcome.value) in shown and said(plan.outcome.bound) in shown
    answered = json.loads(runner.invoke(app, ["show", str(path), "--json"]).stdout)
    assert (answered["objective"], answered["unit"]) == (name, OBJECTIVES[name].unit)
    assert OBJECTIVES[name].gap(answered["value"], answered["bound"]) == pytest.approx(plan.outcome.gap, abs=1e-7)
    page, mean = plan_page(plan, pipeline.simulate(plan)).html(), answered["value"]
    assert said(mean) in page and said(answered["bound"]) in page
