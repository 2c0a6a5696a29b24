"""Stored decisions about instances of a server: illegal where they are false, drift where prices changed since."""

from pathlib import Path

import pytest

from planner import files
from planner.check.actions_case import actions_findings
from planner.check.finding import Tolerances
from planner.specs.base import with_fields
from planner.specs.serving_actions import ServingActionsFile

GOLDEN = Path(__file__).parents[1] / "golden" / "serving" / "images-then-long-prompts" / "actions.yaml"


@pytest.mark.parametrize(("prices", "category"), [(None, "illegal"), ("0123456789abcdef", "drift")])
@pytest.mark.every(2)
def test_another_outcome_is_a_drift_only_at_other_prices(tmp_path, prices, category):
    stored = files.read(GOLDEN, ServingActionsFile)
    changed = with_fields(stored, outcome=with_fields(stored.outcome, mean_first_s=0.5))
    path = tmp_path / "actions.yaml"
    files.write(path, with_fields(changed, prices=prices or stored.prices))
    found = [*actions_findings(path, Tolerances())]
    assert {each.category for each in found} == {category}
    assert "outcome.mean_first_s" in {each.where for each in found}
