"""What `planner run` is told about training, as people say it."""

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from planner import pipeline
from planner.cli.app import app
from planner.cli.options import DtypeName, optional_duration
from planner.errors import InputError
from planner.files import write
from planner.runtime import TrainingOptions
from planner.runtime.__main__ import parser
from planner.specs.run_option_help import OPTION_HELP
from tests.plans import sharded_plan

runner = CliRunner()


class Told(Exception):
    """What the run would have been told."""


@pytest.fixture
def plan(tmp_path, monkeypatch):
    def run(plan, options, on_progress, job, devices):
        raise Told(options)

    monkeypatch.setattr(pipeline, "run", run)
    monkeypatch.setattr("planner.runtime.require_quick_checks", lambda plan, options: None)
    monkeypatch.setattr("planner.runtime.resolve_resume", lambda options: options)
    write(tmp_path / "plan.yaml", sharded_plan(2, [[(0, 2)]]))
    return tmp_path / "plan.yaml"


def test_torchrun_takes_the_same_options_in_the_same_words():
    verb = typer.main.get_command(app).commands["run"].params
    theirs = {action.option_strings[-1]: action for action in parser()._actions if action.option_strings}
    ours = {param.opts[-1]: param for param in verb if param.opts[-1] in theirs} | {"--help": None}
    assert theirs.keys() == ours.keys()
    for name in OPTION_HELP.keys() - {"dtype", "seed"}:
        flag = f"--{name.replace('_', '-')}"
        assert theirs[flag].help == ours[flag].help == OPTION_HELP[name]
    assert [*theirs["--dtype"].choices] == [each.value for each in DtypeName]


@pytest.mark.parametrize(("steps", "says"), [(5, "the learning rate reaches only 5.0 % of its peak"), (100, "")])
def test_a_warm_up_that_is_longer_than_the_run_is_remarked(plan, steps, says):
    said = runner.invoke(app, ["run", str(plan), "--warmup=100", f"--steps={steps}"], env={"COLUMNS": "200"}).stderr
    assert says in said and bool(says) == bool(said)


def test_shares_that_nobody_sees_to_are_remarked(plan):
    shared = Path(__file__).parents[1] / "golden/by_hand/shared-devices/plan.yaml"
    said = {path: runner.invoke(app, ["run", str(path)], env={"COLUMNS": "200"}).stderr for path in (shared, plan)}
    assert (
        said[shared]
        == "shares of devices are not enforced here: tasks run one after the other, each on its whole device\n"
    )
    assert said[plan] == ""


def told(plan, *options):
    result = runner.invoke(app, ["run", str(plan), *options])
    assert isinstance(result.exception, Told), result.output
    return result.exception.args[0]


def test_every_option_arrives(plan, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    options = told(
        plan, "--learning-rate=0.5", "--schedule=cosine", "--warmup=3", "--clip=2", "--betas", "0.8", "0.9",
        "--weight-decay=0.3", "--max-time=1h30m", "--metrics=m.jsonl", "--memory-snapshot=seen",
        "--features=kept",
    )  # fmt: skip
    assert options.training == TrainingOptions(0.5, "cosine", 3, 2.0, (0.8, 0.9), 0.3)
    assert options.max_seconds == 5400
    assert options.metrics == tmp_path / "m.jsonl"
    assert options.memory_snapshot == tmp_path / "seen"
    assert options.features == tmp_path / "kept"


def test_without_options_training_is_as_usual(plan):
    options = told(plan)
    assert (options.training, options.max_seconds, options.metrics) == (TrainingOptions(), None, None)
    assert options.memory_snapshot is None


def test_folders_of_checkpoints_arrive_from_where_the_run_was_started(plan, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    options = told(plan, "--save=out", "--save-every=3", "--resume=in")
    assert (options.save, options.save_every, options.resume) == (tmp_path / "out", 3, tmp_path / "in")
    options = told(plan)
    assert (options.save, options.save_every, options.resume) == (None, None, None)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("10m", 600), ("1h30m", 5400), ("1.5h", 5400), ("2d", 172800), ("45", 45)]
)
def test_durations(text, seconds):
    assert optional_duration(text, "--max-time") == seconds


@pytest.mark.parametrize("text", ["", "soon", "10 minutes", "30m1h", "-5s", "m"])
def test_what_is_no_duration_is_refused_by_name(text):
    with pytest.raises(InputError) as refused:
        optional_duration(text, "--max-time")
    assert refused.value.where == "--max-time" and refused.value.fix
