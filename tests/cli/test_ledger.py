"""`planner ledger`: published rows, runs of one's own, and input that is neither."""

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from planner import files
from planner.cli.app import app
from planner.cli.views import own_run_tables
from planner.ledger.accuracy import FIGURE_KEYS
from planner.ledger.compared_run import ComparedRun
from planner.ledger.run_ledger import append_entry, default_path, read_entries
from planner.pipeline import solve
from planner.workflows.evidence import record_run
from tests.ledger.made_predictions import case, perfect, skipped
from tests.ledger.test_run_ledger import ENTRY

CASES = [case(at, source="ab"[at % 2], seconds=float(at), micro_batch=at) for at in range(2, 10)]
LEFT = [skipped(20, "c", "unreadable number", "tp: x")]


@pytest.fixture
def rows(monkeypatch, tmp_path):
    """A folder of rows, and a predictor that is a tenth too slow."""
    monkeypatch.setattr("planner.published.predict_cases", lambda cases: perfect(cases, 1.1))
    monkeypatch.setattr("planner.ledger.accuracy.read_published", lambda directory: (CASES, LEFT))
    return tmp_path


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


def invoke(*words):
    return CliRunner().invoke(app, ["ledger", *map(str, words)])


def test_figures_by_source(rows):
    done = invoke(rows, "--json")
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    assert [*said] == ["overall", "sources", "after_one_run"]
    assert [*said["sources"]] == ["a", "b", "c"]
    assert all([*figures] == [*FIGURE_KEYS] for figures in (said["overall"], *said["sources"].values()))
    assert said["overall"]["time_median_error"] == pytest.approx(0.1)
    assert said["overall"]["spearman_median"] == pytest.approx(1)
    assert said["sources"]["c"] == {
        **dict.fromkeys(FIGURE_KEYS),
        "rows_used": 0,
        "rows_defaulted": 0,
        "rows_skipped": {"unreadable number": 1},
        "oom_recall": [0, 0],
        "oom_precision": [0, 0],
    }


@pytest.mark.parametrize("words", [("--source", "z"), ("--source", "")])
def test_a_source_that_there_is_not(rows, words):
    error = invoke(rows, *words).exception
    assert error.exit_code == 2
    assert "a, b, c" in error.fix


def test_what_is_no_folder(tmp_path):
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "nowhere"):
        assert invoke(path).exception.exit_code == 2


def test_a_folder_without_such_rows(rows, monkeypatch):
    whole = replace(LEFT[0], origin=replace(LEFT[0].origin, line=1))
    for left in ([], [whole]):
        monkeypatch.setattr("planner.ledger.accuracy.read_published", lambda directory, left=left: ([], left))
        assert invoke(rows).exception.exit_code == 2


def test_drift_of_ones_own_runs():
    for seconds in (2.0, 2.0, 3.0):
        append_entry(default_path(), replace(ENTRY, measured_seconds=seconds))
    with default_path().open("a") as out:
        out.write("{")
    done = invoke("--rows")
    assert "drifted" in done.stdout
    assert ENTRY.digest in done.stdout
    said = json.loads(invoke("--json", "--rows").stdout)
    (one,) = said["drift"]
    assert (one["runs"], one["before"], one["drifted"], one["last"]["ratio"]) == (3, 1.0, True, 1.5)
    assert [line["line"] for line in said["unread"]] == [4]


@pytest.fixture(scope="module")
def ran():
    plan = solve("demo-cpu-4").plan
    return ComparedRun(plan, "here", (2.0, 1.0), 1e3, 1.5, 1.4, list(ENTRY.kinds), (), (), (), None, 12345)


def test_a_run_is_noted(ran):
    assert record_run(ran) == default_path()
    (entry,), unread = read_entries(default_path())
    assert not unread
    assert (entry.plan, entry.machine, entry.steps, entry.kinds) == (ran.plan.name, "here", 2, ENTRY.kinds)
    assert (entry.predicted_seconds, entry.measured_seconds, entry.spread) == (1.4, 1.5, ran.plan.prediction.spread)
    assert entry.measured_peak_bytes == 12345
    assert "here" in invoke().stdout


def test_a_ledger_that_cannot_be_written_costs_nobody_the_run(ran, tmp_path, monkeypatch, capsys):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "file"))
    own_run_tables.add_to_ledger(ran)
    assert "not added to the ledger" in capsys.readouterr().err


def test_run_notes_what_it_ran_unless_told_not_to(ran, tmp_path, monkeypatch):
    monkeypatch.setattr("planner.cli.verbs.run.require_torch", lambda verb: None)
    monkeypatch.setattr("planner.pipeline.run", lambda *_: ran)
    files.write(tmp_path / "plan.yaml", ran.plan)
    for words, runs in ((["--no-ledger"], 0), ([], 1), (["--json"], 2)):
        done = CliRunner().invoke(app, ["run", str(tmp_path / "plan.yaml"), *words])
        assert done.exit_code == 0, done.output
        entries, _ = read_entries(default_path())
        assert len(entries) == runs
    assert {entry.digest for entry in entries} == {files.digest(tmp_path / "plan.yaml")}
