"""Tensor parallelism of modules that were measured on one rank: what its ranks send is what the runtime sends."""

from collections import defaultdict
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.costs.layer_pass import LayerPass
from planner.costs.pricing import Pricing, pricing_of
from planner.plan.plan_file import Layout, Plan, Prices
from planner.plan.tasks.expand import expand
from planner.runtime.run_options import RunOptions
from planner.specs.base import Ranks, with_fields
from planner.specs.hardware.cluster import Cluster, Level, RankKind
from planner.specs.hardware.profile import CollectiveCosts, CollectivePoint, Device, ModuleCosts, PassCosts, PassFit
from planner.specs.layers import Decoder, Vit
from planner.specs.layers.components import LatentAttentionShape
from planner.specs.sequence_sharding import SequenceSplit
from tests.examples import soaked
from tests.meshes import meshed
from tests.runtime.training_worlds import DECODER, asked_for, run_all, spread

NOTHING = PassCosts(forward=PassFit(), backward=PassFit())
ALONE = ModuleCosts(  # measured of one rank: comm alone is left
    source="fitted", spread=0.1, layer=NOTHING, recomputing={"selective": NOTHING, "full": NOTHING}, ends=NOTHING
)
KINDS = ("all_gather", "reduce_scatter", "all_to_all", "p2p")
FREELY = 1e15  # GB/s
DEVICE = Device(kind="cpu", memory_gib=4.0, tflops={"float32": 1.0}, memory_gb_per_s=10.0)

SHAPE = {"layers": 4, "hidden": 32, "heads": 8, "ffn": 48, "vocab": 64}
GPT = Decoder(**SHAPE, gated=False, norm="layer", bias="all", positions="learned", max_positions=100, tied=True)
ODD = Decoder(layers=4, hidden=32, heads=12, kv_heads=3, head_dim=4, ffn=45, vocab=63, bias="qkv")
VIT = Vit(layers=4, hidden=32, heads=8, ffn=48, patch=2, merge=2, out=6)
NARROW = Decoder(**SHAPE, latent=LatentAttentionShape(q_rank=24, kv_rank=16, nope_dim=8, rope_dim=4, value_dim=8))
STRAIGHT = Decoder(**SHAPE, latent=LatentAttentionShape(kv_rank=16, nope_dim=8, rope_dim=4, value_dim=8))
PLANS = {
    "tp 4": spread(4, tp=4, zero=0),
    "nothing divides": spread(4, ODD, tp=4, zero=0, recompute="full"),
    "gpt": spread(4, GPT, dp=2, tp=2, rows=[[(0, 1), (2, 3)]], recompute="full"),
    "selective": spread(4, tp=4, recompute="selective"),
    "unlike layers": spread(4, tp=4, recompute={"0": "full", "2-3": "selective"}),
    "narrow": spread(4, NARROW, tp=4, recompute="full"),
    "narrow, selective": spread(4, NARROW, tp=4, recompute="selective"),
    "straight": spread(4, STRAIGHT, tp=4, recompute="selective"),
    "vit": spread(4, VIT, dp=2, tp=2),
    "pipeline": spread(4, pp=2, tp=2),
    "backward in two": spread(4, pp=2, tp=2, order="zb_h1", zero=0),
    "ulysses": spread(4, dp=2, tp=2, zero=3, dtype="float32"),
    "tp slower": spread(4, tp=2, dp=2, rank_order="dp-tp", dtype="bf16"),
    "ring": spread(4, dp=2, tp=2, splits={(0, 1, 2, 3): {"ring": 2}}),
}


def even(plan: Plan) -> Plan:
    """With items whose tokens every rank has an even share of, in whole patches that are merged."""
    return with_fields(
        plan, uses=with_fields(plan.uses, items={"llm": {n: 32 * (1 + n % 3) for n in plan.uses.items["llm"]}})
    )


