"""What `planner predict` and `planner show` say of experts."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from planner import files
from planner.cli.app import app
from planner.plan.plan_file import Plan
from planner.scoring import expert_answers
from planner.specs.base import with_fields
from planner.specs.framework.knobs import Knobs
from planner.specs.framework.software import Framework

PLAN = Path(__file__).parents[1] / "golden/by_hand/experts-by-layer/plan.yaml"


def said(verb: str, plan: Path, *words: str) -> str:
    done = CliRunner().invoke(app, [verb, str(plan), *words])
    assert done.exit_code == 0, done.output
    return done.stdout


def with_counts(tmp_path: Path, counts: tuple[tuple[float, ...], ...]) -> Path:
    """The plan with counts of tokens per expert."""
    plan = files.read(PLAN, Plan)
    module = plan.uses.models["llm"]
    counted = with_fields(module, moe=with_fields(module.moe, counts=counts))
    path = tmp_path / "plan.yaml"
    files.write(path, with_fields(plan, uses=with_fields(plan.uses, models={"llm": counted})))
    return path


@pytest.mark.parametrize("verb", ["predict", "show"])
def test_each_placement_is_told_with_its_load_and_a_warning_where_the_exchange_binds(verb):
    first, gathered, whole = json.loads(said(verb, PLAN, "--json"))["experts"]
    assert [each["layers"] for each in (first, gathered, whole)] == ["0-1", "2", "3"]
    assert first["load"]["source"] == "assumed"
    assert first["ratio"] < 1.0 < whole["ratio"]
    assert gathered["dispatch"] == "all_gather" != gathered["cheapest_dispatch"]
    text = " ".join(said(verb, PLAN).split())
    assert "(assumed)" in text
    assert text.count("tokens travel for longer than experts compute") == 2


def test_counts_make_the_load_measured_the_step_longer_and_the_interval_narrower(tmp_path):
    even, uneven = (
        with_counts(tmp_path / name, (row,)) for name, row in (("a", (1.0,) * 8), ("b", (9.0, *(1.0,) * 7)))
    )
    assumed, same, longer = (json.loads(said("predict", plan, "--json")) for plan in (PLAN, even, uneven))
    assert same["experts"][0]["load"] == {"mean": 1.0, "spread": 0.0, "source": "measured"}
    assert longer["experts"][0]["load"]["mean"] == pytest.approx(10 / 4)
    assert same["step_seconds"] == pytest.approx(assumed["step_seconds"])
    assert same["step_seconds"] < longer["step_seconds"]
    widths = [each["interval_seconds"][1] / each["step_seconds"] for each in (assumed, same)]
    assert widths[1] < widths[0]


@pytest.mark.parametrize("kinds", [("all_to_all",), ("all_to_all", "node_level"), ("all_gather",)])
def test_no_dispatch_is_offered_that_the_software_cannot_launch(kinds):
    """Of all there is the cheapest; of a framework's own the cheapest of these, or the plan's."""
    plan = files.read(PLAN, Plan)
    software = with_fields(plan.uses.software, knobs=Knobs(dispatch=kinds))
    free, bound = (with_fields(plan, uses=with_fields(plan.uses, software=each)) for each in (Framework(), software))
    for any_kind, own in zip(expert_answers(free), expert_answers(bound), strict=True):
        assert own.cheapest_dispatch in (*kinds, own.dispatch)
        assert own.cheapest_dispatch == any_kind.cheapest_dispatch or any_kind.cheapest_dispatch not in kinds
