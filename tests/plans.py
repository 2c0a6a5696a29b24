"""Small legal plans for tests, built from structs."""

from planner.plan.plan_file import (
    Breakdown,
    Edge,
    Group,
    Layout,
    Outcome,
    Plan,
    PlanInputs,
    PlanOrigin,
    Prediction,
    Prices,
    Step,
    TaskPlacement,
)
from planner.specs.base import Layers, Ranks, with_fields
from planner.specs.hardware.cluster import Cluster, Level, RankKind
from planner.specs.hardware.profile import Device
from planner.specs.layers import Decoder, Vit
from planner.strategies.assignment.encoder_orders import EncoderOrder, order_rules

NOTHING = Prediction(
    step_seconds=0.0,
    spread=0.0,
    peak_memory_gib=0.0,
    breakdown=Breakdown(compute=0.0, exposed_comm=0.0, idle=0.0),
    measured_share=0.0,
)
OUTCOME = Outcome(status="by_hand", value=0.0, bound=0.0, gap=0.0, bound_by="nothing")


def decoder(layers: int = 4) -> Decoder:
    return Decoder(layers=layers, hidden=32, heads=16, ffn=64, vocab=64)


def vit(layers: int = 2) -> Vit:
    return Vit(layers=layers, hidden=16, heads=16, ffn=32, patch=2, out=32)


def uses(size: int, models: dict, items: dict, feeds: dict | None = None) -> PlanInputs:
    return PlanInputs(
        models=models,
        cluster=Cluster(
            format=Cluster.FORMAT,
            name="toy",
            source="made up",
            ranks=(RankKind(kind="toy", count=size, per_node=size),),
            levels=(Level(name="node", ranks=size, gb_per_s=10.0, latency_us=1.0),),
        ),
        devices={"toy": Device(kind="cpu", memory_gib=4.0, tflops={"float32": 1.0}, memory_gb_per_s=10.0)},
        items=items,
        feeds=feeds or {},
        prices=Prices(profile="made up"),
    )


def plan_of(
    size: int, facts: PlanInputs, layouts: dict, groups: dict, step: Step, edges: tuple[Edge, ...] = ()
) -> Plan:
    return Plan(
        format=Plan.FORMAT,
        name="toy",
        made=PlanOrigin(by="a test", strategy="by_hand"),
        uses=facts,
        outcome=OUTCOME,
        prediction=NOTHING,
        ranks=(RankKind(kind="toy", count=size, per_node=size),),
        layouts=layouts,
        groups=groups,
        edges=edges,
        steps=(step,),
    )


def stages_of(layers: int, stages: int) -> tuple[Layers, ...]:
    each = layers // stages
    return tuple(Layers(range(s * each, (s + 1) * each)) for s in range(stages))


def timed(plan: Plan, *encoders: str, ahead: int | None = 0, at_once: bool = False) -> Plan:
    """The plan whose rules say when passes of these encoders run."""
    rules = order_rules(dict.fromkeys(encoders, EncoderOrder(ahead=ahead, at_once=at_once)), plan.edges)
    steps = []
    for step in plan.steps:
        others = tuple(each for each in step.placed if not (each.is_rule and each.moved.module in encoders))
        order = {**step.order, "place": (*rules, *others)}
        steps.append(with_fields(step, order={key: order[key] for key in order if order[key]}))
    return with_fields(plan, steps=tuple(steps))


def degrees_of(plan: Plan) -> dict[str, int]:
    """Of each group of a plan of one module: over how many ranks it spreads an item."""
    (layout,) = plan.layouts.values()
    return {name: group.resolved_split(layout).degree for name, group in plan.groups.items()}


def staged_plan(pp: int, micro_batches: int, order: str = "1f1b") -> Plan:
    """One decoder over `pp` stages of two layers, one item per micro-batch."""
    ranks = Ranks(range(pp))
    return plan_of(
        pp,
        uses(pp, {"llm": decoder(2 * pp)}, {"llm": {i: 8 for i in range(micro_batches)}}),
        {"llm": Layout(ranks=ranks, pp=pp, stages=stages_of(2 * pp, pp))},
        {"all": Group(ranks=ranks)},
        Step(sync="step", micro_batches=tuple({"all": (i,)} for i in range(micro_batches)), order={"llm": order}),
    )


def sharded_plan(size: int, rows: list[list[tuple[int, int]]]) -> Plan:
    """One decoder under ZeRO-3 over `size` ranks; each row lists the (first rank, degree) of its Ulysses groups."""
    groups: dict[str, Group] = {}
    micro_batches: list[dict] = []
    items = 0
    for row in rows:
        micro_batches.append({})
        for first, degree in row:
            ranks = Ranks(range(first, first + degree))
            name = f"g{ranks}"
            groups[name] = Group(ranks=ranks, split={"ulysses": degree})
            micro_batches[-1][name] = (items,)
            items += 1
    return plan_of(
        size,
        uses(size, {"llm": decoder()}, {"llm": {i: 16 + 3 * i for i in range(items)}}),
        {"llm": Layout(ranks=Ranks(range(size)), dp=size, zero=3)},
        groups,
        Step(sync="micro_batch", micro_batches=tuple(micro_batches)),
    )


def encoder_plan(
    places: tuple[TaskPlacement, ...] = (), zero: int = 1, rows: tuple = (), feeds: dict | None = None
) -> Plan:
    """A decoder on four stages, an encoder of two stages on either half of the ranks, an image per micro-batch."""
    everyone = Ranks(range(4))
    if not rows:
        rows = tuple({"vit": {f"v{i}": (i,)}, "llm": {"all": (i,)}} for i in (0, 1))
    return plan_of(
        4,
        uses(
            4,
            {"llm": decoder(8), "vit": vit(8)},
            {"llm": {0: 32, 1: 32}, "vit": {0: 16, 1: 16}},
            {"vit": feeds or {0: 0, 1: 1}},
        ),
        {
            "llm": Layout(ranks=everyone, pp=4, stages=stages_of(8, 4), zero=1),
            "vit": Layout(ranks=everyone, dp=2, pp=2, rank_order="pp-dp", stages=stages_of(8, 2), zero=zero),
        },
        {"all": Group(ranks=everyone), "v0": Group(ranks=Ranks((0, 1))), "v1": Group(ranks=Ranks((2, 3)))},
        Step(
            sync="micro_batch" if zero == 3 else "step",
            micro_batches=rows,
            order={"llm": "1f1b", "place": places} if places else {"llm": "1f1b"},
        ),
        (Edge(source="vit", target="llm"),),
    )
