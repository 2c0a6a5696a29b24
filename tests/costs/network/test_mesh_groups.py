"""Groups of columns against the ranks of a plan's mesh, in every order of dims, on nodes, racks and a cluster."""

import random
from itertools import permutations

import numpy as np
import pytest

from planner.costs.layer_pass import LayerPass
from planner.costs.layout_columns import columns_of, stack_columns
from planner.costs.memory.communicators import GROUP_BUFFERS, PAIR_BUFFERS, communicator_bytes
from planner.costs.network.layer_traffic import layer_groups, stage_sends
from planner.costs.network.mesh_groups import group_on_stage
from planner.costs.network.rank_groups import expert_groups, pass_groups, replicated_by_task
from planner.costs.network.replica_exchange import replicated_on_stage
from planner.costs.network_model import NetworkLevel, NetworkModel, group_of_ranks
from planner.plan.mesh.rank_mesh import expert_groups_over, groups_over, stage_ranks
from planner.plan.plan_file import Layout
from planner.plan.task import Task
from planner.specs.base import Layers, Ranks
from planner.specs.hardware.cluster import Cluster, Level, RankKind
from planner.specs.parallelism import MESH_DIMS
from tests.costs.machines import MIXTRAL, ideal

SIZES = {"node": 4, "rack": 16, "pod": 64}
RANKS, SIZE = 64, 1e9
CLUSTER = Cluster(
    format=Cluster.FORMAT,
    name="made-up",
    source="made up",
    ranks=(RankKind(kind="gpu", count=RANKS, per_node=4),),
    levels=tuple(Level(name=n, ranks=r, gb_per_s=400 / r, latency_us=float(r)) for n, r in SIZES.items()),
)
NETWORK = NetworkModel(tuple(NetworkLevel(each.ranks, each.gb_per_s, each.latency_us) for each in CLUSTER.levels))
ORDERS = ["-".join(dims) for dims in permutations(MESH_DIMS)]


def random_layouts(seed, count):
    """Layouts of 64 ranks in this or that order, with experts folded over the ranks of a stage."""
    draw = random.Random(seed)
    for _ in range(count):
        sizes = dict.fromkeys(MESH_DIMS, 1)
        for _ in range(6):
            sizes[draw.choice(MESH_DIMS)] *= 2
        stage = RANKS // sizes["pp"]
        ep = 2 ** draw.randrange(min(stage, 8).bit_length())
        etp = 2 ** draw.randrange(min(stage // ep, 4).bit_length())
        ulysses = 2 ** draw.randrange(sizes["cp"].bit_length())
        order = draw.choice(ORDERS)
        stages = tuple(Layers((n,)) for n in range(sizes["pp"])) if sizes["pp"] > 1 else ()
        yield Layout(
            ranks=Ranks(range(RANKS)), **sizes, ep=ep, etp=etp, ulysses=ulysses, rank_order=order, stages=stages,
            zero=draw.choice((0, 1)) if sizes["replica"] == 1 else 1,
        )  # fmt: skip


def seconds(group):
    """Seconds of every collective over a group."""
    return [float(each(SIZE, group)) for each in (NETWORK.all_gather, NETWORK.all_to_all)]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.every(2)
def test_passes_and_experts_exchange_among_the_same_ranks(seed):
    for layout in random_layouts(seed, 40):
        at, ranks = columns_of(layout), stage_ranks(layout, layout.pp - 1)
        whole = groups_over(layout, ("tp", "cp"))[ranks[0]]
        part = LayerPass("llm", 1, False, whole, layout.default_split, True, (("none", 1),), ())
        real, found = pass_groups(part, layout, CLUSTER), layer_groups(at, 4)
        assert seconds(real.tensor) == pytest.approx(seconds(found.tensor))
        assert seconds(real.heads) == pytest.approx(seconds(found.heads))
        assert float(NETWORK.p2p(SIZE, real.ring)) == pytest.approx(float(NETWORK.p2p(SIZE, found.ring)))
        experts = expert_groups(ranks, layout, CLUSTER)
        for own, (size, stride) in zip(experts, ((at.ep, at.etp), (at.etp, 1), (at.ep * at.etp, 1)), strict=True):
            assert seconds(own) == pytest.approx(seconds(group_on_stage(at, size, stride, 4))), layout


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.every(2)
def test_replicas_exchange_among_the_same_ranks(seed):
    for layout in random_layouts(seed, 40):
        task = Task("llm", Layers((0,)), "sync", None, "all", stage_ranks(layout, 0))
        real = replicated_by_task(task, MIXTRAL, layout, CLUSTER)
        for own, other in zip(real, replicated_on_stage(MIXTRAL, columns_of(layout), 4), strict=True):
            assert seconds(own.shard) == pytest.approx(seconds(other.shard)), layout
            assert seconds(own.copies) == pytest.approx(seconds(other.copies)), layout


@pytest.mark.parametrize("seed", range(4))
def test_each_send_takes_the_link_between_its_stages(seed):
    machine = ideal(network=NETWORK)
    for layout in random_layouts(seed, 40):
        at, firsts = columns_of(layout), [stage_ranks(layout, stage)[0] for stage in range(layout.pp)]
        size = float(at.tokens) * MIXTRAL.hidden * 2 / layout.tp
        pairs = [Ranks((firsts[n], firsts[n + 1])) for n in range(layout.pp - 1)]
        found = stage_sends(MIXTRAL, at, machine)
        sent = sum(float(NETWORK.p2p(size, group_of_ranks(CLUSTER, pair))) for pair in pairs)
        assert float(found.through) == pytest.approx(sent * machine.exposed_send_share)
        if layout.pp > 1:
            whole = group_of_ranks(CLUSTER, Ranks((firsts[0], firsts[-1])))
            assert float(found.back) == pytest.approx(float(NETWORK.p2p(size, whole)) * machine.exposed_send_share)


@pytest.mark.parametrize("seed", range(4))
def test_communicators_of_experts_are_counted_by_rank(seed):
    for layout in random_layouts(seed, 40):
        rank = stage_ranks(layout, 0)[0]
        along = (("tp",), ("cp",), ("cp", "dp"), ("cp", "dp", "replica"), MESH_DIMS)
        known = {groups_over(layout, dims)[rank] for dims in along}
        own = {expert_groups_over(layout, dims)[rank] for dims in (("etp",), ("ep",), ("edp",))} - known
        sizes = [len(group) for group in own if len(group) > 1]
        total = GROUP_BUFFERS + sum(GROUP_BUFFERS if size >= 4 else PAIR_BUFFERS for size in sizes)
        assert float(communicator_bytes(MIXTRAL, columns_of(layout))) == total, layout


def test_arrays_give_what_each_layout_gives():
    same = [each for each in random_layouts(1, 400) if each.rank_order == "cp-pp-dp-tp-replica"]
    each = [columns_of(layout) for layout in same]
    many = group_on_stage(stack_columns(each), np.array([at.ep for at in each], dtype=float), 1, 4)
    for place, at in enumerate(each):
        one = group_on_stage(at, at.ep, 1, 4)
        assert [float(np.broadcast_to(number, len(each))[place]) for number in many] == [float(n) for n in one]
    assert len(each) > 1
