"""Each law of a legal plan: a legal plan, one thing changed, and the finding that says where, what, and the fix."""

import pytest

from planner.errors import InputError
from planner.plan.legal.plan_laws import require_legal, violations
from planner.plan.plan_file import Edge, Group, Layout, OffloadedItem, SharedDeviceItems, Step, TaskPlacement
from planner.specs.base import Layers, Ranks, with_fields
from planner.specs.hardware.cluster import RankKind
from planner.specs.job import Fix, FixedItem, Limits
from tests.meshes import meshed
from tests.plans import encoder_plan, sharded_plan, staged_plan

SHARDED = sharded_plan(4, [[(0, 2), (2, 1), (3, 1)], [(0, 4)]])  # items 0, 1, 2 of 16, 19, 22 tokens, then 3 of 25
STAGED = staged_plan(2, 3)
ENCODER = encoder_plan()
AGAIN = with_fields(ENCODER, groups={**ENCODER.groups, "again": Group(ranks=Ranks((0, 1)))})


def step(plan, **fields):
    return with_fields(plan, steps=(with_fields(plan.steps[0], **fields),))


def rows(plan, *micro_batches):
    return step(plan, micro_batches=micro_batches)


def layout(plan, name="llm", **fields):
    return with_fields(plan, layouts={**plan.layouts, name: with_fields(plan.layouts[name], **fields)})


def group(plan, name, ranks, **fields):
    return with_fields(plan, groups={**plan.groups, name: Group(ranks=Ranks(ranks), **fields)})


def uses(plan, **fields):
    return with_fields(plan, uses=with_fields(plan.uses, **fields))


def tensors(mesh, ranks, **fields):
    """One micro-batch of item 0 on a group of a layout of this mesh over 4 ranks."""
    plan = layout(SHARDED, **{"dp": 1, **meshed(mesh)}, zero=0)
    plan = rows(group(plan, "g", ranks, **fields), {"g": (0, 1, 2, 3)})
    return step(plan, sync="step")


def cp(ranks=range(4), **fields):
    """The same, of a layout that shards items over two ranks."""
    return tensors({"dp": 2, "cp": 2}, ranks, **fields)


def part(share, *items):
    return SharedDeviceItems(items=items, share=share)


def fixed(plan, item, degree):
    return uses(plan, fix=Fix(items={item: FixedItem(degree=degree)}))


def order(plan, **orders):
    return step(plan, order=orders)


