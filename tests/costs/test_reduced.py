"""Seconds of gathers and reductions among replicas: HSDP by its formula, and gradients in half the bytes."""

from dataclasses import replace
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.costs.analytic import analytic_costs
from planner.costs.network.network import Network
from planner.costs.memory.caps import state_bytes
from planner.costs.pricing import Pricing
from planner.costs.network.reduced import copies
from planner.costs.compute.assumed import ASSUMED
from planner.plan.mesh import stage_ranks, state_groups
from planner.plan.model import Layout, Prices
from planner.plan.task import Task
from planner.specs.base import Layers, Ranks, changed
from planner.specs.cluster import Cluster, Level, RankKind
from planner.specs.model import Decoder
from planner.specs.parameters import end_parameters, expert_parameters, of_layers, parameters
from planner.specs.parts import Experts
from planner.specs.profile import Collective, Device, Point
from planner.units import GB, US
from tests.meshes import meshed

MODULE = Decoder(layers=4, hidden=64, heads=8, kv_heads=4, ffn=128, vocab=256)
MOE = changed(MODULE, moe=Experts(experts=4, topk=2, ffn=32))
DEVICE = Device(kind="cuda", memory_gib=10, tflops={"bf16": 100}, memory_gb_per_s=1000, reserved_gib=1)
COSTS = analytic_costs(MODULE, DEVICE, "bf16", "none")
BANDWIDTH, LATENCY = 10.0, 2.0  # GB/s, µs
LAYERS = Layers(range(4))
CALLS = 5  # a layer each, and the ends


def spread(zero: int = 1, gradients: str = "float32", **mesh: int) -> Layout:
    return Layout(ranks=Ranks(range(prod(mesh.values()))), **meshed(mesh), zero=zero, gradients=gradients)


def pricing(layout: Layout, module: Decoder = MODULE, per_node: int = 0, collectives=None) -> Pricing:
    size = len(layout.ranks)
    levels = [Level(name="all", ranks=size, gb_per_s=BANDWIDTH, latency_us=LATENCY)]
    if per_node:
        levels.insert(0, Level(name="node", ranks=per_node, gb_per_s=50 * BANDWIDTH, latency_us=LATENCY / 4))
    kinds = (RankKind(kind="gpu", count=size, per_node=per_node or size),)
    cluster = Cluster(format=Cluster.FORMAT, name="c", source="made up", ranks=kinds, levels=tuple(levels))
    prices = Prices(profile="made up", modules={"llm": COSTS}, collectives=collectives or {})
    return Pricing({"llm": module}, {"llm": layout}, cluster, prices)


def seconds(layout: Layout, phase: str, row: int | None = None, **of) -> float:
    return pricing(layout, **of).price(Task("llm", LAYERS, phase, row, "all", layout.ranks)).value


def ring(size_bytes: float, ranks: int) -> float:
    """An all-gather or a reduce-scatter in each of the calls: (n − 1)/n of the buffer, n − 1 hops."""
    bandwidth = BANDWIDTH * (ASSUMED.link_share or 1.0) * GB
    return size_bytes * (ranks - 1) / ranks / bandwidth + CALLS * (ranks - 1) * LATENCY * US if ranks > 1 else 0.0


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
@pytest.mark.parametrize(
    ("phase", "row"), [("gather", None), ("gather", 0), ("sync", None), ("sync", 0), ("update", None)]
)
def test_one_replica_is_none(zero, phase, row):
    """To the bit, wherever it stands in the mesh."""
    alone = seconds(spread(zero, dp=8), phase, row)
    assert alone > 0
    assert (
        seconds(spread(zero, replica=1, dp=8), phase, row)
        == seconds(spread(zero, dp=8, replica=1), phase, row)
        == alone
    )


@pytest.mark.parametrize("mesh", [{"replica": 8}, {"replica": 2, "dp": 4}, {"dp": 4, "replica": 2}])
def test_where_nothing_is_sharded_replicas_are_data_parallel_ranks(mesh):
    for phase in ("sync", "update"):
        assert seconds(spread(0, **mesh), phase) == seconds(spread(0, dp=8), phase)
    assert state_bytes(MODULE, spread(0, **mesh)) == state_bytes(MODULE, spread(0, dp=8))