def table(gb_per_s: float, latency_us: float = 0.0) -> CollectiveCosts:
    return CollectiveCosts(
        source="measured", spread=0.1, points=(CollectivePoint(ranks=8, gb_per_s=gb_per_s, latency_us=latency_us),)
    )


def priced(plan: Plan, costs: ModuleCosts = ALONE, **tables: CollectiveCosts) -> Pricing:
    prices = Prices(profile="made up", modules={"llm": costs}, collectives=tables)
    return pricing_of(with_fields(plan, uses=with_fields(plan.uses, prices=prices)))


def predicted(plan: Plan) -> dict[tuple[str, int | None], float]:
    """By phase and micro-batch, the bytes that all ranks send to others, if a collective sends what is priced."""
    layout, found = plan.layouts["llm"], defaultdict(float)
    tp, sharers = layout.tp, 4 // layout.tp
    others = {"all_gather": (tp - 1) / tp, "reduce_scatter": (tp - 1) / tp, "all_to_all": (sharers - 1) / sharers}
    for kind in KINDS:
        tables = {each: table(1.0 if each == kind else FREELY) for each in KINDS}
        pricing = priced(plan, **tables)
        for task in expand(plan):
            if task.phase not in ("gather", "sync", "recv"):  # what FSDP2 sends has tests of its own
                sent = pricing.price(task).comm * 1e9 * others.get(kind, 1.0)
                found[task.phase, task.micro_batch] += sent * len(task.ranks)
    return found


OFTEN = (  # the others in the soak
    "tp 4", "nothing divides", "unlike layers", "narrow, selective", "vit", "backward in two", "ulysses", "ring",
)  # fmt: skip


@pytest.fixture(scope="module")
def runs(request):
    asked = asked_for(request, "name")
    return run_all(4, {name: even(PLANS[name]) for name in asked}, RunOptions(steps=1, seed=5))


@pytest.mark.slow
@pytest.mark.parametrize("name", soaked(PLANS, OFTEN))
@pytest.mark.every(8)
def test_bytes_are_those_that_the_runtime_counts(runs, name):
    plan, (step, *_) = even(PLANS[name]), runs[name].steps
    tasks, counted = {task.id: task for task in expand(plan)}, defaultdict(int)
    for each in step.measured:
        counted[tasks[each.id].phase, tasks[each.id].micro_batch] += each.sent_bytes
    want = predicted(plan)
    assert {key: counted[key] for key in want} == pytest.approx(want, rel=1e-6)
    assert counted["F", 0] > 0 and counted["update", None] > 0


LEVELS = (
    Level(name="node", ranks=4, gb_per_s=100, latency_us=2),
    Level(name="far", ranks=16, gb_per_s=5, latency_us=9),
)
CLUSTER = Cluster(
    format=Cluster.FORMAT,
    name="four nodes",
    source="made up",
    ranks=(RankKind(kind="toy", count=16, per_node=4),),
    levels=LEVELS,
)


