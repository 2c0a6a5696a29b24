"""Offloaded activations leave the memory of their ranks, take no time, and are refused where they would."""

import pytest

from planner.check.checked_plan import reprice
from planner.costs.compute.assumed_rates import ASSUMED_RATES
from planner.costs.pricing import pricing_of
from planner.errors import InputError
from planner.plan.plan_file import Group, Layout, OffloadedItem, Plan, Prices, Step
from planner.plan.tasks.expand import expand
from planner.scoring.offload_check import hidden_offload, hidden_shares, task_offloading, with_hidden_offload
from planner.scoring.score import score
from planner.specs import library
from planner.specs.base import Layers, Ranks, with_fields
from planner.specs.hardware.profile import Profile
from planner.specs.layers import Decoder
from planner.specs.sequence_sharding import SequenceSplit
from tests.plans import plan_of, uses

LLM = Decoder(layers=8, hidden=1024, heads=16, ffn=4096, vocab=1000)
DEVICE = library.read_named("h100-80gb", Profile)[0].device
SIZES = {0: 40_000, 1: 3_000}


def offloaded(ratio: float, host_gb_per_s: float = 100.0) -> Plan:
    """A long item, offloaded, and a short one on a ring of three ranks."""
    facts = with_fields(
        uses(3, {"llm": LLM}, {"llm": SIZES}),
        devices={"toy": with_fields(DEVICE, host_gb_per_s=host_gb_per_s)},
        prices=Prices(profile="data sheet", rates={"toy": ASSUMED_RATES}),
    )
    ranks = Ranks(range(3))
    return plan_of(
        3,
        facts,
        {"llm": Layout(ranks=ranks, dp=3, zero=1)},
        {"g": Group(ranks=ranks, split={"ring": 3})},
        Step(sync="step", micro_batches=({"g": (OffloadedItem(item=0, offload=ratio), 1)},)),
    )


def most(plan: Plan) -> float:
    forward = next(task for task in expand(plan) if task.phase == "F")
    return task_offloading(plan, pricing_of(plan), forward).largest_ratio(SIZES[0])


@pytest.mark.parametrize("recompute", ["none", {"0-5": "full"}])
def test_as_much_hides_as_no_item_is_refused(recompute):
    """The shorter item hides least."""
    plan = offloaded(0.1)
    plan = with_fields(plan, layouts={"llm": with_fields(plan.layouts["llm"], recompute=recompute)})
    ratio = hidden_offload(plan, pricing_of(plan), "llm")
    micro_batch = {"g": tuple(OffloadedItem(item=item, offload=ratio) for item in SIZES)}
    score(with_fields(plan, steps=(with_fields(plan.steps[0], micro_batches=(micro_batch,)),)))
    more = {"g": tuple(OffloadedItem(item=item, offload=ratio + 1e-3) for item in SIZES)}
    with pytest.raises(InputError, match="item 1 asks for"):
        score(with_fields(plan, steps=(with_fields(plan.steps[0], micro_batches=(more,)),)))


def test_of_a_short_item_less_is_offloaded_than_its_layout_says():
    plan = offloaded(0.1)
    shares = hidden_shares(plan, pricing_of(plan), "llm")
    layout = with_fields(plan.layouts["llm"], offload=shares[0])
    plain = with_fields(plan.steps[0], micro_batches=({"llm": {"g": (0, 1)}},))
    said = with_fields(plan, layouts={"llm": layout}, steps=(plain,))
    with pytest.raises(InputError, match="item 1 asks for"):
        score(said)
    hides = with_hidden_offload(said, pricing_of(said))
    score(hides)
    (micro_batch,) = hides.steps[0].micro_batches
    assert micro_batch == {"llm": {"g": (0, OffloadedItem(item=1, offload=shares[1]))}}
    assert with_hidden_offload(plan, pricing_of(plan)) is plan  # whose layout says nothing of all


def test_memory_falls_by_what_is_offloaded_and_time_stays():
    """By so much of all layers but the first and the last; and of what the allocator loses with it."""
    plain, split = score(offloaded(0.0)), SequenceSplit(ring=3)
    basis, share = (
        pricing_of(offloaded(0.0)).module_pricing("llm", "toy"),
        1.0 + plain.plan_memory.accounting(0).fragmentation,
    )
    whole = basis.activation_bytes(Layers(range(LLM.layers)), True, split, tuple(SIZES.values()))
    passing = (whole.layers + whole.head + whole.recompute_extra) * share
    assert max(plain.memory.peaks) == pytest.approx(plain.plan_memory.static_bytes(0) + passing)
    for ratio in (0.1, most(offloaded(0.1))):
        helped = score(offloaded(ratio))
        gone = (
            basis.activation_bytes(Layers(range(1, LLM.layers - 1)), False, split, (SIZES[0],)).layers * ratio * share
        )
        assert max(helped.memory.peaks) == pytest.approx(plain.plan_memory.static_bytes(0) + passing - gone)
        assert helped.step_seconds == plain.step_seconds


@pytest.mark.parametrize("recompute", [{"0-2": "full"}, {"0-6": "full"}, {"1-4": "full", "5-7": "selective"}])
def test_the_first_layer_and_the_last_keep_what_they_have(recompute):
    """Layer by layer, where layers differ in what they recompute."""
    plan = offloaded(0.1)
    plan = with_fields(plan, layouts={"llm": with_fields(plan.layouts["llm"], recompute=recompute)})
    forward = next(task for task in expand(plan) if task.phase == "F")
    basis, rank = pricing_of(plan).module_pricing("llm", "toy"), task_offloading(plan, pricing_of(plan), forward)

    def held(layer):
        return basis.activation_bytes(Layers((layer,)), False, SequenceSplit(), (1,)).layers

    for ratio in (0.0, 0.1, 1.0):
        inside = sum(held(layer) for layer in range(1, LLM.layers - 1))
        whole = sum(map(held, range(LLM.layers))) + rank.head_bytes
        assert rank.held_bytes(ratio) == pytest.approx(whole - ratio * inside)


def test_more_than_hides_is_refused_with_what_would_hide():
    limit = most(offloaded(0.5))
    assert 0.1 < limit < 1
    score(offloaded(limit))
    with pytest.raises(InputError, match=f"item 0 asks for 1, at most {limit:g} here") as caught:
        score(offloaded(1.0))
    assert caught.value.where == "steps[0].micro_batches[0]"
    assert caught.value.fix == f"offload: {limit:g}, or less"
    score(offloaded(1.0, host_gb_per_s=1000.0))


def test_the_gate_sees_a_broken_law():
    (found,) = reprice(offloaded(1.0)).violations
    assert "offload would not hide" in found.message