@given(st.sampled_from([1, 2, 4, 8]), st.sampled_from([2, 4, 8]), st.booleans())
def test_a_sync_is_a_reduce_scatter_over_dp_and_an_all_reduce_of_shards_over_replicas(dp, replica, first):
    mesh = {"replica": replica, "dp": dp} if first else {"dp": dp, "replica": replica}
    held = parameters(MODULE).total * 2.0
    expected = ring(held, dp) + 2 * ring(held / dp, replica)
    assert seconds(spread(1, **mesh), "sync") == pytest.approx(expected, rel=1e-12)


@given(st.sampled_from([1, 2, 4, 8]), st.sampled_from([2, 4]))
def test_parameters_are_gathered_over_dp_alone(dp, replica):
    assert seconds(spread(1, replica=replica, dp=dp), "gather") == (
        seconds(spread(1, dp=dp), "gather") if dp > 1 else 0
    )
    assert seconds(spread(3, replica=replica, dp=dp), "gather", 0) == (
        seconds(spread(3, dp=dp), "gather", 0) if dp > 1 else 0
    )


@pytest.mark.parametrize("zero", [1, 2, 3])
def test_states_and_updates_are_those_of_one_replica(zero):
    many, one = spread(zero, replica=4, dp=2), spread(zero, dp=2)
    assert state_bytes(MODULE, many) == state_bytes(MODULE, one) > state_bytes(MODULE, spread(zero, dp=8))
    assert seconds(many, "update") == pytest.approx(seconds(one, "update"), rel=1e-12)
    assert (copies(many), copies(changed(many, zero=0))) == (4, 1)


def test_shards_within_a_node_send_less_between_nodes():
    """Nodes of four ranks: dp inside them is quicker than dp across, and than one dp over all (arXiv 2304.11277)."""
    inside, across, plain = (
        seconds(spread(1, **mesh), "sync", per_node=4) + seconds(spread(1, **mesh), "gather", per_node=4)
        for mesh in ({"replica": 4, "dp": 4}, {"dp": 4, "replica": 4}, {"dp": 16})
    )
    assert inside < plain and inside < across


@pytest.mark.parametrize("zero", [0, 1, 3])
def test_bf16_halves_the_bytes_that_are_reduced(zero, monkeypatch):
    sent = []
    of = Network.cost

    def cost(self, kind, size_bytes, calls):
        sent.append((kind, size_bytes, len(self.ranks)))
        return of(self, kind, size_bytes, calls)

    monkeypatch.setattr(Network, "cost", cost)
    row, held = (0 if zero == 3 else None), parameters(MODULE).total * 2.0
    for gradients, kind, size in (("float32", "reduce_scatter", held), ("bf16", "all_to_all", held / 2)):
        sent.clear()
        seconds(spread(zero, gradients, dp=8), "sync", row)
        assert sent == [(kind, size, 8)]
        sent.clear()
        seconds(spread(zero, gradients, dp=8), "gather", row)
        assert [each[0] for each in sent] == ["all_gather"]
    if zero:  # shards are all-reduced as they were summed, in float32
        sent.clear()
        seconds(spread(zero, "bf16", replica=2, dp=4), "sync", row)
        found = {*sent}
        assert found == {("all_to_all", held / 2, 4), ("reduce_scatter", held / 4, 2), ("all_gather", held / 4, 2)}


def test_bf16_is_priced_by_what_was_measured_of_all_to_alls():
    """As fast as a reduce-scatter of the same bytes: half the seconds."""
    points = (Point(ranks=8, gb_per_s=5.0),)
    table = Collective(source="measured", spread=0.1, points=points)
    measured = {"reduce_scatter": table, "all_to_all": table}
    full, half = (seconds(spread(1, how, dp=8), "sync", collectives=measured) for how in ("float32", "bf16"))
    assert full == 2 * half > 0


def test_of_experts_that_tp_shares_their_copies_alone_are_reduced():
    layout = spread(0, tp=4)
    held = 4 * expert_parameters(MOE) * 2.0
    moved = seconds(layout, "sync", module=MOE)
    bandwidth = BANDWIDTH * (ASSUMED.link_share or 1.0) * GB
    assert moved == pytest.approx(held * 3 / 4 / bandwidth + CALLS * 3 * LATENCY * US, rel=1e-12)