# plan, where, part of the message
BROKEN = [
    (uses(SHARDED, models={}), "layouts.llm", "no module is called `llm`"),
    (uses(SHARDED, items={}), "uses.items.llm", "has no items"),
    (uses(SHARDED, devices={}), "ranks", "the device `toy` is not described"),
    (with_fields(SHARDED, ranks=(RankKind(kind="toy", count=9, per_node=9),)), "ranks", "9 ranks, its cluster 4"),
    (with_fields(ENCODER, edges=(Edge(source="vit", target="x"),)), "edges[0]", "`x`, which has no layout"),
    (with_fields(ENCODER, edges=(Edge(source="vit", target="vit"),)), "edges[0]", "leads back to `vit`"),
    (with_fields(ENCODER, edges=(*ENCODER.edges, Edge(source="llm", target="vit"))), "edges[1]", "leads back to `llm`"),
    (
        with_fields(ENCODER, edges=(Edge(source="vit", target="llm", reshard="zigzag"),)),
        "edges[0]",
        "no group of `llm` is a ring",
    ),
    (
        with_fields(ENCODER, groups={**ENCODER.groups, "all": with_fields(ENCODER.groups["all"], split={"ring": 4})}),
        "edges[0]",
        "group all of `llm` is a ring",
    ),
    (with_fields(ENCODER, edges=ENCODER.edges * 2), "edges[1]", "`vit` feeds `llm` twice"),
    (uses(ENCODER, feeds={"vit": {0: 0}}), "uses.feeds.vit", "item 1 of `vit` feeds nothing"),
    (uses(ENCODER, feeds={"vit": {0: 0, 1: 7}}), "uses.feeds.vit", "feeds item 7 of `llm`"),
    (uses(ENCODER, feeds={"vit": {0: (), 1: 1}}), "uses.feeds.vit", "item 0 of `vit` feeds nothing"),
    (uses(ENCODER, feeds={"vit": {0: (0, 0), 1: 1}}), "uses.feeds.vit", "feeds item 0 of `llm` twice"),
    (uses(ENCODER, feeds={"vit": {0: 0}, "vit>llm": {1: 1}}), "uses.feeds.vit", "is under vit>llm too"),
    (uses(ENCODER, feeds={**ENCODER.uses.feeds, "vit>x": {}}), "uses.feeds.vit>x", "no edge leads from `vit` to `x`"),
    (with_fields(ENCODER, edges=()), "uses.feeds.vit", "no edge leads from `vit`"),
    (uses(with_fields(ENCODER, edges=()), feeds={}), "layouts.vit", "no module reads the outputs of `vit`"),
    (order(STAGED, llm="2f2b"), "steps[0].order.llm", "no schedule is called `2f2b`"),
    (order(STAGED, llm=()), "steps[0].order.llm", "this is no schedule"),
    (order(ENCODER, place="1f1b"), "steps[0].order.place", "is no list of placements"),
    (order(STAGED, vit="1f1b"), "steps[0].order.vit", "has no effect"),
    (order(ENCODER, vit="1f1b"), "steps[0].order.vit", "has no effect"),
    (layout(STAGED, ranks=Ranks((0, 9))), "layouts.llm", "rank 9 does not exist, there are 2"),
    (layout(SHARDED, dp=3), "layouts.llm", "dp 3 makes 3 ranks, and the layout has 4"),
    (layout(STAGED, stages=(Layers(range(4)),)), "layouts.llm", "1 stages for pp = 2"),
    (layout(STAGED, stages=()), "layouts.llm", "0 stages for pp = 2"),
    (layout(STAGED, stages=(Layers((0, 1)), Layers((3,)))), "layouts.llm.stages", "layer 2 in no stage"),
    (group(STAGED, "all", (0, 7)), "groups.all", "ranks 0,7 are not among 0-1"),
    (cp(split={"ulysses": 4}), "groups.g.split", "over 4 ranks, and the layout of `llm` has cp 2"),
    (rows(STAGED, {"all": (0,)}, {"all": (2,)}), "uses.items.llm", "item 1 of `llm` is assigned nowhere"),
    (rows(STAGED, {"all": (0, 1)}, {"all": (2, 1)}), "uses.items.llm", "item 1 of `llm` is assigned 2 times"),
    (step(SHARDED, sync="step"), "steps[0].sync", "ZeRO-3, synchronise in every micro-batch"),
    (step(STAGED, sync="micro_batch"), "steps[0].sync", "so the ranks synchronise once a step"),
    (with_fields(STAGED, steps=(*STAGED.steps, Step(sync="step", micro_batches=({},)))), "steps[1]", "has no items"),
    (
        rows(group(SHARDED, "odd", (0, 1, 2), split={"ulysses": 3}), {"odd": (0, 1, 2, 3)}),
        "groups.odd",
        "16 heads cannot be sharded over 3 ranks",
    ),
    (
        tensors({"dp": 2, "tp": 2}, range(4), split={"ulysses": 16}),
        "groups.g",
        "the 8 heads of a rank with tp = 2 cannot be sharded over 16 ranks",
    ),
    (
        encoder_plan((TaskPlacement(do="vit.F9", on="v0", before="llm.F0"),)),
        "steps[0].order.place[0]",
        "the placement names no task: `vit.F9 on v0`",
    ),
]
# the same, all in the first micro-batch
BROKEN_ROWS = [
    (rows(ENCODER, {"all": (0,)}), "without naming their module"),
    (rows(STAGED, {"x": {"all": (0,)}}), "no layout is called `x`"),
    (rows(STAGED, {"x": (0, 1, 2)}), "no group is called `x`"),
    (rows(STAGED, {"all": (0, 1, 2, 9)}), "item 9 of `llm` is unknown"),
    (rows(STAGED, {"llm[0-1]": {"all": (0, 1, 2)}}), "only whole modules can be assigned"),
    (rows(SHARDED, {"g0-1": (0,), "g0-3": (1, 2, 3)}), "rank 0 is in 2 groups of `llm`"),
    (
        rows(AGAIN, {"vit": {"v0": part(0.5, 0), "again": part(0.25, 1)}, "llm": {"all": part(0.5, 0, 1)}}),
        "groups of `llm` and `vit` have shares of rank 0 that add up to 1.25",
    ),
    (
        rows(AGAIN, {"vit": {"v0": part(0.5, 0), "again": (1,)}, "llm": {"all": (0, 1)}}),
        "rank 0 is in 2 groups of `vit`",
    ),
    (
        rows(
            group(SHARDED, "again", (2,)), {"llm": {"g2": part(0.5, 0), "again": part(0.5, 1)}}, {"llm": {"g3": (2, 3)}}
        ),
        "rank 2 is in 2 groups of `llm`",
    ),
    (uses(SHARDED, limits=Limits(tokens_per_rank=20)), "group g3 holds 22 tokens, its 1 ranks may hold 20"),
    (uses(SHARDED, degrees=(1, 4)), "g0-1 has degree 2"),
    (fixed(SHARDED, 1, 2), "item 1 is fixed to degree 2, and group g2 has 1"),
    (
        rows(group(SHARDED, "g", (0, 1, 2, 3), split={"ulysses": 2}), {"g": (0, 1, 2, 3)}),
        "group g has 4 ranks on the stages of `llm`, and shards items over 2",
    ),
    (tensors({"dp": 4}, (0, 1)), "has 2 ranks on the stages of `llm`"),
    (tensors({"dp": 2, "tp": 2}, (1, 2)), "has some of ranks 0-1, which shard"),
    (tensors({"tp": 2, "dp": 2}, (0, 1)), "has some of ranks 0,2, which shard the tensors"),
    (cp((1, 2)), "group g has some of ranks 0-1, which shard the sequences of `llm`"),
    (cp((0, 1, 2, 3)), "group g has 4 ranks on the stages of `llm`, and shards items over 2"),
    (cp((0,)), "group g has 1 ranks on the stages of `llm`, and shards items over 2"),
    (rows(group(STAGED, "first", (0,)), {"first": (0, 1, 2)}), "has 1, 0 ranks on the stages of `llm`"),
]