def line(mesh: dict[str, int], ranks: Sequence[int], layers: int = 4, forward: bool = True, ends: bool = False, **said):
    """Of a group whose tokens are split by Ulysses, without Ulysses' own sending."""
    size, tp = len(ranks), mesh.get("tp", 1)
    layout = Layout(ranks=Ranks(range(16)), **meshed(mesh), zero=1)
    prices = Prices(
        profile="made up", modules={"llm": with_fields(ALONE, **said)}, collectives={"all_to_all": table(FREELY)}
    )
    pricing = Pricing({"llm": DECODER}, {"llm": layout}, CLUSTER, prices, {"toy": DEVICE})
    part = LayerPass("llm", layers, ends, Ranks(ranks), SequenceSplit(size // tp), forward, (("none", layers),))
    return pricing.pass_line(part, "toy")[0]


@given(st.booleans(), st.booleans(), st.integers(1, 10**5))
def test_one_rank_of_tp_adds_nothing(forward, ends, tokens):
    assert line({"dp": 16}, range(1), forward=forward, ends=ends).seconds((tokens,)) == 0.0


@given(st.booleans(), st.integers(1, 10**5))
def test_more_ranks_of_tp_never_send_for_less(forward, tokens):
    """A block gathers as many tokens however many ranks it has."""
    seconds = [
        line({"dp": 16 // tp, "tp": tp}, range(tp), forward=forward, ends=True).comm_seconds((tokens,))
        for tp in (2, 4, 8)
    ]
    assert 0.0 < seconds[0] < seconds[1] < seconds[2]


@given(st.integers(1, 4), st.booleans())
def test_twice_the_layers_are_twice_the_line(layers, forward):
    once, twice = (line({"dp": 8, "tp": 2}, range(2), count, forward) for count in (layers, 2 * layers))
    assert (twice.comm_lin, twice.comm_const) == pytest.approx((2 * once.comm_lin, 2 * once.comm_const))
    assert once.comm_lin > 0 and once.comm_const > 0
    assert (once.lin, once.const, once.quad) == (once.comm_lin, once.comm_const, 0.0)


def test_the_ranks_of_a_group_share_the_tokens_that_a_block_gathers():
    one, two = (line({"dp": 16 // 2, "tp": 2}, range(size)) for size in (2, 4))
    assert (two.comm_lin, two.comm_const) == pytest.approx((one.comm_lin / 2, one.comm_const))


def test_the_slowest_block_counts():
    """Ranks 0-1 and 2-3 lie within a node; of tp as the slowest dim a block has a rank on each of two nodes."""
    near, far = line({"dp": 8, "tp": 2}, range(4)), line({"tp": 2, "dp": 8}, (0, 1, 8, 9))
    assert far.comm_lin > near.comm_lin and far.comm_const > near.comm_const
    alike, cut = (line({"dp": 4, "tp": 4}, range(first, first + 4)) for first in (0, 4))
    assert alike == cut


def test_heads_are_shared_out_among_ranks_with_the_same_part_of_tp():
    """Not among all ranks of the group: with tp as the faster dim, only these cross to another node."""
    tables = {kind: table(FREELY) for kind in KINDS if kind != "all_to_all"}
    prices = Prices(profile="made up", modules={"llm": ALONE}, collectives=tables)
    of_mesh = [
        Pricing(
            {"llm": DECODER},
            {"llm": Layout(ranks=Ranks(range(16)), **meshed(mesh), zero=1)},
            CLUSTER,
            prices,
            {"toy": DEVICE},
        )
        for mesh in ({"dp": 4, "tp": 4}, {"tp": 2, "dp": 8})
    ]
    across, within = (
        pricing.pass_line(LayerPass("llm", 4, False, ranks, SequenceSplit(2), True, (("none", 4),)), "toy")[0]
        for pricing, ranks in zip(of_mesh, (Ranks(range(8)), Ranks((0, 1, 8, 9))), strict=True)
    )
    assert across.comm_const > within.comm_const > 0


@pytest.mark.parametrize(
    "said",
    [
        {"source": "published"},
        {"source": "analytic"},
        {"tp": 2},
    ],
    ids=lambda said: "-".join(said),
)
def test_fits_that_are_of_more_than_a_rank_alone_stay_as_they_are(said):
    assert line({"dp": 8, "tp": 2}, range(2), **said).seconds((100,)) == 0.0
    plan = even(PLANS["tp 4"])
    assert all(priced(plan, with_fields(ALONE, **said)).price(task).value == 0.0 for task in expand(plan))


def test_an_update_waits_for_one_sum_over_a_block():
    """Latency counts: the bytes of norms are few."""
    plan = even(PLANS["tp 4"])
    (update,) = [task for task in expand(plan) if task.phase == "update"]
    tables = {kind: table(FREELY, latency_us=5.0) for kind in KINDS}
    assert priced(plan, **tables).price(update).comm == pytest.approx(10e-6)
    assert priced(plan, with_fields(ALONE, source="published"), **tables).price(update).comm == 0.0
