"""`planner simulate`: traces, and a run laid over the simulation with the tasks that explain the difference."""

import json
from dataclasses import replace

import pytest
from hypothesis import given as each_of
from hypothesis import strategies as st
from typer.testing import CliRunner

from planner import files, pipeline
from planner.cli.app import app
from planner.cli.views.measured_difference import ID_COLUMNS, folded
from planner.simulate import TracedStep, build_trace, median_step, read_steps, write_trace
from planner.specs.base import Ranks, with_fields
from planner.specs.inputs import JobOptions
from tests.online.small_jobs import write_job


@pytest.fixture(scope="module")
def plan():
    return pipeline.solve("demo-cpu-4").plan


@pytest.fixture
def path(plan, tmp_path):
    files.write(tmp_path / "plan.yaml", plan)
    return tmp_path / "plan.yaml"


def measured(plan, path, factors=(2.0,), slow=(), named=None):
    """A run that took `factors` times as long in its steps, and half as much again in the tasks of some phases."""
    (score,) = pipeline.simulate(plan)
    steps = []
    for number, factor in enumerate(factors):
        events, extra = [], 0.0
        for e in sorted(score.timeline.events, key=lambda e: e.start):
            more = 0.5 * e.seconds * factor if e.phase in slow else 0.0
            start, end = e.start * factor + extra, e.end * factor + extra + more
            events += [e._replace(start=start, end=end, ranks=Ranks((r,)), cause="") for r in e.ranks]
        timeline = replace(score.timeline, events=tuple(events), step_seconds=max(e.end for e in events))
        steps.append([TracedStep(timeline, score.tasks, "measured", None, 0, number)])
    write_trace(path, build_trace(steps, named or plan.name))
    return path


def invoke(*words):
    return CliRunner().invoke(app, ["simulate", *map(str, words)], env={"COLUMNS": "120"})


@pytest.mark.parametrize("name", ["t.json", "t.json.gz"])
def test_a_trace_holds_the_plan(path, plan, tmp_path, name):
    assert "open it at ui.perfetto.dev" in " ".join(invoke(path, "--trace", tmp_path / name).stdout.split())
    read = median_step(read_steps(tmp_path / name))
    (score,) = pipeline.simulate(plan)
    assert {e.id for e in read.timeline.events} == {t.id for t in score.tasks}
    assert (read.label, read.plan) == ("simulated", plan.name)


@pytest.mark.slow
def test_steps_of_a_plan_are_traced_one_after_the_other(tmp_path):
    plan = pipeline.solve("demo-cpu-4", pipeline.JobOptions(batches=2)).plan
    files.write(tmp_path / "plan.yaml", plan)
    assert "2 steps" in invoke(tmp_path / "plan.yaml", "--trace", tmp_path / "t.json").stdout
    assert [r.step for r in read_steps(tmp_path / "t.json")] == [0, 1]


def test_ranks_that_are_asked_for(path, tmp_path):
    assert "2 of 4 ranks" in invoke(path, "--trace", tmp_path / "t.json", "--trace-ranks", "1-2").stdout
    assert {rank for e in median_step(read_steps(tmp_path / "t.json")).timeline.events for rank in e.ranks} == {1, 2}


@pytest.mark.parametrize("ranks", ["0-4", "3-1", "x", "", "99999999999"])
@pytest.mark.every(3)
def test_ranks_that_there_are_not(path, tmp_path, ranks):
    error = invoke(path, "--trace", tmp_path / "t.json", "--trace-ranks", ranks).exception
    assert error.exit_code == 2 and error.where == "--trace-ranks" and error.fix
    assert not (tmp_path / "t.json").exists()


@pytest.mark.parametrize(("factors", "slow"), [((2.0,), ()), ((1.0, 3.0, 2.0), "B"), ((1.0,), ("F", "sync"))])
def test_columns_add_up_to_the_difference(path, plan, tmp_path, factors, slow):
    done = invoke(path, "--measured", measured(plan, tmp_path / "m.json", factors, slow), "--json")
    assert done.exit_code == 0, done.output
    (step,) = json.loads(done.stdout)["measured"]
    difference = step["measured_seconds"] - step["simulated_seconds"]
    assert step["difference_seconds"] == pytest.approx(difference)
    for lines in (step["kinds"], step["tasks"]):
        assert sum(line["difference"] for line in lines) == pytest.approx(difference, abs=1e-6)
    assert step["steps_measured"] == len(factors) and step["missing"] == []


def test_the_kind_that_was_slower_is_named(path, plan, tmp_path):
    done = invoke(path, "--measured", measured(plan, tmp_path / "m.json", (1.0,), ("B",)), "--json")
    (step,) = json.loads(done.stdout)["measured"]
    worst = max(step["kinds"], key=lambda line: line["difference"])
    assert worst["kind"] == "backward"
    assert all("/B/" in line["task"] for line in step["tasks"] if line["difference"] > 1e-3)


@each_of(st.lists(st.text("ab[0-3],>", min_size=1, max_size=12), min_size=1, max_size=8))
def test_long_ids_are_broken_behind_slashes_alone(pieces):
    id = "/".join(pieces)
    *first, last = folded(id).split("\n")
    assert "".join((*first, last)) == id and all(line.endswith("/") for line in first)
    assert all(len(line) <= ID_COLUMNS or line.count("/") <= 1 for line in (*first, last))


@pytest.mark.slow
def test_another_plans_run_and_no_run_at_all(path, plan, tmp_path):
    (step,) = plan.steps
    other = with_fields(plan, name="other", steps=(with_fields(step, micro_batches=step.micro_batches[::-1]),))
    run = measured(other, tmp_path / "m.json")
    for given in (run, path, tmp_path / "nowhere.json", tmp_path):
        done = invoke(path, "--measured", given, "--trace", tmp_path / "t.json")
        assert done.exception.exit_code == 2 and done.exception.fix
        assert not (tmp_path / "t.json").exists()
    assert "another plan" in invoke(path, "--measured", run).exception.message


@pytest.mark.slow
def test_what_a_run_wrote_is_laid_over_its_plan(tmp_path):
    """Through real processes: every task of the plan was measured, under its own name."""
    path = tmp_path / "plan.yaml"
    files.write(path, pipeline.solve(str(write_job(tmp_path, "ahead", rows=6)), JobOptions(effort=1)).plan)
    words = ["run", str(path), "--steps", "3", "--no-ledger", "--trace", str(tmp_path / "m.json")]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert [r.run_step for r in read_steps(tmp_path / "m.json")] == [0, 1, 2]
    (step,) = json.loads(invoke(path, "--measured", tmp_path / "m.json", "--json").stdout)["measured"]
    assert step["missing"] == [] and step["steps_measured"] == 3
    assert sum(line["difference"] for line in step["kinds"]) == pytest.approx(step["difference_seconds"], abs=1e-6)
    assert step["measured_seconds"] == pytest.approx(sum(line["measured"] for line in step["kinds"]), abs=1e-6)


def test_overlap_is_switched(path):
    """Without it a step takes longer, and the figures say what they are of."""
    result, off = (invoke(path, *more, "--json") for more in ((), ("--overlap", "dp=off,pp=on")))
    as_priced, switched = (json.loads(each.stdout) for each in (result, off))
    assert switched["step_seconds"] >= as_priced["step_seconds"]
    assert switched["overlap"] == {"pp": True, "dp": False} and "overlap" not in as_priced


def test_ranks_of_no_trace_are_refused(path):
    done = invoke(path, "--trace-ranks", "0-1")
    assert done.exit_code != 0 and "no trace is asked for" in str(done.exception)
