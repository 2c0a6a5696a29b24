"""Seconds of gathers and reductions among replicas: HSDP by its formula, and bf16 gradients in half the bytes."""

from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.costs.compute.assumed_rates import ASSUMED_RATES
from planner.costs.layout_columns import columns_of
from planner.costs.memory.model_states import zero_state_bytes
from planner.costs.network.rank_groups import replicated_by_task
from planner.costs.network.replica_exchange import replicated_on_stage
from planner.costs.network_model import group_of_ranks
from planner.costs.pricing import Pricing
from planner.plan.mesh.rank_mesh import stage_ranks, state_groups
from planner.plan.plan_file import Layout, Prices
from planner.plan.task import Task
from planner.specs.base import Layers, Ranks, with_fields
from planner.specs.framework.memory_coefficients import PLANNER_RUNTIME_MEMORY
from planner.specs.hardware.cluster import Cluster, Level, RankKind
from planner.specs.hardware.profile import CollectiveCosts, CollectivePoint, Device, ModuleCosts, PassCosts, PassFit
from planner.specs.layers import Decoder
from planner.specs.layers.components import Experts
from planner.specs.parameters import (
    embedding_head_parameters,
    expert_parameters,
    parameter_counts,
    parameters_of_layers,
)
from planner.units import GB, US
from tests.meshes import meshed

MODULE = Decoder(layers=4, hidden=64, heads=8, kv_heads=4, ffn=128, vocab=256)
MOE = with_fields(MODULE, moe=Experts(experts=4, topk=2, ffn=32))
DEVICE = Device(kind="cuda", memory_gib=10, tflops={"bf16": 100}, memory_gb_per_s=1000, reserved_gib=1)
NOTHING = PassCosts(forward=PassFit(), backward=PassFit())  # no compute hides any exchange
COSTS = ModuleCosts(source="measured", spread=0.1, layer=NOTHING, ends=NOTHING, update_ns_per_parameter=1.0)
BANDWIDTH, LATENCY = 10.0, 2.0  # GB/s, µs
LAYERS = Layers(range(4))
CALLS = 5  # a layer each, and the ends
GRADIENT = 4.0  # bytes, of a model that is computed with in bf16


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
    return Pricing({"llm": module}, {"llm": layout}, cluster, prices, {"gpu": DEVICE})


def seconds(layout: Layout, phase: str, micro_batch: int | None = None, **of) -> float:
    return pricing(layout, **of).price(Task("llm", LAYERS, phase, micro_batch, "all", layout.ranks)).value


def state_bytes(layout: Layout) -> float:
    return float(zero_state_bytes(MODULE, columns_of(layout), PLANNER_RUNTIME_MEMORY, 0).total)


def ring(size_bytes: float, ranks: int) -> float:
    """An all-gather or a reduce-scatter in each of the calls: (n − 1)/n of the buffer, n − 1 hops."""
    bandwidth = BANDWIDTH * (ASSUMED_RATES.link_share or 1.0) * GB
    return size_bytes * (ranks - 1) / ranks / bandwidth + CALLS * (ranks - 1) * LATENCY * US if ranks > 1 else 0.0


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
@pytest.mark.parametrize(
    ("phase", "micro_batch"), [("gather", None), ("gather", 0), ("sync", None), ("sync", 0), ("update", None)]
)
def test_one_replica_is_none(zero, phase, micro_batch):
    """To the bit, wherever it stands in the mesh."""
    alone = seconds(spread(zero, dp=8), phase, micro_batch)
    assert (alone > 0) == (phase != "gather" or zero > 0)
    assert (
        seconds(spread(zero, replica=1, dp=8), phase, micro_batch)
        == seconds(spread(zero, dp=8, replica=1), phase, micro_batch)
        == alone
    )


@pytest.mark.parametrize("mesh", [{"replica": 8}, {"replica": 2, "dp": 4}, {"dp": 4, "replica": 2}])
def test_where_nothing_is_sharded_replicas_are_data_parallel_ranks(mesh):
    for phase in ("sync", "update"):
        assert seconds(spread(0, **mesh), phase) == seconds(spread(0, dp=8), phase)
        near, plain = (seconds(spread(0, **each, tp=4), phase, per_node=8) for each in (mesh, {"dp": 8}))
        assert near == plain  # also where they lie on several nodes, and within one not side by side
    assert state_bytes(spread(0, **mesh)) == state_bytes(spread(0, dp=8))


@given(st.sampled_from([1, 2, 4, 8]), st.sampled_from([2, 4, 8]), st.booleans())
def test_a_sync_is_a_reduce_scatter_over_dp_and_an_all_reduce_of_shards_over_replicas(dp, replica, first):
    mesh = {"replica": replica, "dp": dp} if first else {"dp": dp, "replica": replica}
    held = parameter_counts(MODULE).total * GRADIENT
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
    assert state_bytes(many) == state_bytes(one) > state_bytes(spread(zero, dp=8))
    assert seconds(many, "update") == pytest.approx(seconds(one, "update"), rel=1e-12)


