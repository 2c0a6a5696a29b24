"""What stands beside the share that was measured: what was not asked of the table, and what no table says."""

from pathlib import Path

import pytest

from planner import files, pipeline
from planner.cli.views.plan_tables import extrapolation_notes, price_sources, widest_collective
from planner.plan.plan_file import Plan
from planner.specs import library
from planner.specs.base import with_fields
from planner.specs.hardware.profile import CollectiveCosts, CollectivePoint, ModuleCosts, PassCosts, PassFit, Profile
from tests.plans import sharded_plan, staged_plan
from tests.static_jobs import static_job

GOLDEN = Path(__file__).parents[1] / "golden"
SHARDED = sharded_plan(4, [[(0, 4)], [(0, 2), (2, 2)]])


def with_points(plan: Plan, *ranks: int) -> Plan:
    points = tuple(CollectivePoint(ranks=count, gb_per_s=1.0, latency_us=5.0) for count in ranks)
    tables = {"all_gather": CollectiveCosts(source="fitted", spread=0.1, points=points)}
    return with_fields(plan, uses=with_fields(plan.uses, prices=with_fields(plan.uses.prices, collectives=tables)))


@pytest.mark.parametrize(("measured", "said"), [((2,), 1), ((2, 4), 0), ((2, 8), 0)])
def test_groups_wider_than_any_that_was_measured_are_told(measured, said):
    notes = [*extrapolation_notes(with_points(SHARDED, *measured))]
    assert len(notes) == said
    assert all(f"over {max(measured)} ranks, the plan has groups of 4" in note for note in notes)


def test_stages_of_a_pipeline_are_in_no_collective_together():
    assert widest_collective(SHARDED) == 4
    assert widest_collective(staged_plan(4, 4)) == 1


@pytest.mark.parametrize(
    ("model", "cluster", "source"), [("tiny-decoder", "cpu-4", "analytic"), ("llama-3-8b", "h100x64", "published")]
)
def test_a_static_layout_says_whose_rates_price_it(tmp_path, model, cluster, source):
    job = static_job(tmp_path, model, cluster, (64,) * 64, "tp: 2, pp: 1, cp: 1, micro_batch: 1", "recompute: none")
    assert f"nothing measured; prices of modules: {source} (" in price_sources(pipeline.solve(job).plan)


@pytest.mark.parametrize("measured", [True, False])
def test_what_was_measured_of_a_module_prices_its_static_layouts_too(tmp_path, measured):
    passes = PassCosts(forward=PassFit(ms=1.0), backward=PassFit(ms=2.0), activation_kib_per_token=1.0)
    costs = ModuleCosts(source="fitted", spread=0.1, layer=passes, ends=passes, update_ns_per_parameter=1.0)
    modules = {"tiny-decoder/llm": costs} if measured else {}
    files.write(tmp_path / "profile.yaml", with_fields(library.read_named("cpu", Profile)[0], modules=modules))
    job = tmp_path / static_job(tmp_path, "tiny-decoder", "cpu-4", (64,) * 8, "tp: 2")
    job.write_text(job.read_text() + "profile: ./profile.yaml\n")
    found = pipeline.predict(str(job))
    assert found.sources["compute"] == ("fitted (llm)" if measured else "analytic (cpu)")
    assert (found.closed_seconds is None) == measured  # which is of rates


def test_a_load_of_experts_that_was_not_counted_is_said_to_be_assumed():
    plan = files.read(GOLDEN / "by_hand" / "experts-by-layer" / "plan.yaml", Plan)
    assert price_sources(plan).endswith("; load of experts: assumed")
    dense = files.read(GOLDEN / "sequence_groups" / "demo" / "plan.yaml", Plan)
    assert "experts" not in price_sources(dense)
