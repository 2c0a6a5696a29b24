"""Where the outputs of encoders lie in the items that read them.

They stand in place of the first tokens of an item, or are beside its tokens, where cross attention reads them. Either
way they come one encoder item after the other, by rising number, and those of an encoder that an earlier edge names
before those of a later one. An item may feed several, of several modules, and what reads may feed others in turn.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from planner.plan.model import Edge, Plan, Step, assignments
from planner.plan.names import Violation
from planner.specs.model import By

Item = tuple[str, int]  # module, item


@dataclass(frozen=True, slots=True)
class Fed:
    """The outputs of one encoder item."""

    target: Item
    first: int  # token of the target that the first of them stands for, or its place among all that it reads
    rows: int
    by: By = "tokens"

    @property
    def last(self) -> int:
        """The token after them."""
        return self.first + self.rows


def feeding(plan: Plan) -> dict[Item, list[Fed]]:
    """By encoder item, everywhere that its outputs are read."""
    taken: dict[tuple[Item, By], int] = defaultdict(int)
    found: dict[Item, list[Fed]] = defaultdict(list)
    for edge in plan.edges:
        unit = plan.uses.models[edge.source].merged
        for item, readers in sorted(plan.feeds_of(edge).items()):
            outputs = plan.uses.tokens(edge.source, item) // unit
            for reader in readers:
                target = (edge.target, reader)
                found[edge.source, item].append(Fed(target, taken[target, edge.by], outputs, edge.by))
                taken[target, edge.by] += outputs
    return found


def fed_tokens(plan: Plan, by: By = "tokens") -> dict[Item, int]:
    """By item that reads, how many of its tokens are outputs of encoders, or how many its cross attention reads."""
    taken: dict[Item, int] = {}
    for fed in (fed for of_item in feeding(plan).values() for fed in of_item if fed.by == by):
        taken[fed.target] = max(taken.get(fed.target, 0), fed.last)
    return taken


def feed_laws(plan: Plan) -> Iterator[Violation]:
    """What is read is as wide as what it stands for, an item has room for all that it reads, each encoder is read."""
    yield from unread_laws(plan)
    for at, edge in enumerate(plan.edges):
        yield from (Violation(f"edges[{at}]", *wrong) for wrong in width_laws(plan, edge))
        yield from (Violation(f"edges[{at}]", *wrong) for wrong in reshard_laws(plan, edge))
    yield from crossing_laws(plan)
    for (module, item), tokens in fed_tokens(plan).items():
        size = plan.uses.tokens(module, item)
        if tokens > size:
            message = f"item {item} of `{module}` has {size} tokens, and {tokens} outputs of encoders stand for them"
            yield Violation("uses.feeds", message, "count them into its tokens, or feed another item")
    for number, step in enumerate(plan.steps):
        yield from (Violation(f"steps[{number}]", *wrong) for wrong in step_laws(plan, step))


def step_laws(plan: Plan, step: Step) -> Iterator[tuple[str, str]]:
    """What is read was made in the same step."""
    fed = feeding(plan)
    there = {(a.module, item) for row in step.micro_batches for a in assignments(plan, row) for item in a.items}
    for module, item in sorted(there & fed.keys()):
        for target, read in (place.target for place in fed[module, item] if place.target not in there):
            message = f"item {item} of `{module}` feeds item {read} of `{target}`, which is in another step"
            yield message, "put both in one step"


def crossing_laws(plan: Plan) -> Iterator[Violation]:
    """Where a module has cross attention, each of its items reads something."""
    read = fed_tokens(plan, "cross_attention")
    for name in (name for name in plan.layouts if plan.uses.models[name].crossing):
        unfed = next((item for item in sorted(plan.uses.items[name]) if (name, item) not in read), None)
        if unfed is not None:
            message = f"cross attention of `{name}` has nothing to read for item {unfed}"
            fix = "feed it an item of an encoder, over an edge by: cross_attention"
            yield Violation("uses.feeds", message, fix)


def reshard_laws(plan: Plan, edge: Edge) -> Iterator[tuple[str, str]]:
    """What is said of the rows that are read is so."""
    rows = (row for step in plan.steps for row in step.micro_batches)
    reading = {a.group for row in rows for a in assignments(plan, row) if a.module == edge.target}
    layout = plan.layouts[edge.target]
    rings = sorted(name for name in reading if plan.groups[name].split_in(layout).ring > 1)
    if rings and edge.reshard == "contiguous":
        yield f"group {rings[0]} of `{edge.target}` is a ring, and reads in zig-zag", "reshard: zigzag"
    elif reading and not rings and edge.reshard == "zigzag":
        yield f"no group of `{edge.target}` is a ring that reads in zig-zag", "reshard: contiguous"


def width_laws(plan: Plan, edge: Edge) -> Iterator[tuple[str, str]]:
    reader = plan.uses.models[edge.target]
    out, hidden = plan.uses.models[edge.source].gives, reader.hidden
    if not out:
        yield f"`{edge.source}` gives a loss, and nothing for `{edge.target}` to read", "let an encoder feed it"
    elif edge.by == "cross_attention":
        if not reader.crossing:
            yield f"`{edge.target}` has no cross attention", f"say cross: {out} of it, or by: tokens"
        elif out != reader.crossing:
            message = f"outputs of `{edge.source}` are {out} wide, cross attention of `{edge.target}` reads"
            yield f"{message} {reader.crossing}", f"set cross to {out}"
    elif out != hidden:
        message = f"outputs of `{edge.source}` are {out} wide, the tokens of `{edge.target}` {hidden}"
        yield message, f"set out to {hidden}"


def unread_laws(plan: Plan) -> Iterator[Violation]:
    """Beside other modules, what an encoder gives is for one of them."""
    sources = {edge.source for edge in plan.edges}
    for name in plan.layouts if len(plan.layouts) > 1 else ():
        if name not in sources and plan.uses.models[name].gives:
            fix = f"add an edge from it, or remove layouts.{name}"
            yield Violation(f"layouts.{name}", f"nobody reads the outputs of `{name}`", fix)