@pytest.mark.parametrize("plan", [SHARDED, STAGED, ENCODER], ids=["sharded", "staged", "encoder"])
def test_the_plans_that_are_broken_below_are_legal(plan):
    assert violations(plan) == []


@pytest.mark.parametrize(
    ("plan", "where", "message"),
    [*BROKEN, *((plan, "steps[0].micro_batches[0]", message) for plan, message in BROKEN_ROWS)],
    ids=lambda value: value if isinstance(value, str) and " " in value else "",
)
def test_a_broken_law_is_found(plan, where, message):
    found = violations(plan)
    assert any(v.where == where and message in v.message and v.fix for v in found), found
    with pytest.raises(InputError, match=r"illegal plan: .*") as caught:
        require_legal(plan, "plan.yaml")
    assert caught.value.where.startswith("plan.yaml (") and len(str(caught.value).splitlines()) == 3


def test_all_violations_are_counted():
    plan = uses(SHARDED, limits=Limits(tokens_per_rank=5))
    with pytest.raises(InputError, match=r"\(and 3 more\)"):
        require_legal(plan, "plan.yaml")


@pytest.mark.parametrize(
    "plan",
    [
        tensors({"dp": 2, "tp": 2}, (2, 3)),
        tensors({"tp": 2, "dp": 2}, (0, 2)),
        tensors({"dp": 2, "tp": 2}, (0, 1, 2, 3), split={"ulysses": 2}),
        cp((2, 3)),
        cp((2, 3), split={"ulysses": 2}),
        tensors({"cp": 2, "dp": 2}, (0, 2)),
        tensors({"cp": 2, "tp": 2}, range(4)),
        rows(SHARDED, {"g0-1": (0, OffloadedItem(item=1))}, {}, {"g0-3": (2, 3)}),
        encoder_plan((), zero=3),
        layout(ENCODER, "vit", pp=2, dp=2) and order(ENCODER, llm="gpipe", place=()),
    ],
    ids=[
        "tensors",
        "strided",
        "split",
        "cp",
        "cp, said again",
        "cp, strided",
        "cp and tp",
        "idle",
        "mixed ZeRO",
        "gpipe",
    ],
)
def test_unusual_plans_are_legal(plan):
    assert violations(plan) == []


def test_a_layout_is_all_that_a_group_must_fit():
    assert isinstance(SHARDED.layouts["llm"], Layout)
    wide = with_fields(SHARDED, groups={**SHARDED.groups, "unused": Group(ranks=Ranks((0, 1, 2)), split={"ring": 3})})
    assert violations(wide) == []


def test_a_rank_may_run_several_groups_of_an_encoder_one_after_another():
    assert not violations(rows(AGAIN, {"vit": {"v0": (0,), "again": (1,)}, "llm": {"all": (0, 1)}}))
