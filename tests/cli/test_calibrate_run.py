"""`planner calibrate PLAN`: one run, typed or recorded, and what cannot be told from it."""

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from planner import pipeline
from planner.cli.app import app
from planner.errors import InputError
from planner.ledger.run_ledger import append_entry, default_path
from planner.workflows.evidence import plan_digest
from tests.ledger.test_run_ledger import ENTRY

PLAN = "tests/golden/pipeline_order/llama-3-8b-h100x8/plan.yaml"


@pytest.fixture
def calibrate(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    return lambda *words: CliRunner().invoke(app, ["calibrate", PLAN, *words])


@pytest.mark.soak
def test_a_run_that_was_typed_moves_the_prediction_and_is_written(calibrate, tmp_path):
    answer = json.loads(calibrate("--measured", "3s", "--json", "-o", str(tmp_path / "mine")).stdout)
    assert answer["predicted_seconds"] < answer["predicted_after_seconds"] < answer["measured_seconds"] == 3.0
    assert [*map(str, sorted((tmp_path / "mine").rglob("*.yaml")))] == sorted(answer["written"])


@pytest.mark.soak
def test_a_recorded_run_is_the_same_as_a_typed_one(calibrate):
    digest = plan_digest(pipeline.read_plan(PLAN))
    append_entry(default_path(), replace(ENTRY, digest=digest, measured_seconds=2.0))
    typed, recorded = (
        json.loads(calibrate(*words, "--json").stdout) for words in (("--measured", "2s"), ("--from-run",))
    )
    assert typed == recorded


@pytest.mark.parametrize(
    "words",
    [(), ("--measured", "soon"), ("--measured", "0"), ("--measured", "2s", "--from-run"), ("--from-run",),
     ("--measured", "2s", "--device", "h100-80gb"), ("--measured", "2s", "--leave-out", "each")],
)  # fmt: skip
def test_what_tells_nothing_is_refused_with_a_fix(calibrate, words):
    refused = calibrate(*words)
    assert isinstance(refused.exception, InputError) and refused.exception.fix


@pytest.mark.parametrize(
    ("words", "what"),
    [(("--measured", "2s"), "a run is of a plan"), (("--from-run",), "a run is of a plan"), ((), "no CSV")],
)
def test_a_folder_is_refused_by_what_is_asked_of_it(tmp_path, words, what):
    refused = CliRunner().invoke(app, ["calibrate", str(tmp_path), *words])
    assert isinstance(refused.exception, InputError) and what in str(refused.exception)
