"""A plan names the folder of its steps, which is emptied before a run: it is beside the plan, or nothing is touched."""

import os
import sys

import pytest

from planner import files
from planner.online.__main__ import main
from planner.plan.plan_file import FollowingSteps
from planner.plan.step_files import step_folder
from planner.specs.base import with_fields
from tests.runtime.training_worlds import spread
from tests.typed import typed

PLAN = spread(2, dp=2, zero=1, rows=[[(0,), (1,)]] * 2)
VICTIMS = ["2019", "2020", "2021", "taken/1"]


@pytest.fixture
def home(tmp_path):
    """A folder with a plan, beside one that looks as if it held steps."""
    for name in VICTIMS:
        (tmp_path / "victim" / name).mkdir(parents=True)
        (tmp_path / "victim" / name / "mine").touch()
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "link").symlink_to("../victim")
    return tmp_path / "home"


@pytest.mark.parametrize("folder", ["../victim", "link", "ABSOLUTE", "."])
def test_a_folder_elsewhere_ends_the_run_before_it_begins(home, monkeypatch, capsys, folder):
    folder = str(home.parent / "victim") if folder == "ABSOLUTE" else folder
    files.write(home / "plan.yaml", with_fields(PLAN, then=FollowingSteps(folder=folder, batches=3)))
    monkeypatch.setattr(sys, "argv", ["planner.online", str(home / "plan.yaml")])
    done = typed("planner run plan.yaml --no-ledger", home)
    for code, errors in ((done.code, done.errors), (main(), capsys.readouterr().err)):
        assert (
            code == 2 and f"error: `{folder}` leads out of" in errors and "(then.from)" in errors and "fix:" in errors
        )
    assert "plan.yaml:" in done.errors.split("at ", 1)[1]
    kept = [path for path in (home.parent / "victim").rglob("*") if path.is_file()]
    assert len(kept) == len(VICTIMS) and sorted(os.listdir(home)) == ["link", "plan.yaml"]


def test_a_folder_beside_the_plan_is_its_own(tmp_path):
    plan = with_fields(PLAN, then=FollowingSteps(folder="steps/of-this", batches=3))
    assert step_folder(plan, tmp_path, "plan.yaml") == tmp_path / "steps" / "of-this"
    assert step_folder(PLAN, tmp_path, "plan.yaml") is None
