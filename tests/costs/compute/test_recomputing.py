"""Layers that recompute unlike each other cost what each of them costs: seconds and bytes are sums over layers."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from planner.costs.static.costs import static_costs

from planner.costs.columns import machine_of, setup_of
from planner.costs.compute.recomputing import costs_of_layers, layered_costs, mixed, typical, untold
from planner.costs.memory.caps import activation_bytes, token_cap
from planner.costs.overlapped import overlapped
from planner.costs.pricing import Pricing, pricing_of
from planner.plan.expand import expand
from planner.plan.legal import violations
from planner.plan.model import Layout, Plan
from planner.specs.accounting import BUNDLED
from planner.specs.base import Ranks, changed
from planner.specs.cluster import Cluster, Level, RankKind
from planner.specs.job import Limits
from planner.specs.model import Decoder
from planner.specs.overlap import overlap_of
from planner.specs.profile import Device, Fit, ModuleCosts, Passes
from planner.specs.timing import Timing
from planner.strategies.static.fixed import fixed_choice
from planner.strategies.static.laid import laid
from planner.strategies.static.screen import problem_of
from planner.verify.held import activations
from planner.verify.score import score
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
MACHINE = machine_of(CLUSTER, DEVICE, None, Timing())
WORDS = ("none", "selective", "full")


def costs(recompute) -> ModuleCosts:
    layout = said(recompute)
    return layered_costs(MODULE, layout, setup_of(layout), MACHINE, BUNDLED)


def said(recompute, **fields) -> Layout:
    return Layout(ranks=Ranks((0, 1)), dp=2, recompute=recompute, **fields)


@pytest.mark.parametrize("how", WORDS)
def test_ranges_that_cover_all_layers_are_the_word_to_the_bit(how):
    whole = static_costs(MODULE, setup_of(said(how)), MACHINE, BUNDLED)
    for ranges in ({"0-3": how}, {"0-1": how, "2-3": how}, {0: how, "1,3": how, 2: how}):
        assert costs(ranges) == whole
        assert mixed(said(ranges), (0, 1)) == ((how, 2),)
        assert typical(setup_of(said(ranges)), said(ranges), MODULE) == setup_of(said(how))
        caps = [token_cap(MODULE, whole, said(each), DEVICE, Limits()) for each in (how, ranges)]
        assert caps[0] == caps[1] > 0
    assert costs({}) == costs("none")


@given(st.lists(st.sampled_from(WORDS), min_size=4, max_size=4), st.sampled_from([(64,), (16, 32, 128)]))
def test_seconds_and_bytes_are_those_of_each_layer(words, sizes):
    ranges = {layer: how for layer, how in enumerate(words) if how != "none"}
    found = costs_of_layers(costs(ranges), mixed(said(ranges), range(4)))
    alone = [costs(how) for how in words]
    for end in (False, True):
        each = [activation_bytes(c, 1, end and not layer, 10.0) for layer, c in enumerate(alone)]
        assert activation_bytes(found, 4, end, 10.0) == pytest.approx(sum(each), rel=1e-12)
    for forward in (True, False):
        expected = sum(seconds(c.layer, forward, sizes) for c in alone)
        times = 4 / found.layer.layers  # where all are alike, costs are of one
        assert times * seconds(found.layer, forward, sizes) == pytest.approx(expected, rel=1e-12)


def seconds(passes: Passes, forward: bool, sizes) -> float:
    fit = passes.forward if forward else passes.backward
    return sum(fit.ms_per_token2 * s * s + fit.ms_per_token * s for s in sizes) + fit.ms


def test_a_token_cap_lies_between_those_of_the_words():
    caps = [token_cap(MODULE, costs(how), said(how), DEVICE, Limits()) for how in ("none", {"0-1": "full"}, "full")]
    assert caps[0] < caps[1] < caps[2]


def test_waits_are_summed_too_and_published_passes_are_shared_out():
    waiting = Passes(
        forward=Fit(ms=1.0), backward=Fit(ms=2.0), forward_waits=Fit(ms_per_token=0.5), working_kib_per_token=7.0
    )
    published = Passes(layers=2, both=Fit(ms=6.0), activation_kib_per_token=8.0)
    both = ModuleCosts(source="analytic", spread=0.1, layer=published, recomputing={"full": waiting})
    layer = costs_of_layers(both, (("full", 3), ("none", 1))).layer
    assert (layer.layers, layer.forward.ms, layer.backward.ms) == (4, 3 * 1.0 + 6.0 / 3 / 2, 3 * 2.0 + 6.0 / 3)
    assert (layer.forward_waits.ms_per_token, layer.backward_waits) == (1.5, None)
    assert (layer.activation_kib_per_token, layer.working_kib_per_token) == (4.0, 7.0)


@pytest.mark.parametrize("recompute", ["full", {"0-1": "full"}])
def test_what_costs_do_not_tell_apart_costs_the_same(recompute):
    """Fits of a module without others beside them are of the layers that somebody had."""
    known = changed(costs("none"), source="published", by="module")
    assert costs_of_layers(known, mixed(said(recompute), range(4))) == known
    assert untold(known, said(recompute), range(4)) == []


# --------------------------------------------------------------------------------------------------- of whole plans


@pytest.fixture
def solved(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def plan(how: str) -> Plan:
        cluster = small_cluster(tmp_path, "h100-80gb", 8)
        fixed = f"tp: 2, cp: 1, pp: 4, zero: 1, recompute: {how}, micro_batch: 1"
        inputs = static_inputs(tmp_path, "llama-3-8b", cluster, (4096,) * 8, fixed)
        return laid(inputs, problem_of(inputs), fixed_choice(inputs))

    return plan


def by_hand(plan: Plan, recompute) -> Plan:
    plan = changed(plan, layouts={"llm": changed(plan.layouts["llm"], recompute=recompute)})
    assert violations(plan) == []
    return plan


@pytest.mark.parametrize("start", WORDS)
def test_each_stage_of_a_plan_changed_by_hand_costs_what_it_does_where_all_are_like_it(solved, start):
    """Eight layers on each of four stages: full, selective, none, and half full and half none."""
    plan = by_hand(solved(start), {"0-7": "full", "8-15": "selective", "24-27": "full"})
    alike = {how: pricing_of(solved(how)) for how in WORDS}
    price, held = pricing_of(plan).price, activations(plan, pricing_of(plan))
    for task in expand(plan):
        if task.phase not in ("F", "B"):
            continue
        stage = task.layers[0] // 8
        ours = price(task).value, held(task)
        theirs = [(each.price(task).value, activations(plan_of(each, plan), each)(task)) for each in alike.values()]
        if stage < 3:
            assert ours == pytest.approx(theirs[(2, 1, 0)[stage]], rel=1e-12)
        else:
            assert ours == pytest.approx([(a + b) / 2 for a, b in zip(theirs[0], theirs[2], strict=True)], rel=1e-12)


def plan_of(pricing: Pricing, plan: Plan) -> Plan:
    """The same plan with the layout that another pricing is of."""
    return changed(plan, layouts=pricing.layouts)


def test_a_plan_that_says_the_word_by_ranges_is_worth_the_same(solved):
    plan = solved("full")
    again = by_hand(plan, {"0-15": "full", "16-31": "full"})
    for of in (score, lambda each: score(each, 0, overlap_of("tp=on"))):
        assert of(again).value == of(plan).value
        assert of(again).memory == of(plan).memory


def test_more_recomputation_takes_longer_and_holds_less(solved):
    plan = solved("none")
    scores = [score(by_hand(plan, r)) for r in ("none", {"0-3": "selective"}, {"0-3": "full"}, {"0-7": "full"})]
    for less, more in pairwise(scores):
        assert less.value < more.value
        assert less.memory.peaks[0] > more.memory.peaks[0]


def test_switched_overlap_prices_each_kind_of_layer_again(solved):
    plan = by_hand(solved("none"), {"0-7": "full"})
    before, after = pricing_of(plan).costs("llm", "h100-80gb"), overlapped(plan, 0, overlap_of("tp=on"))
    made = after.uses.prices.modules["llm"]
    for less, more in ((made.layer, before.layer), (made.recomputing["full"], before.recomputing["full"])):
        assert less.forward_waits.ms_per_token < more.forward_waits.ms_per_token
