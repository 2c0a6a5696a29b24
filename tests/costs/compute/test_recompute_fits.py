"""Layers with different recomputation cost what each of them costs: seconds and bytes are sums over layers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.costs.compute.assumed_rates import ASSUMED_RATES
from planner.costs.compute.fit_lines import costs_with_recompute, unmeasured_recompute
from planner.costs.layer_pass import LayerPass, recompute_counts
from planner.costs.memory.token_caps import ActivationBytes, token_cap
from planner.costs.price_table import with_overlap
from planner.costs.pricing import Pricing, pricing_of
from planner.plan.legal.plan_laws import violations
from planner.plan.plan_file import Layout, Plan, Prices
from planner.plan.tasks.expand import expand
from planner.scoring.plan_memory import PlanMemory
from planner.specs.base import Layers, Ranks, with_fields
from planner.specs.framework.memory_coefficients import PLANNER_RUNTIME_MEMORY
from planner.specs.framework.overlap import parse_overlap
from planner.specs.framework.timing_coefficients import TimingCoefficients
from planner.specs.hardware.cluster import Cluster, Level, RankKind
from planner.specs.hardware.profile import Device, ModuleCosts, PassCosts, PassFit
from planner.specs.job import Fix, Limits
from planner.specs.layers import Decoder
from planner.specs.sequence_sharding import SequenceSplit
from planner.strategies.static.fixed_layout import fixed_layout
from planner.strategies.static.layouts_plan import draft_of_layouts
from tests.static_jobs import small_cluster, static_inputs

MODULE = Decoder(layers=4, hidden=64, heads=8, kv_heads=4, ffn=128, vocab=256)
DEVICE = Device(kind="cuda", memory_gib=10, tflops={"bf16": 100}, memory_gb_per_s=1000, reserved_gib=1)
CLUSTER = Cluster(
    format=Cluster.FORMAT,
    name="c",
    source="made up",
    ranks=(RankKind(kind="gpu", count=2, per_node=2),),
    levels=(Level(name="node", ranks=2, gb_per_s=10.0, latency_us=1.0),),
)
WORDS = ("none", "selective", "full")
BOTH = Ranks((0, 1))


def said(recompute, **fields) -> Layout:
    return Layout(**{"ranks": BOTH, "dp": 2, "recompute": recompute, **fields})


def pricing(layout: Layout) -> Pricing:
    """By rates that are assumed, with a host that is slower than some layers."""
    prices = Prices(
        profile="made up", rates={"gpu": ASSUMED_RATES}, timing=TimingCoefficients(layer_us=20.0, micro_batch_ms=0.1)
    )
    return Pricing({"llm": MODULE}, {"llm": layout}, CLUSTER, prices, {"gpu": DEVICE})


def passes(layout: Layout, layers, sizes, ends: bool = False) -> list[tuple[float, float]]:
    """Seconds, and those of exchanges, forward and backward of some layers on the group of both ranks."""
    found = []
    for forward in (True, False):
        part = LayerPass(
            "llm", len(layers), ends, BOTH, layout.default_split, forward, recompute_counts(layout, layers)
        )
        line = pricing(layout).pass_line(part, "gpu")[0]
        found.append((line.seconds(sizes), line.comm_seconds(sizes)))
    return found


def held(layout: Layout, layers=range(4), ends: bool = True) -> ActivationBytes:
    return pricing(layout).module_pricing("llm", "gpu").activation_bytes(Layers(layers), ends, SequenceSplit(), (1,))


SPREAD = [{}, {"dp": 1, "tp": 2}, {"dp": 1, "cp": 2}, {"dp": 1, "cp": 2, "ulysses": 2}]


@pytest.mark.parametrize("spread", SPREAD, ids=str)
@pytest.mark.parametrize("how", WORDS)
@pytest.mark.every(3)
def test_ranges_that_cover_all_layers_equal_one_setting_to_the_bit(how, spread):
    word = said(how, **spread)
    for ranges in ({"0-3": how}, {"0-1": how, "2-3": how}, {0: how, "1,3": how, 2: how}):
        other = said(ranges, **spread)
        assert recompute_counts(other, (0, 1)) == ((how, 2),)
        assert passes(other, range(4), (16, 128), True) == passes(word, range(4), (16, 128), True)
        assert held(other) == held(word)
    assert passes(said({}), range(4), (16,)) == passes(said("none"), range(4), (16,))


@pytest.mark.slow
@given(
    st.lists(st.sampled_from(WORDS), min_size=4, max_size=4),
    st.sampled_from([(64,), (16, 32, 128), (5000,)]),
    st.sampled_from(SPREAD),
)
def test_seconds_and_bytes_are_those_of_each_layer(words, sizes, spread):
    """Except for the constant of a pass on a stage, which counts once."""
    ranges = {layer: how for layer, how in enumerate(words) if how != "none"}
    layout, pause = said(ranges, **spread), 1e-4
    alone = [passes(said(how, **spread), (0,), sizes) for how in words]
    for which, (seconds, comm) in enumerate(passes(layout, range(4), sizes)):
        assert seconds - pause == pytest.approx(sum(each[which][0] - pause for each in alone), rel=1e-9)
        assert comm == pytest.approx(sum(each[which][1] for each in alone), rel=1e-9)
    bytes_ = [held(said(how, **spread), (0,), False) for how in words]
    found = held(layout)
    assert found.layers == pytest.approx(sum(each.layers for each in bytes_), rel=1e-12)
    assert found.recomputed == max(each.recomputed for each in bytes_)


def test_full_is_one_forward_more_and_selective_a_part_of_it():
    for spread in SPREAD:
        none, some, whole = (passes(said(how, **spread), range(4), (4096,)) for how in WORDS)
        assert none[0] == some[0] == whole[0]
        forward = none[0][0] - 1e-4
        assert whole[1][0] - none[1][0] == pytest.approx(forward)
        assert 0 < some[1][0] - none[1][0] < forward


def test_a_token_cap_is_between_those_of_uniform_recompute():
    caps = [
        token_cap(MODULE, held(said(how)).times, said(how), DEVICE, Limits(), PLANNER_RUNTIME_MEMORY)
        for how in ("none", {"0-1": "full"}, "full")
    ]
    assert caps[0] < caps[1] < caps[2]


def test_measured_layers_are_summed_and_published_passes_are_shared_out():
    again = PassCosts(forward=PassFit(ms=1.0), backward=PassFit(ms=2.0), working_kib_per_token=7.0)
    published = PassCosts(layers=2, both=PassFit(ms=6.0), activation_kib_per_token=8.0)
    both = ModuleCosts(source="analytic", spread=0.1, layer=published, recomputing={"full": again})
    layer = costs_with_recompute(both, (("full", 3), ("none", 1))).layer
    assert (layer.layers, layer.forward.ms, layer.backward.ms) == (4, 3 * 1.0 + 6.0 / 3 / 2, 3 * 2.0 + 6.0 / 3)
    assert (layer.activation_kib_per_token, layer.working_kib_per_token) == (4.0, 7.0)


@pytest.mark.parametrize("recompute", ["full", {"0-1": "full"}])
def test_recompute_that_fits_do_not_distinguish_costs_the_same(recompute):
    """Fits of a module without others beside them are those of the layers that were published."""
    fit = PassCosts(forward=PassFit(ms=1.0), backward=PassFit(ms=2.0))
    known = ModuleCosts(source="published", spread=0.1, layer=fit)
    assert costs_with_recompute(known, recompute_counts(said(recompute), range(4))) == known
    assert unmeasured_recompute(known, said(recompute), range(4)) == []


# --------------------------------------------------------------------------------------------------- of whole plans


@pytest.fixture
def solved(tmp_path):

    def plan(how: str) -> Plan:
        cluster = small_cluster(tmp_path, "h100-80gb", 8)
        fixed = f"tp: 2, cp: 1, pp: 4, zero: 1, recompute: {how}, micro_batch: 1"
        inputs = static_inputs(tmp_path, "llama-3-8b", cluster, (4096,) * 8, fixed)
        return draft_of_layouts(inputs, {inputs.module: fixed_layout(inputs)})

    return plan


def by_hand(plan: Plan, recompute) -> Plan:
    layouts = {"llm": with_fields(plan.layouts["llm"], recompute=recompute)}
    plan = with_fields(plan, layouts=layouts, uses=with_fields(plan.uses, fix=Fix()))
    assert violations(plan) == []
    return plan


@pytest.mark.parametrize("start", WORDS)
def test_each_stage_of_a_plan_changed_by_hand_costs_what_it_does_where_all_are_like_it(solved, start):
    """Eight layers on each of four stages: full, selective, none, and half full and half none."""
    plan = by_hand(solved(start), {"0-7": "full", "8-15": "selective", "24-27": "full"})
    alike = {how: pricing_of(solved(how)) for how in WORDS}
    price, held = pricing_of(plan).price, PlanMemory(plan, pricing_of(plan)).forward_bytes
    for task in expand(plan):
        if task.phase not in ("F", "B"):
            continue
        stage = task.layers[0] // 8
        ours = price(task).value, held(task)
        theirs = [
            (each.price(task).value, PlanMemory(plan_of(each, plan), each).forward_bytes(task))
            for each in alike.values()
        ]
        if stage < 3:
            assert ours == pytest.approx(theirs[(2, 1, 0)[stage]], rel=1e-12)
        else:
            assert ours == pytest.approx([(a + b) / 2 for a, b in zip(theirs[0], theirs[2], strict=True)], rel=1e-12)


def plan_of(pricing: Pricing, plan: Plan) -> Plan:
    """The same plan with the layout that another pricing is of."""
    return with_fields(plan, layouts=pricing.layouts)


def test_switched_overlap_prices_each_kind_of_layer_again(solved):
    """Full recomputation sends in backward what forward sent, exposed or not."""
    plan = by_hand(solved("none"), {"0-7": "full"})
    before, after = (pricing_of(each) for each in (plan, with_overlap(plan, parse_overlap("tp=off"))))
    for priced in (before, after):
        comm = {(t.phase, t.layers[0]): priced.price(t).comm for t in expand(plan) if t.phase in ("F", "B")}
        assert comm["B", 0] - comm["B", 8] == pytest.approx(comm["F", 0]) == pytest.approx(comm["F", 8])
    for task in expand(plan):
        if task.phase in ("F", "B"):
            assert 0 < before.price(task).comm < after.price(task).comm
