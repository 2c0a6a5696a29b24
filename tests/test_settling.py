"""Layouts that predictions cannot tell apart are trained in turn, and the quickest is named."""

import json

import pytest
from typer.testing import CliRunner

from planner import files, pipeline
from planner.cli.app import app
from planner.cli.views.settling_tables import settling_answer, verdict
from planner.errors import InputError
from planner.online import inputs_of_plan
from planner.plan.legal.plan_laws import violations
from planner.specs.base import with_fields
from planner.workflows import settling
from planner.workflows.settling import Contender, MeasuredContender, SettledOrder

JOB = """
format: planner.job/1
name: tied
model: {model}
cluster: {cluster}
profile: cpu
workload: {{lengths: {{from: fixed, tokens: 64}}, batch_rows: 8, max_tokens: 64}}
strategy: parallel_search
layout: {{dtype: float32, pp: 1, recompute: none}}
"""
MODEL = """
format: planner.model/1
name: small
source: made up
modules:
  llm: {kind: decoder, layers: 2, hidden: 64, heads: 4, ffn: 128, vocab: 256}
"""
CLUSTER = """
format: planner.cluster/1
name: two
nodes: 1
gpus: 2xcpu
"""


@pytest.fixture
def tied(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    (tmp_path / "model.yaml").write_text(MODEL)
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    (tmp_path / "job.yaml").write_text(JOB.format(model="model.yaml", cluster="cluster.yaml"))
    plan = pipeline.solve(str(tmp_path / "job.yaml")).plan
    files.write(tmp_path / "plan.yaml", plan)
    return tmp_path / "plan.yaml"


@pytest.mark.slow
def test_ties_are_trained_in_turn(tied, monkeypatch):
    monkeypatch.setattr(settling, "SETTLING_ROUNDS", 1)
    asked = CliRunner().invoke(app, ["profile", "--settle", str(tied), "--json"])
    assert asked.exit_code == 0, asked.output
    answer = json.loads(asked.stdout)
    plan, *ties = sorted(answer["contenders"], key=lambda each: each["plan"] != str(tied))
    assert plan["plan"] == str(tied) and ties
    assert answer["best"] == min(answer["contenders"], key=lambda each: each["measured_seconds"])["plan"]
    for each in ties:
        again = pipeline.read_plan(each["plan"])
        assert not violations(again) and again.layouts != pipeline.read_plan(tied).layouts
        assert each["predicted_seconds"] == again.prediction.step_seconds
        assert inputs_of_plan(again, tied.parent)  # its job is beside it
    runs = json.loads(CliRunner().invoke(app, ["ledger", "--json"]).stdout)
    assert sum(each["runs"] for each in runs["drift"]) == len(answer["contenders"])


def test_a_plan_without_ties_and_other_options_are_refused(tied):
    plan = pipeline.read_plan(tied)
    files.write(tied, with_fields(plan, alternatives=()))
    with pytest.raises(InputError, match="no alternative is so close"):
        settling.settle(tied)
    assert not [*tied.parent.glob("*.tie-*")]
    for words in (
        ["small", "--settle", str(tied)],
        ["--settle", str(tied), "--quick"],
        ["--settle", str(tied), "-o", "x"],
        [],
    ):
        assert CliRunner().invoke(app, ["profile", *words]).exit_code != 0


def test_an_order_is_clear_where_no_run_of_another_is_as_quick(tied):
    plan = pipeline.read_plan(tied)

    def order(*seconds):
        return SettledOrder(
            tuple(
                MeasuredContender(Contender(f"{at}", tied.with_name(f"{at}.yaml"), plan), each)
                for at, each in enumerate(seconds)
            )
        )

    clear, near = order((1.0, 1.1, 1.2), (1.3, 1.25)), order((1.0, 1.1, 1.2), (1.15, 1.3))
    assert clear.is_clear and not near.is_clear
    assert "settled" in verdict(clear) and "still a tie" in verdict(near)
    assert settling_answer(near)["settled"] is False