def test_shards_within_a_node_send_less_between_nodes():
    """Nodes of four ranks: dp inside them is quicker than dp across, and where every micro-batch gathers also than one
    dp over all (arXiv 2304.11277).
    """
    inside, across, plain = (
        seconds(spread(3, **mesh), "sync", 0, per_node=4) + seconds(spread(3, **mesh), "gather", 0, per_node=4)
        for mesh in ({"replica": 4, "dp": 4}, {"dp": 4, "replica": 4}, {"dp": 16})
    )
    assert inside < plain and inside < across


def sent(layout: Layout, phase: str, micro_batch: int | None = None) -> dict[str, float]:
    """Bytes of each kind of collective that sends any: seconds where it takes one a nanosecond, and others nothing."""
    found = {}
    for kind in KINDS:
        tables = {each: table(1.0 if each == kind else 1e18) for each in KINDS}
        found[kind] = round(seconds(layout, phase, micro_batch, collectives=tables) * 1e9)
    return {kind: size for kind, size in found.items() if size}


KINDS = ("all_gather", "reduce_scatter", "all_to_all")


def table(gb_per_s: float) -> CollectiveCosts:
    return CollectiveCosts(source="measured", spread=0.1, points=(CollectivePoint(ranks=8, gb_per_s=gb_per_s),))


@pytest.mark.parametrize("zero", [0, 1, 3])
def test_bf16_halves_the_bytes_that_are_reduced(zero):
    """Below ZeRO-1 sums are gathered again, in float32; by ZeRO-3 layers' parameters, for backward."""
    micro_batch, held = (0 if zero == 3 else None), parameter_counts(MODULE).total * 4
    again = {0: held, 1: 0, 3: parameters_of_layers(MODULE, LAYERS) * 2}[zero]
    rest = {"all_gather": again} if again else {}
    assert sent(spread(zero, dp=8), "sync", micro_batch) == {"reduce_scatter": held, **rest}
    assert sent(spread(zero, "bf16", dp=8), "sync", micro_batch) == {"all_to_all": held / 2, **rest}
    for gradients in ("float32", "bf16"):
        assert sent(spread(zero, gradients, dp=8), "gather", micro_batch) == ({"all_gather": held / 2} if zero else {})
    if zero:  # shards are all-reduced as they were summed, in float32
        found = sent(spread(zero, "bf16", replica=2, dp=4), "sync", micro_batch)
        assert found == {"all_to_all": held / 2, "reduce_scatter": held / 4, "all_gather": held / 4 + again}


def test_bf16_is_priced_by_what_was_measured_of_all_to_alls():
    """As fast as a reduce-scatter of the same bytes: half the seconds."""
    measured = {"reduce_scatter": table(5.0), "all_to_all": table(5.0)}
    full, half = (seconds(spread(1, how, dp=8), "sync", collectives=measured) for how in ("float32", "bf16"))
    assert full == 2 * half > 0


def test_of_experts_that_tp_shares_their_copies_alone_are_reduced():
    layout = spread(0, tp=4)
    assert seconds(layout, "sync", module=MOE) == pytest.approx(2 * ring(4 * expert_parameters(MOE) * GRADIENT, 4))


def test_stages_exchange_their_own_layers_the_first_the_embedding_and_the_last_the_head():
    """Layers are alike; of those in the middle nothing else is sent. A tied embedding is on both."""
    layout = spread(1, pp=4, replica=2, dp=4)
    of = {
        tied: [seconds_of(layout, stage, with_fields(MODULE, tied=tied)) for stage in range(4)]
        for tied in (False, True)
    }
    table, norm = MODULE.vocab * MODULE.hidden * 2.0, MODULE.hidden * 2.0
    rate = 3 / 4 / (BANDWIDTH * (ASSUMED_RATES.link_share or 1.0) * GB)
    for first, second, third, last in of.values():
        assert second == third > 0
        assert first - second == pytest.approx(table * rate + 3 * LATENCY * US, rel=1e-9)
        assert last - second == pytest.approx((table + norm) * rate + 3 * LATENCY * US, rel=1e-9)
    assert table + table + norm == embedding_head_parameters(MODULE) * 2.0


def seconds_of(layout: Layout, stage: int, module: Decoder) -> float:
    """Of a stage's gathering."""
    task = Task("llm", Layers((stage,)), "gather", None, "all", stage_ranks(layout, stage))
    found = pricing(layout, module).price(task)
    assert found.comm == found.value
    return found.value


