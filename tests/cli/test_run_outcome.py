"""What `planner run` says when a run is over, and how it ends."""

import json
import shlex
import signal
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from planner import pipeline
from planner.cli.app import app, exit_on_signal
from planner.errors import InputError, RunFailed
from planner.files import write
from planner.ledger import KindSeconds
from planner.ledger.compared_run import ComparedRun
from planner.runtime.parity.parity_tolerance import PARITY_TOLERANCES
from planner.runtime.run_options import Progress
from planner.runtime.run_result import ParityErrors
from planner.workflows import tracing
from tests.plans import sharded_plan

runner = CliRunner()
PLAN = sharded_plan(2, [[(0, 2)]])


def ran(**facts):
    given = {
        "plan": PLAN, "machine": "here", "losses": (2.0,), "tokens_per_second": 1.0, "step_seconds": 1.0,
        "predicted_step_seconds": 0.5,
        "kinds": [KindSeconds("forward", 0.5, 1.0), KindSeconds("exchange between stages", 0.0, 0.0)],
        "timelines": (), "traced": (), "plannings": (), "verified": None,
    }  # fmt: skip
    return ComparedRun(**given | facts)


@pytest.fixture
def outcome(tmp_path, monkeypatch):
    """Run with these options, of which this came, or which did this."""
    write(tmp_path / "plan.yaml", PLAN)
    monkeypatch.setenv("COLUMNS", "200")

    def invoke(result, *options):
        def run(plan, options, on_progress, job, devices):
            return result(on_progress) if callable(result) else result

        monkeypatch.setattr(pipeline, "run", run)
        return runner.invoke(app, ["run", str(tmp_path / "plan.yaml"), "--no-ledger", *options])

    return invoke


def verified(error):
    return {
        "verified": ParityErrors(2, 7, error, 2 * error, "llm.head.weight"),
        "tolerance": PARITY_TOLERANCES["float64"],
    }


def test_a_run_beyond_its_bound_is_reported_and_fails(outcome):
    done = outcome(ran(**verified(1e-3)))
    assert isinstance(done.exception, RunFailed) and done.exception.exit_code == 5
    said = " ".join(done.stdout.split())
    assert "differs from one process: loss to 1.0e-03, gradients to 2.0e-03 (relative)" in said
    assert "worst in llm.head.weight" in said and "same as one process" not in said and "loss 2.0000" in said


def test_json_says_all_of_the_check(outcome):
    for error, same in ((1e-3, False), (1e-14, True), (float("inf"), False)):
        done = outcome(ran(**verified(error)), "--json")
        assert isinstance(done.exception, RunFailed) != same
        shown = None if error == float("inf") else error
        assert json.loads(done.stdout)["verify"] == {
            "loss_rel_err": shown, "grad_rel_err": shown and 2 * shown, "worst": "llm.head.weight",
            "steps": 2, "items": 7, "within": same,
        }  # fmt: skip


def never(on_progress):
    raise AssertionError("it was launched")


def test_outputs_that_cannot_be_written_are_refused_before_the_run(outcome, tmp_path):
    for options, says in (
        ([f"--trace={tmp_path}"], "this is a folder"),
        ([f"--trace={tmp_path}/plan.yaml/t.json"], "cannot make the folder"),
        ([f"--trace={tmp_path}/x", f"--metrics={tmp_path}/y/../x"], "name the same file"),
    ):
        done = outcome(never, *options)
        assert isinstance(done.exception, InputError) and says in done.exception.message, done.exception


def test_memory_of_a_cpu_is_refused_before_anything_is_said_to_start(outcome, tmp_path):
    done = outcome(never, f"--memory-snapshot={tmp_path}/seen")
    assert isinstance(done.exception, InputError) and done.exception.where == "--memory-snapshot"
    assert not done.output


@pytest.mark.parametrize(
    ("ended", "before", "steps", "goes_on"),
    [
        ("time", 0, 9, "--steps 9"), ("interrupt", 40, 60, "--steps 60"),
        ("steps", 0, None, "--steps MORE"), ("steps", 40, 42, "--steps MORE"),
    ],
)  # fmt: skip
def test_what_was_saved_and_how_it_goes_on(outcome, tmp_path, ended, before, steps, goes_on):
    options = [f"--save={tmp_path}/sv", *([f"--steps={steps}"] if steps else [])]
    said = outcome(ran(losses=(2.0, 1.0), stop_reason=ended, steps_before=before), *options).stdout
    assert f"after {before + 2} steps; to resume:" in said.replace("\n", " ")
    command = f"planner run {tmp_path}/plan.yaml --resume {tmp_path}/sv --save {tmp_path}/sv {goes_on}"
    assert f"\n  {command}\n" in said  # in one line, to be copied
    assert ("resumed from step 40" in said) == (before == 40)


@pytest.mark.parametrize(
    "options",
    [
        ["--learning-rate=1e-5", "--schedule=cosine", "--warmup=3", "--clip=0.3", "--betas", "0.8", "0.95"],
        ["--weight-decay=0.3", "--seed=7", "--dtype=float64", "--max-time=1h30m", "--hang-after=1m"],
        ["--save-every=2", "--keep=3", "--keep-every=8"],
        [
            "--data={}/some data",
            "--metrics={}/m.jsonl",
            "--weights={}/w",
            "--verify",
            "--allow-different=norm_eps",
        ],
    ],
)
def test_the_command_that_resumes_repeats_every_option(tmp_path, monkeypatch, options):
    heard = []

    def run(plan, options, on_progress, job, devices):
        heard.append(options)
        return ran(losses=(2.0, 1.0), stop_reason="terminate")

    monkeypatch.setattr(pipeline, "run", run)
    write(tmp_path / "plan.yaml", PLAN)
    monkeypatch.chdir(tmp_path)
    first = ["plan.yaml", "--steps=9", "--save=sv", "--no-ledger", *(each.format(tmp_path) for each in options)]
    said = runner.invoke(app, ["run", *first])
    assert said.exit_code == 143, said.output
    (command,) = [line for line in said.stdout.splitlines() if line.startswith("  planner run")]
    assert "--resume sv --save sv" in command  # from the working folder
    runner.invoke(app, [*shlex.split(command)[1:], "--no-ledger"])
    asked, again = heard
    assert again == replace(asked, verify=False, weights=None, allow_different=())


def test_a_schedule_that_is_over_is_not_gone_on_with(outcome, tmp_path):
    said = outcome(ran(losses=(2.0, 1.0)), "--steps=2", "--schedule=cosine", f"--save={tmp_path}/sv").stdout
    assert "the last of its cosine schedule" in said.replace("\n", " ") and "to resume" not in said


def test_a_trace_that_fails_late_costs_no_result(outcome, tmp_path, monkeypatch):
    def full(path, ran):
        raise InputError("cannot write: No space left on device", where=str(path))

    monkeypatch.setattr(tracing, "write_measured_trace", full)
    done = outcome(ran(), f"--trace={tmp_path}/t.json")
    assert isinstance(done.exception, InputError) and "No space" in done.exception.message
    assert "loss 2.0000" in done.stdout and "trace written" not in done.stdout


@pytest.mark.parametrize(("steps", "says"), [(0, "interrupted before the first step"), (1, "is not reported")])
def test_somebody_who_ends_a_run_at_once_is_told_so(outcome, steps, says):
    def end(on_progress):
        for step in range(steps):
            on_progress(Progress(step + 1, 9, 1.0, 8, 0.1))
        exit_on_signal(signal.SIGINT, None)

    done = outcome(end)
    assert done.exit_code == 130 and says in done.output and len(done.output.splitlines()) == 1
