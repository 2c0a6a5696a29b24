"""Encoders of a plan as a program is told of them: beside one LLM, with items where that program computes them."""

from collections.abc import Iterator

from planner.errors import InputError
from planner.plan.descriptions import fixable_layout
from planner.plan.plan_file import Assignment, MicroBatch, Plan, assignments
from planner.specs.base import with_fields
from planner.specs.parallelism import Parallelism
from planner.targets import Encoders, Target, decided_layout


def readers_and_encoders(plan: Plan) -> tuple[str, tuple[str, ...]]:
    """The module whose tokens are outputs of all the others, and these. Raises InputError."""
    encoders = tuple(edge.source for edge in plan.edges if edge.by == "tokens")
    readers = [name for name in plan.layouts if name not in encoders]
    if len(readers) != 1 or {edge.target for edge in plan.edges} - {*readers} or len(encoders) != len(plan.edges):
        raise InputError(
            "a program is told of one LLM, and of encoders whose outputs are tokens of it",
            where="edges",
            fix="a model of these",
        )
    return readers[0], encoders


def told_by(target: Target, plan: Plan) -> Target:
    """By what a program is told of a plan: of several modules by the form for encoders on ranks of their own, or for
    those on all. Raises InputError where it has none.
    """
    if plan.uses.tasks:
        message = f"{target.name} trains one loss, and the plan has those of {len(plan.uses.tasks)} tasks"
        raise InputError(message, where="uses.tasks", fix="--to planner, whose own runtime trains them")
    if len(plan.layouts) == 1:
        return target
    if not target.beside:
        names = " and ".join(plan.layouts)
        raise InputError(
            f"{target.name} is told of one module, the plan has {names}", where="layouts", fix="--to megatron"
        )
    return target.beside[0 if are_apart(plan) else 1]


def are_apart(plan: Plan) -> bool:
    """Whether encoders have ranks that the module which reads them has not."""
    llm, encoders = readers_and_encoders(plan)
    return bool({rank for name in encoders for rank in plan.layouts[name].ranks} - {*plan.layouts[llm].ranks})


def told_encoders(target: Target, plan: Plan) -> Encoders | None:
    """The encoders of a plan, of one layout. Raises InputError where theirs differ, or one computes what the program
    computes on other ranks, or in another micro-batch.
    """
    llm, names = readers_and_encoders(plan)
    if not names:
        return None
    layouts = [plan_layout(plan, name) for name in names]
    for name, layout in zip(names, layouts, strict=True):
        if decided_layout(layout, range(1)) != decided_layout(layouts[0], range(1)):
            message = f"{target.name} is told of one layout of all encoders, and that of {name} is another"
            raise InputError(message, where=f"layouts.{name}", fix=f"that of {names[0]}")
        if plan.layouts[name].ranks != plan.layouts[names[0]].ranks:
            message = f"{target.name} has all encoders on the same ranks"
            raise InputError(message, where=f"layouts.{name}.ranks", fix=f"ranks: {plan.layouts[names[0]].ranks}")
        require_alike(target, plan, llm, name)
    return Encoders(modules={name: plan.uses.models[name] for name in names}, layout=layouts[0], apart=are_apart(plan))


def plan_layout(plan: Plan, name: str) -> Parallelism:
    layout = plan.layouts[name]
    return with_fields(fixable_layout(layout), dp=layout.dp)


def require_alike(target: Target, plan: Plan, llm: str, name: str) -> None:
    """Raises InputError where samples read items of unlike sizes, or an encoder's groups have others than a program
    gives them: apart, as many each in every micro-batch, else those that their own ranks read.
    """
    readers = {item: read for edge in plan.edges if edge.source == name for item, read in plan.feeds_of(edge).items()}
    read_by: dict[int, list[int]] = {item: [] for item in plan.uses.items[llm]}
    for item, samples in readers.items():
        for sample in samples:
            read_by[sample].append(plan.uses.tokens(name, item))
    if len({tuple(sorted(sizes)) for sizes in read_by.values()}) > 1:
        message = f"{target.name} is told one kind of samples, and those of the plan differ in what {name} computes"
        raise InputError(message, where=f"uses.items.{name}", fix="images of one size, as many in each sample")
    apart = are_apart(plan)
    for step in plan.steps:
        for micro_batch in step.micro_batches:
            here = {sample: plan.groups[a.group].ranks for a in of(plan, micro_batch, llm) for sample in a.items}
            own = [*of(plan, micro_batch, name)]
            read = [[here.get(sample) for item in a.items for sample in readers[item]] for a in own]
            even = len({len(a.items) for a in own}) < 2 and len(own) == plan.layouts[name].dp
            beside = all({*ranks} <= {plan.groups[a.group].ranks} for a, ranks in zip(own, read, strict=True))
            if any(None in ranks for ranks in read) or not (even if apart else beside):
                message = f"{name} computes items on other ranks, or in another micro-batch, than {target.name} would"
                fix = "as many samples in every micro-batch" if apart else f"dp, tp and cp as those of {llm}"
                raise InputError(message, where="steps", fix=fix)
        if step.ahead(name, llm) != apart or not step.rules(name, "B"):
            ahead = "one micro-batch ahead" if apart else "for the micro-batch that reads them"
            message = f"{target.name} runs forwards of {name} {ahead}, and backwards when their gradients are there"
            raise InputError(message, where="steps.order.place", fix=f"software: {target.software} in the job")


def of(plan: Plan, micro_batch: MicroBatch, module: str) -> Iterator[Assignment]:
    """What the groups of a module have in a micro-batch."""
    return (a for a in assignments(plan, micro_batch) if a.module == module)
