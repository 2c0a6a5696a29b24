"""Why one item is where it is: what each degree would cost it alone, and the step if it had to have another."""

from planner.costs.pricing import pricing_of
from planner.costs.sequences import split
from planner.errors import InputError
from planner.plan.expand import expand
from planner.plan.model import Group, Plan, group_name
from planner.simulate import simulate
from planner.specs.base import Ranks, Spec, changed
from planner.verify.score import score
from planner.why.change import with_what_follows
from planner.why.facts import Facts
from planner.why.keys import fix_item, some
from planner.why.loads import Load, group_seconds, loads, rank_room
from planner.why.machine import crosses
from planner.why.problem import inputs_of, of_step, only_module
from planner.why.resolve import Binding, Resolve, solved


class Choice(Spec, omit_defaults=False):
    """One degree that the item could have, on the first ranks."""

    degree: int
    chosen: bool
    seconds: float  # of the item alone in a micro-batch, forward and backward
    tokens_per_rank: float
    room_per_rank: int
    fits: bool
    crosses_nodes: bool
    step_seconds: float | None  # when the item must have this degree; None: not solved
    because: str  # what binds where there is no such step


class WhyItem(Spec, omit_defaults=False):
    plan: str
    step: int
    item: int
    tokens: int
    value: float  # seconds of the step
    load: Load  # of its group
    choices: tuple[Choice, ...]


def why_item(plan: Plan, number: int, item: int, resolve: Resolve) -> WhyItem:
    """The answer for one item of a step. Raises InputError when the step has no such item."""
    step = of_step(plan, number)
    module, _ = only_module(step)
    sizes = step.uses.items[module]
    if item not in sizes:
        raise InputError(
            f"step {number} of the plan has no item {item}", where="ITEM", fix=f"one of {some(sorted(sizes))}"
        )
    scored = score(step)
    load = next(load for load in loads(step, scored) if item in load.items)
    return WhyItem(
        plan=plan.name,
        step=number,
        item=item,
        tokens=sizes[item],
        value=scored.value,
        load=load,
        choices=tuple(with_steps(step, item, load.degree, scored.value, resolve)),
    )


def with_steps(step: Plan, item: int, chosen: int, value: float, resolve: Resolve) -> list[Choice]:
    """Every allowed degree; the nearest ones that fit, on both sides of the item's own, with the step they give."""
    degrees = sorted({degree for degree in step.uses.degrees if degree <= step.size} | {chosen})
    choices = [choice(step, item, degree, degree == chosen) for degree in degrees]
    fitting = [c.degree for c in choices if c.fits]
    lower = [degree for degree in fitting if degree < chosen][-1:]
    higher = [degree for degree in fitting if degree > chosen][:1]
    asked = {*lower, *higher}
    return [
        changed(c, step_seconds=value) if c.chosen else solved_with(step, item, c, resolve) if c.degree in asked else c
        for c in choices
    ]


def solved_with(step: Plan, item: int, c: Choice, resolve: Resolve) -> Choice:
    """The choice with the step that it gives."""
    inputs, _, unable = with_what_follows(fix_item(inputs_of(step), f"items.{item}.degree", str(c.degree)), ())
    found = Binding(message=unable, where="strategy", fix="") if unable else solved(inputs, resolve)
    return changed(c, step_seconds=found.value) if isinstance(found, Facts) else changed(c, because=found.message)


def choice(step: Plan, item: int, degree: int, chosen: bool) -> Choice:
    """A degree for the item alone, on an aligned block of ranks."""
    module, layout = only_module(step)
    ranks = Ranks(layout.ranks[:degree])
    size, room = step.uses.items[module][item], rank_room(step, ranks)
    return Choice(
        degree=degree,
        chosen=chosen,
        seconds=alone_seconds(step, item, ranks),
        tokens_per_rank=size / degree,
        room_per_rank=room,
        fits=chosen or size <= room * degree,  # what is chosen may fit by being offloaded
        crosses_nodes=crosses(step.uses.cluster, ranks),
        step_seconds=None,
        because="",
    )


def alone_seconds(step: Plan, item: int, ranks: Ranks) -> float:
    """The item's forward and backward when it is the only one of a micro-batch."""
    module, _ = only_module(step)
    group = Group(ranks=ranks, split=split(step.uses.models[module], len(ranks)))  # type: ignore[arg-type]
    alone = changed(
        step,
        groups={group_name(ranks): group},
        steps=(changed(step.steps[0], micro_batches=({group_name(ranks): (item,)},)),),
    )
    timeline = simulate(expand(alone, 0), pricing_of(alone).price, alone.size)
    return sum(group_seconds(timeline).values())
