"""Ring attention: what its ranks send, what attention hides of it, and the link that limits them."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.costs.compute.assumed_rates import ASSUMED_RATES
from planner.costs.compute.fit_lines import fit_line
from planner.costs.cost_lines import CostLine, RingTerm
from planner.costs.pricing import Pricing, pricing_of
from planner.plan.plan_file import Group, Layout, Plan, Prices, Step
from planner.plan.tasks.expand import expand
from planner.specs.base import Ranks, with_fields
from planner.specs.hardware.cluster import Cluster, Level, RankKind, nearest_level
from planner.specs.hardware.profile import CollectiveCosts, CollectivePoint, Device, ModuleCosts, PassCosts, PassFit
from planner.specs.layers import Decoder
from planner.specs.layers.head_widths import kv_heads
from planner.specs.sequence_sharding import SequenceSplit
from planner.specs.shapes import ring_elements
from tests.meshes import meshed
from tests.plans import plan_of, stages_of, uses

MODULE = Decoder(layers=4, hidden=48, heads=12, kv_heads=6, ffn=64, vocab=64)
DEVICE = Device(kind="cuda", memory_gib=10, tflops={"bf16": 100}, memory_gb_per_s=1000)
COSTS = ModuleCosts(
    source="analytic",
    spread=0.3,
    layer=PassCosts(
        forward=PassFit(ms_per_token2=1e-9, ms_per_token=1e-6, ms=0.004),
        backward=PassFit(ms_per_token2=2.5e-9, ms_per_token=2e-6, ms=0.008),
    ),
    ends=PassCosts(forward=PassFit(ms_per_token=1e-6), backward=PassFit(ms_per_token=2e-6)),
)
LEVELS = (
    Level(name="pair", ranks=2, gb_per_s=100, latency_us=2),
    Level(name="node", ranks=8, gb_per_s=10, latency_us=5),
    Level(name="cluster", ranks=32, gb_per_s=1, latency_us=20),
)
CLUSTER = Cluster(
    format=Cluster.FORMAT,
    name="four nodes",
    source="made up",
    ranks=(RankKind(kind="toy", count=32, per_node=8),),
    levels=LEVELS,
)


def pricing(tables: dict[str, CollectiveCosts] | None = None) -> Pricing:
    prices = Prices(profile="made up", modules={"llm": COSTS}, collectives=tables or {})
    layout = Layout(ranks=Ranks(range(32)), dp=32, zero=1)
    return Pricing({"llm": MODULE}, {"llm": layout}, CLUSTER, prices, {"toy": DEVICE})


def line(
    first: int, ulysses: int, ring: int, forward: bool = True, tables: dict[str, CollectiveCosts] | None = None
) -> CostLine:
    ranks = Ranks(range(first, first + ulysses * ring))
    return pricing(tables).module_line("llm", ranks, SequenceSplit(ulysses, ring), forward)[0]


@given(st.sampled_from([1, 2, 3, 6, 12]), st.integers(2, 7), st.integers(1, 50))
def test_a_ring_sends_every_block_to_every_other_sub_group(ulysses, ring, tokens):
    """Counted block by block: each rank sends on what it has, ring − 1 times, of as many heads as it has."""
    heads = max(1, kv_heads(MODULE) // ulysses)
    held, sent = [{rank} for rank in range(ring)], 0
    passing = [*range(ring)]  # whose block each sub-group has now
    for _ in range(ring - 1):
        passing = [passing[rank - 1] for rank in range(ring)]
        sent += tokens * 2 * heads * 4  # a block of `tokens` tokens, keys and values, of 4 elements a head
        for rank, block in enumerate(passing):
            held[rank].add(block)
    assert all(blocks == {*range(ring)} for blocks in held)
    assert ring_elements(MODULE, ulysses, ring) * tokens * ring == pytest.approx(sent)


def reached(level: Level) -> float:
    """Bytes per second of the level that transfers reach."""
    return level.gb_per_s * 1e9 * (ASSUMED_RATES.link_share if level is LEVELS[0] else ASSUMED_RATES.adapter_share)


@given(st.integers(2, 16), st.integers(1, 10**6))
def test_an_item_takes_the_longer_of_its_attention_and_its_ring(ring, size):
    ways, found = fit_line(COSTS, 4, True, True, ring), line(0, 1, ring)
    level = nearest_level(CLUSTER, 0, ring - 1)
    moved = 4 * 2 * 24 * (ring - 1) / ring * 2 / reached(level)  # layers · keys and values · bytes
    assert found.item_seconds(size) == pytest.approx(ways.lin * size + max(ways.quad * size * size, moved * size))
    assert found.const == pytest.approx(ways.const + 4 * (ring - 1) * level.latency_us * 1e-6)
    exposed = max(0.0, moved * size - ways.quad * size * size)
    assert found.comm_seconds((size,)) == pytest.approx(found.comm_const + exposed)


def test_backward_sends_twice_as_much_and_both_passes_hide_their_own():
    forward, backward = line(0, 1, 3), line(0, 1, 3, forward=False)
    assert backward.rings[0].send_seconds == pytest.approx(2 * forward.rings[0].send_seconds)
    both = forward + backward
    for size in (10, 1000, 100_000, 10_000_000):
        assert both.item_seconds(size) == pytest.approx(forward.item_seconds(size) + backward.item_seconds(size))
    assert both.exposed_ring((10_000_000,)) == 0.0 < both.exposed_ring((10,))


@given(st.lists(st.integers(1, 10_000), min_size=1, max_size=8))
def test_a_group_takes_its_items_one_by_one_and_the_constant(sizes):
    both = CostLine(1e-6, 1e-3, 0.5, 2e-4, 0.1, (RingTerm(2e-3, 1e-6), RingTerm(4e-3, 5e-7)))
    assert both.seconds(sizes) == pytest.approx(both.const + sum(both.item_seconds(size) for size in sizes))
    assert both.comm_seconds(sizes) <= both.seconds(sizes)


@given(st.data())
def test_the_slowest_link_of_a_ring_is_the_level_that_joins_its_group(data):
    """For any ranks, however they lie on nodes, and any split of them."""
    ulysses, ring = data.draw(st.integers(1, 4)), data.draw(st.integers(2, 8))
    chosen = st.sets(st.integers(0, 31), min_size=ulysses * ring, max_size=ulysses * ring)
    ranks = sorted(data.draw(chosen))
    parts = [ranks[first : first + ulysses] for first in range(0, len(ranks), ulysses)]
    links = [(near, far) for one, two in pairwise([*parts, parts[0]]) for near, far in zip(one, two, strict=True)]
    slowest = max((nearest_level(CLUSTER, near, far) for near, far in links), key=lambda level: level.ranks)
    assert slowest == nearest_level(CLUSTER, ranks[0], ranks[-1])


def test_ulysses_stays_inside_sub_groups_and_the_ring_goes_between_them():
    """Four sub-groups on two nodes; 6 heads of keys and values are repeated to 12, so that each of 4 ranks has 3."""
    mixed, ulysses = line(0, 4, 4), line(0, 4, 1)
    assert mixed.comm_lin == pytest.approx(ulysses.comm_lin / 4)  # the same exchange of a fourth of the tokens
    assert mixed.rings[0].send_seconds == pytest.approx(
        4 * 2 * (3 * 4) * 3 / 4 * 2 / reached(nearest_level(CLUSTER, 0, 15))
    )
    assert line(0, 12, 1).rings == ()


def test_groups_that_straddle_nodes_are_priced_by_the_ranks_they_have():
    """Ranks 6 to 9 are two pairs of two nodes; 7 to 10 cut a sub-group in two as well."""
    aligned, pairs, cut = line(0, 2, 2), line(6, 2, 2), line(7, 2, 2)
    assert aligned.rings[0].send_seconds < pairs.rings[0].send_seconds == cut.rings[0].send_seconds
    assert aligned.comm_lin == pairs.comm_lin < cut.comm_lin


def test_a_measured_link_is_taken_before_the_data_sheet():
    tables = {
        "p2p": CollectiveCosts(
            source="measured", spread=0.1, points=(CollectivePoint(ranks=2, gb_per_s=3, latency_us=7),)
        )
    }
    ranks, split = Ranks((0, 1)), SequenceSplit(ring=2)
    found, source = pricing(tables).module_line("llm", ranks, split, True)
    assert found.rings[0].send_seconds == pytest.approx(4 * 2 * 24 / 2 * 2 / 3e9)
    assert (source.source, source.spread) == ("measured", 0.1)
    assert pricing().module_line("llm", ranks, split, True)[1].source == "analytic"


def ring_plan(group: Group, stages: int = 1) -> Plan:
    facts = uses(len(group.ranks), {"llm": MODULE}, {"llm": {0: 500, 1: 70}})
    size = len(group.ranks)
    mesh = {"pp": stages, "dp": size // stages} if stages > 1 else {"dp": size}
    layout = Layout(ranks=group.ranks, **meshed(mesh), stages=stages_of(4, stages) if stages > 1 else (), zero=1)
    return plan_of(
        size,
        with_fields(facts, prices=with_fields(facts.prices, modules={"llm": COSTS})),
        {"llm": layout},
        {"g": group},
        Step(sync="step", micro_batches=({"g": (0, 1)},)),
    )


@pytest.mark.parametrize("split", [{"ring": 6}, {"ulysses": 2, "ring": 3}, {"ulysses": 6}])
def test_simulator_and_strategies_price_alike(split):
    plan = ring_plan(Group(ranks=Ranks(range(6)), split=split))
    priced = pricing_of(plan)
    for task in expand(plan):
        if task.phase in ("F", "B"):
            parts = SequenceSplit(split.get("ulysses", 1), split.get("ring", 1))
            found, _ = priced.module_line("llm", task.ranks, parts, task.phase == "F")
            cost = priced.price(task)
            assert task.split == parts
            assert cost.value == pytest.approx(found.const + found.item_seconds(500) + found.item_seconds(70))
            assert cost.comm == pytest.approx(found.comm_seconds((500, 70)))


@pytest.mark.parametrize("split", [{"ring": 3}, {"ulysses": 3}])
def test_stages_exchange_what_the_whole_module_does(split):
    """Of three ranks each, on one level: their seconds add up to those of one stage of three ranks."""
    seconds = []
    for stages in (1, 2):
        plan = ring_plan(Group(ranks=Ranks(range(3 * stages)), split=split), stages)
        priced = pricing_of(plan)
        passes = [priced.price(task) for task in expand(plan) if task.phase in ("F", "B")]
        assert all(cost.comm > 0 for cost in passes) and len(passes) == 2 * stages
        seconds.append((sum(cost.value for cost in passes), sum(cost.comm for cost in passes)))
    assert seconds[0] == pytest.approx(seconds[1])