def test_a_stage_exchanges_its_own_layers_and_the_last_one_the_ends():
    layout = spread(1, replica=2, dp=4)
    price = pricing(layout).price
    parts = [price(Task("llm", Layers(at), "gather", None, "all", layout.ranks)) for at in ((0, 1), (2, 3))]
    more = (end_parameters(MODULE) * 2.0) * 3 / 4 / (BANDWIDTH * (ASSUMED.link_share or 1.0) * GB) + 3 * LATENCY * US
    assert parts[1].value - parts[0].value == pytest.approx(more, rel=1e-9)
    assert of_layers(MODULE, (0, 1)) == of_layers(MODULE, (2, 3))
    assert all(part.comm == part.value for part in parts)


@given(
    st.sampled_from([2, 4, 8]),
    st.sampled_from([2, 4]),
    st.sampled_from([1, 2]),
    st.permutations(["dp", "tp", "replica"]),
)
def test_ranks_that_share_tensors_send_their_parts_apart(dp, tp, replica, dims):
    """Each with those of the same part of tp: a tp-th of the bytes, over dp, and then over replicas."""
    sizes, held = {"dp": dp, "tp": tp, "replica": replica}, parameters(MODULE).total * 2.0 / tp
    mesh = {dim: sizes[dim] for dim in dims}
    expected = ring(held, dp) + 2 * ring(held / dp, replica)
    assert seconds(spread(1, **mesh), "sync") == pytest.approx(expected, rel=1e-12)
    for zero, row, times in ((1, None, 1), (3, 0, 2)):
        moved = ring(held, dp) if times == 1 else gathered_twice(held, dp, tp)
        assert seconds(spread(zero, **mesh), "gather", row) == pytest.approx(moved, rel=1e-12)
    assert seconds(spread(0, **mesh), "sync") == pytest.approx(ring(held, dp * replica), rel=1e-12)


def gathered_twice(held: float, dp: int, tp: int) -> float:
    """Layers in both passes, and the ends once."""
    layers = of_layers(MODULE, LAYERS) * 2.0 / tp
    more = ring(layers, dp) - (CALLS * (dp - 1) * LATENCY * US) + 4 * (dp - 1) * LATENCY * US
    return ring(held, dp) + more


def test_the_slowest_part_of_tp_is_what_all_wait_for():
    """Nodes of four ranks. Neighbours along dp are quicker than those with ranks of tp between them; and of three
    parts of tp on ranks 0 to 5, the second and the third have one rank on either node.
    """
    near, far = (seconds(spread(1, **mesh), "sync", per_node=4) for mesh in ({"tp": 2, "dp": 4}, {"dp": 4, "tp": 2}))
    assert near < far
    parts = spread(1, dp=2, tp=3)
    groups = state_groups(parts)[0]
    priced = pricing(parts, per_node=4)
    each = [priced.collective("reduce_scatter", 1e6, 5, groups[rank]).value for rank in range(3)]
    assert each[0] < each[1] == each[2] or each[0] == each[1] == each[2]
    held = parameters(MODULE).total * 2.0 / 3
    assert seconds(parts, "sync", per_node=4) == max(
        priced.collective("reduce_scatter", held, CALLS, groups[rank]).value for rank in range(3)
    )


@pytest.mark.parametrize("zero", [0, 1])
def test_stages_exchange_with_nobody_of_another_stage(zero):
    """Whichever dim is the slowest: a stage by itself costs what it does on ranks of its own."""
    held = of_layers(MODULE, (0, 1)) * 2.0 / 2
    for mesh in ({"pp": 2, "dp": 4, "tp": 2}, {"dp": 4, "pp": 2, "tp": 2}, {"dp": 4, "tp": 2, "pp": 2}):
        layout = spread(zero, **mesh)
        for stage, first in enumerate((0, 2)):
            task = Task("llm", Layers((first, first + 1)), "sync", None, "all", stage_ranks(layout, stage))
            moved = held + (end_parameters(MODULE) * 2.0 / 2 if stage else 0.0)
            bandwidth, calls = BANDWIDTH * (ASSUMED.link_share or 1.0) * GB, 2 + stage
            expected = moved * 3 / 4 / bandwidth + calls * 3 * LATENCY * US
            assert pricing(layout).price(task).value == pytest.approx(expected, rel=1e-12)


def test_prices_of_replicas_do_not_depend_on_micro_batches():
    layout = spread(3, replica=2, dp=4)
    task = Task("llm", LAYERS, "sync", 0, "all", layout.ranks)
    priced = pricing(layout)
    assert priced.price(task) == priced.price(replace(task, micro_batch=3))
