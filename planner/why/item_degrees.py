"""Explains the placement of an item: its time alone with each degree, and the step if it had to have that degree.

Where ranks form several pools, a degree is possible on each. Only the degree of an item can be fixed: the resulting
step is listed at the pool where the item is then placed.
"""

from collections.abc import Iterator

from planner.costs import RankPool, host_offload, pricing_of, rank_pools, split_degree
from planner.errors import Infeasible
from planner.plan.plan_file import Group, Plan, assignments, group_name
from planner.plan.tasks.expand import expand
from planner.scoring import score
from planner.simulate import simulate
from planner.specs.base import Ranks, Spec, with_fields
from planner.specs.hardware.cluster import device_of_rank
from planner.why.apply_changes import apply_implied
from planner.why.change_setters import fix_item
from planner.why.group_loads import GroupLoad, group_loads, kinds_of, rank_capacity
from planner.why.plan_problem import plan_inputs
from planner.why.resize_cluster import spans_nodes
from planner.why.resolved import SolveAgain


class DegreeChoice(Spec, omit_defaults=False):
    """A degree that the item could have, on the first ranks of a pool or on its present ranks."""

    degree: int
    kind: str  # of the ranks
    ranks: Ranks
    chosen: bool
    seconds: float  # forward and backward of the item, alone in a micro-batch
    tokens_per_rank: float
    room_per_rank: int
    fits: bool
    crosses_nodes: bool
    step_seconds: float | None  # step time if the item must have this degree; None: not solved
    because: str  # binding constraint where that is infeasible


class WhyItem(Spec, omit_defaults=False):
    """The answer for an item of a step: its group, and the degrees that it could have."""

    plan: str
    step: int
    item: int
    tokens: int
    value: float  # seconds of the step
    load: GroupLoad  # of its group
    choices: tuple[DegreeChoice, ...]


def item_degrees(step: Plan, number: int, item: int, resolve: SolveAgain) -> WhyItem:
    """The answer for an item of a plan of one step, which is step `number` of its own plan."""
    (module,) = step.layouts
    scored = score(step)
    load = next(load for load in group_loads(step, scored) if item in load.items)
    return WhyItem(
        plan=step.name,
        step=number,
        item=item,
        tokens=step.uses.tokens(module, item),
        value=scored.step_seconds,
        load=load,
        choices=tuple(solved_choices(step, item, load, scored.step_seconds, resolve)),
    )


def solved_choices(step: Plan, item: int, load: GroupLoad, value: float, resolve: SolveAgain) -> list[DegreeChoice]:
    """Every allowed degree; the next smaller and larger ones that fit are solved for their step."""
    choices = [degree_choice(step, item, ranks, ranks == load.ranks) for ranks in candidate_ranks(step, load)]
    fitting = sorted({c.degree for c in choices if c.fits})
    lower = [degree for degree in fitting if degree < load.degree][-1:]
    higher = [degree for degree in fitting if degree > load.degree][:1]
    for degree in (*lower, *higher):
        choices = solve_with_degree(step, item, degree, choices, resolve)
    return [with_fields(c, step_seconds=value) if c.chosen else c for c in choices]


def candidate_ranks(step: Plan, load: GroupLoad) -> Iterator[Ranks]:
    """The present ranks of the item, and for each other degree and pool the first ranks."""
    for degree in sorted({*step.uses.degrees, load.degree}):
        for pool in pools_of(step):
            if degree == load.degree and pool.first <= load.ranks[0] < pool.first + pool.ranks:
                yield load.ranks
            elif degree <= pool.ranks:
                yield Ranks(range(pool.first, pool.first + degree))


def pools_of(step: Plan) -> tuple[RankPool, ...]:
    (layout,) = step.layouts.values()
    return rank_pools(step.uses.cluster, layout.ranks)


def solve_with_degree(
    step: Plan, item: int, degree: int, choices: list[DegreeChoice], resolve: SolveAgain
) -> list[DegreeChoice]:
    """The choices, with the step for this degree set at the pool where the item is then placed."""
    inputs, _, unable = apply_implied(fix_item(plan_inputs(step), f"items.{item}.degree", str(degree)), ())
    because, seconds, first = unable, None, None
    if not unable:
        try:
            plan = resolve(inputs)
        except Infeasible as error:
            because = error.message
        else:
            seconds, first = score(plan).step_seconds, ranks_of(plan, item)[0]
    with_step = []
    for c in choices:
        pool = next(pool for pool in pools_of(step) if c.ranks[0] < pool.first + pool.ranks)
        if c.degree == degree and (first is None or pool.first <= first < pool.first + pool.ranks):
            c = with_fields(c, step_seconds=seconds, because=because)
        with_step.append(c)
    return with_step


def ranks_of(plan: Plan, item: int) -> Ranks:
    """Ranks that work on an item, in a plan of one step."""
    placed = (a for micro_batch in plan.steps[0].micro_batches for a in assignments(plan, micro_batch))
    return next(plan.groups[a.group].ranks for a in placed if item in a.items)


def degree_choice(step: Plan, item: int, ranks: Ranks, chosen: bool) -> DegreeChoice:
    """What the item would take on these ranks, alone, and whether they have room for it."""
    (module,) = step.layouts
    size, degree = step.uses.tokens(module, item), len(ranks)
    room = rank_capacity(step, module, kinds_of(step, ranks))
    return DegreeChoice(
        degree=degree,
        kind=device_of_rank(step.uses.cluster, ranks[0]),
        ranks=ranks,
        chosen=chosen,
        seconds=alone_seconds(step, item, ranks),
        tokens_per_rank=size / degree,
        room_per_rank=room,
        fits=chosen or tokens_with_offload(step, size) <= room * degree,
        crosses_nodes=spans_nodes(step.uses.cluster, ranks),
        step_seconds=None,
        because="",
    )


def tokens_with_offload(step: Plan, size: int) -> float:
    """Tokens of capacity that an item takes; less where ranks sync once a step and activations can be offloaded."""
    (module,) = step.layouts
    offload = host_offload(pricing_of(step), module, step.uses) if step.steps[0].sync == "step" else None
    return offload.kept_share(offload.largest_ratio(size)) * size if offload else size


def alone_seconds(step: Plan, item: int, ranks: Ranks) -> float:
    """Seconds of the item's forward and backward when it is alone in a micro-batch."""
    (module,) = step.layouts
    group = Group(ranks=ranks, split=split_degree(step.uses.models[module], len(ranks)))  # type: ignore[arg-type]
    alone = with_fields(
        step,
        groups={group_name(ranks): group},
        steps=(with_fields(step.steps[0], micro_batches=({group_name(ranks): (item,)},)),),
    )
    timeline = simulate(expand(alone, 0), pricing_of(alone).price, alone.size)
    return sum(timeline.group_seconds().values())
