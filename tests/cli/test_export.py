"""`planner export` and `planner import`: files, what they say, and what they refuse."""

import json

import pytest
from typer.testing import CliRunner

from planner import files
from planner.cli.app import app
from planner.errors import InputError
from planner.plan.plan_file import Plan
from tests.plan.schedules.made import ordered_plan
from tests.scoring.priced import priced


@pytest.fixture
def plans(tmp_path):
    """Paths of a plan with ZB-H1, of one with micro-batches in another order, and of one with 1F1B."""
    orders = {"zb": "zb_h1", "mixed": ("F1 F0 B1 B0", "F1 B1 F0 B0"), "plain": "1f1b"}
    for name, order in orders.items():
        files.write(tmp_path / f"{name}.yaml", priced(ordered_plan(2, 2, order)))
    return {name: str(tmp_path / f"{name}.yaml") for name in orders}


def invoke(*words):
    return CliRunner().invoke(app, [*map(str, words)])


def test_there_and_back(tmp_path, plans):
    out, new = tmp_path / "zb.csv", tmp_path / "new.yaml"
    assert invoke("export", plans["zb"], "--to", "torch-csv", "-o", out).exit_code == 0
    assert out.read_text() == "0F0,0F1,0I0,0W0,0I1,0W1\n1F0,1I0,1F1,1I1,1W0,1W1\n"
    done = invoke("import", "torch-csv", out, "--into", plans["plain"], "-o", new, "--json")
    said, plan = json.loads(done.stdout), files.read(new, Plan)
    assert plan.steps[0].order == {"llm": ("F0 F1 I0 W0 I1 W1", "F0 I0 F1 I1 W0 W1")}
    assert (said["strategy"], said["value"]) == ("torch-csv", plan.outcome.value)
    assert invoke("simulate", new).exit_code == 0


def test_new_numbers_are_said(tmp_path, plans):
    done = invoke("export", plans["mixed"], "--to", "torch-csv", "-o", tmp_path / "m.csv")
    assert "are the plan's 1, 0" in done.stdout
    done = invoke("export", plans["mixed"], "--to", "torch-csv", "-o", tmp_path / "m.csv", "--json")
    assert json.loads(done.stdout)["micro_batches"] == [1, 0]


def test_nothing_is_written_of_what_is_refused(tmp_path, plans):
    (tmp_path / "bad.csv").write_text("0F1,0F0,0B0,0B1\n1F1,1F0,1B0,1B1\n")
    done = invoke("import", "torch-csv", tmp_path / "bad.csv", "--into", plans["plain"], "-o", tmp_path / "new.yaml")
    assert isinstance(done.exception, InputError) and "micro-batch 1 forward before" in done.exception.message
    assert done.exception.where == f"{tmp_path / 'bad.csv'}:1"
    done = invoke("export", plans["zb"], "--to", "elsewhere", "-o", tmp_path / "x.csv")
    assert isinstance(done.exception, InputError)
    assert not (tmp_path / "new.yaml").exists() and not (tmp_path / "x.csv").exists()