@given(
    st.sampled_from([2, 4, 8]),
    st.sampled_from([2, 4]),
    st.sampled_from([1, 2]),
    st.permutations(["dp", "tp", "replica"]),
)
def test_ranks_that_share_tensors_send_their_parts_apart(dp, tp, replica, dims):
    """Each with those of the same part of tp: a tp-th of the bytes, over dp, and then over replicas."""
    sizes, held = {"dp": dp, "tp": tp, "replica": replica}, parameter_counts(MODULE).total / tp
    mesh = {dim: sizes[dim] for dim in dims}
    reduced = ring(held * GRADIENT, dp) + 2 * ring(held * GRADIENT / dp, replica)
    assert seconds(spread(1, **mesh), "sync") == pytest.approx(reduced, rel=1e-12)
    again = ring(parameters_of_layers(MODULE, LAYERS) * 2.0 / tp, dp)  # for backward; the ends stayed
    assert seconds(spread(3, **mesh), "sync", 0) == pytest.approx(reduced + again, rel=1e-12)
    for zero, micro_batch in ((1, None), (3, 0)):
        assert seconds(spread(zero, **mesh), "gather", micro_batch) == pytest.approx(ring(held * 2.0, dp), rel=1e-12)
    assert seconds(spread(0, **mesh), "sync") == pytest.approx(2 * ring(held * GRADIENT, dp * replica), rel=1e-12)


def test_the_slowest_part_of_tp_is_what_all_wait_for():
    """Nodes of four ranks. Neighbours along dp are quicker than those with ranks of tp between them; and of three
    parts of tp on ranks 0 to 5, the second and the third have one rank on either node.
    """
    near, far = (seconds(spread(1, **mesh), "sync", per_node=4) for mesh in ({"tp": 2, "dp": 4}, {"dp": 4, "tp": 2}))
    assert near < far
    parts = spread(1, dp=2, tp=3)
    groups = state_groups(parts)[0]
    priced, held = pricing(parts, per_node=4), parameter_counts(MODULE).total * GRADIENT / 3
    network = priced.module_pricing("llm", "gpu").machine.network
    each = [
        float(network.reduce_scatter(held, group_of_ranks(priced.cluster, groups[rank]), CALLS)) for rank in range(3)
    ]
    assert each[0] < each[1] == each[2] == seconds(parts, "sync", per_node=4)


@pytest.mark.parametrize("zero", [0, 1])
def test_stages_exchange_with_nobody_of_another_stage(zero):
    """Whichever dim is the slowest: a stage by itself costs what it does on ranks of its own."""
    held = parameters_of_layers(MODULE, (0, 1)) * GRADIENT / 2
    for mesh in ({"pp": 2, "dp": 4, "tp": 2}, {"dp": 4, "pp": 2, "tp": 2}, {"dp": 4, "tp": 2, "pp": 2}):
        layout = spread(zero, **mesh)
        for stage, first in enumerate((0, 2)):
            task = Task("llm", Layers((first, first + 1)), "sync", None, "all", stage_ranks(layout, stage))
            table, norm = MODULE.vocab * MODULE.hidden / 2, MODULE.hidden
            moved = held + GRADIENT * (table + norm if stage else table)
            bandwidth, calls = BANDWIDTH * (ASSUMED_RATES.link_share or 1.0) * GB, 3
            expected = moved * 3 / 4 / bandwidth + calls * 3 * LATENCY * US
            times = 1 if zero else 2  # sums are gathered again
            assert pricing(layout).price(task).value == pytest.approx(times * expected, rel=1e-12)


@pytest.mark.parametrize("module", [MODULE, MOE])
@pytest.mark.parametrize(
    "mesh",
    [{"dp": 16}, {"dp": 4, "tp": 4}, {"replica": 2, "dp": 8}, {"replica": 4, "dp": 2, "tp": 2}, {"dp": 4, "cp": 4}],
)
def test_the_closed_form_has_the_same_parameters_among_the_same_ranks(module, mesh):
    """Of a whole module in the usual order of ranks; experts over all, over half, and over none of them."""
    for ep in (1, 2, 4) if module is MOE else (1,):
        layout = with_fields(spread(1, **mesh), ep=ep)
        task = Task("llm", LAYERS, "sync", None, "all", layout.ranks)
        priced = pricing(layout, module, per_node=8)
        network = priced.module_pricing("llm", "gpu").machine.network
        for one, other in zip(
            replicated_by_task(task, module, layout, priced.cluster),
            replicated_on_stage(module, columns_of(layout), 8),
            strict=True,
        ):
            assert (one.count, one.stay_gathered) == (float(other.count), float(other.stay_gathered))
            if one.count:
                for mine, theirs in ((one.shard, other.shard), (one.copies, other.copies)):
                    assert mine.size == theirs.size
                    assert float(network.all_gather(1e9, mine)) == float(network.all_gather(1e9, theirs))
