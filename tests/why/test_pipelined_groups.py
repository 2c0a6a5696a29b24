"""Where groups of a pipeline exchange: on each stage by itself, whatever nodes its stages are on."""

import pytest

from planner import pipeline
from planner.scoring import score
from planner.why.step_facts import step_facts
from tests.static_jobs import small_cluster, static_job


@pytest.mark.parametrize(
    ("fixed", "crosses"),
    [
        ("tp: 4, cp: 1, pp: 2, micro_batch: 1", False),  # each stage on a node of its own
        ("tp: 4, cp: 1, pp: 1, micro_batch: 1", False),
        ("tp: 8, cp: 1, pp: 1, micro_batch: 1", True),
    ],
)
@pytest.mark.every(3)
def test_only_exchanges_of_a_stage_over_nodes_cross_them(tmp_path, fixed, crosses):
    cluster = small_cluster(tmp_path, "h100-80gb", 8, per_node=4)
    plan = pipeline.solve(static_job(tmp_path, "llama-3-8b", cluster, (4096,) * 16, fixed, "zero: 1")).plan
    facts = step_facts(plan, score(plan))
    assert (facts.exchange_across > 0) == crosses
    assert (facts.exchange_within > 0) != crosses
    assert (facts.crossing_groups > 0) == crosses
