"""What a plan is worth, from nothing but the plan; and memory that its devices do not have."""

import re
from pathlib import Path

import pytest

from planner import files, pipeline
from planner.cli.views.plan_tables import memory_text
from planner.costs.layout_columns import columns_of
from planner.costs.memory.activations import layer_activations
from planner.costs.memory.allowed_memory import device_accounting
from planner.costs.memory.footprint import loss_bytes
from planner.costs.memory.model_states import gathered_bytes, zero_state_bytes
from planner.errors import Infeasible, InputError
from planner.plan.plan_file import Plan
from planner.scoring.score import fullest_score, outcome_of, prediction_of, require_memory, score, with_score
from planner.specs.base import with_fields
from planner.specs.inputs import JobOptions
from planner.specs.job import Limits
from planner.units import GIB
from tests.plans import degrees_of

GOLDEN = Path(__file__).parents[1] / "golden"
PLAN = files.read(GOLDEN / "sequence_groups/demo/plan.yaml", Plan)
BUBBLES = files.read(GOLDEN / "by_hand/encoder-in-bubbles/plan.yaml", Plan)


def with_device(plan: Plan, **fields) -> Plan:
    devices = {name: with_fields(device, **fields) for name, device in plan.uses.devices.items()}
    return with_fields(plan, uses=with_fields(plan.uses, devices=devices))


def test_parts_add_up_and_the_bound_is_below():
    for plan in (PLAN, BUBBLES):
        s = score(plan)
        parts = prediction_of(s).breakdown
        assert parts.compute + parts.exposed_comm + parts.idle == pytest.approx(s.step_seconds, rel=1e-8)
        assert 0 < outcome_of(s, "").bound <= outcome_of(s, "").value
        assert outcome_of(s, "").gap == pytest.approx((s.step_seconds - s.bound.seconds) / s.bound.seconds)


def test_the_peak_is_states_and_the_fullest_micro_batch():
    """Under ZeRO-3 one micro-batch is kept at a time: its busiest rank holds the most."""
    module, layout = PLAN.uses.models["llm"], PLAN.layouts["llm"]
    sizes = PLAN.uses.items["llm"]
    fullest = max(
        sum(sizes[item] for item in items) / degrees_of(PLAN)[name]
        for row in PLAN.steps[0].micro_batches
        for name, items in row.items()
    )
    ((_, device),) = PLAN.uses.devices.items()
    kept, at = device_accounting(device, PLAN.uses.prices.accounting), columns_of(layout)
    assert kept.workspace_gib == kept.buffers == kept.fragmentation == 0.0  # a CPU's
    lasting = (
        float(zero_state_bytes(module, at, kept, 0).total + gathered_bytes(module, at, kept, 0))
        + device.reserved_gib * GIB
    )
    a_token = module.layers * float(layer_activations(module, "dense", at, kept).with_recompute)
    loss = float(loss_bytes(module, at, kept, fullest))
    assert max(score(PLAN).memory.peaks) == pytest.approx(lasting + fullest * a_token + loss)
    assert PLAN.prediction.peak_memory_gib == pytest.approx(max(score(PLAN).memory.peaks) / GIB, rel=1e-8)


@pytest.mark.slow
def test_the_fullest_rank_is_that_with_least_left_of_its_own_device():
    """Whatever other devices hold; and people are told of it."""
    plan = files.read(GOLDEN / "sequence_groups/two-kinds/plan.yaml", Plan)
    s = score(plan)
    used = [peak / s.plan_memory.allowed_bytes(rank) for rank, peak in enumerate(s.memory.peaks)]
    assert used[s.fullest_rank] == max(used)
    assert (plan.prediction.fullest_rank, plan.prediction.oom_chance) == (s.fullest_rank, pytest.approx(s.oom_chance))
    assert memory_text(plan).startswith(
        f"{s.peak_bytes / GIB:.2f} GiB on rank {s.fullest_rank}, the fullest ({s.plan_memory.kind(s.fullest_rank)})"
    )
    for kind in plan.uses.devices:
        large = {
            name: with_fields(device, memory_gib=500.0) for name, device in plan.uses.devices.items() if name != kind
        }
        devices = {**plan.uses.devices, **large}
        tight = score(with_fields(plan, uses=with_fields(plan.uses, devices=devices)))
        assert tight.plan_memory.kind(tight.fullest_rank) == kind


@pytest.mark.slow
def test_of_several_steps_the_one_that_is_fullest_counts():
    both = pipeline.solve("demo-cpu-4", JobOptions(batches=2)).plan
    scores = [score(both, number) for number in (0, 1)]
    assert fullest_score(scores).peak_bytes == max(s.peak_bytes for s in scores)
    assert both.prediction.peak_memory_gib == pytest.approx(fullest_score(scores).peak_bytes / GIB, rel=1e-8)


def test_memory_that_is_not_there_is_named_with_its_rank():
    with pytest.raises(
        Infeasible, match=r"rank 0 of `llm` and `vit` would hold .* GiB, and may hold .* GiB: .* a chance of [0-9.]+ %"
    ) as caught:
        small = with_device(BUBBLES, memory_gib=100.0)
        require_memory(small, score(small))
    assert caught.value.where == "memory" and "recomputation" in caught.value.fix


def test_a_limit_in_tokens_replaces_the_memory_model():
    limited = with_fields(BUBBLES, uses=with_fields(BUBBLES.uses, limits=Limits(tokens_per_rank=8192)))
    small = with_device(limited, memory_gib=50.0)
    require_memory(small, score(small))


def test_states_that_leave_no_room_are_named_before_anything_is_packed():
    plan = with_device(with_fields(PLAN, uses=with_fields(PLAN.uses, limits=Limits())), memory_gib=0.51)
    with pytest.raises(Infeasible, match="states, context and buffers take") as caught:
        score(plan)
    assert "what binds" in caught.value.where and "GiB" in caught.value.fix


def test_dearer_prices_are_worth_more():
    timing = PLAN.uses.prices.timing
    dear = with_fields(PLAN.uses.prices, timing=with_fields(timing, step_ms=timing.step_ms + 1e3))
    plan = with_fields(PLAN, uses=with_fields(PLAN.uses, prices=dear))
    assert with_score(plan, "").outcome.value == pytest.approx(PLAN.outcome.value + 1)


def test_a_plan_that_was_edited_into_illegality_is_refused_by_name(tmp_path):
    text = (GOLDEN / "sequence_groups/demo/plan.yaml").read_text()
    path = tmp_path / "edited.yaml"
    begin, item = re.search(r"(micro_batches:\n.*\n.*: \[)(\d+), ", text).groups()
    path.write_text(text.replace(f"{begin}{item}, ", begin))
    with pytest.raises(InputError, match=f"illegal plan: item {item} of `llm` is assigned nowhere") as caught:
        pipeline.read_plan(path)
    assert str(path) in caught.value.where
