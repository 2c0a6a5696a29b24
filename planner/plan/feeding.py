"""Where the outputs of encoders lie in the items that read them.

They stand in place of the first tokens of an item: one encoder item after the other, by rising number, and those of an
encoder that an earlier edge names before those of a later one.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from planner.plan.model import Edge, Plan, Step, assignments
from planner.plan.names import Violation

Item = tuple[str, int]  # module, item


@dataclass(frozen=True, slots=True)
class Fed:
    """The outputs of one encoder item."""

    target: Item
    first: int  # token of the target that the first of them stands for
    rows: int

    @property
    def last(self) -> int:
        """The token after them."""
        return self.first + self.rows


def feeding(plan: Plan) -> dict[Item, Fed]:
    """By encoder item."""
    taken: dict[Item, int] = defaultdict(int)
    found: dict[Item, Fed] = {}
    for edge in plan.edges:
        unit = plan.uses.models[edge.source].merged
        for item, fed in sorted(plan.uses.feeds.get(edge.source, {}).items()):
            target = (edge.target, fed)
            found[edge.source, item] = Fed(target, taken[target], plan.uses.tokens(edge.source, item) // unit)
            taken[target] = found[edge.source, item].last
    return found


def fed_tokens(plan: Plan) -> dict[Item, int]:
    """By item that reads, how many of its tokens are outputs of encoders."""
    taken: dict[Item, int] = {}
    for fed in feeding(plan).values():
        taken[fed.target] = max(taken.get(fed.target, 0), fed.last)
    return taken


def feed_laws(plan: Plan) -> Iterator[Violation]:
    """What is read is as wide as what it stands for, and an item has room for all that it reads."""
    for at, edge in enumerate(plan.edges):
        yield from (Violation(f"edges[{at}]", *wrong) for wrong in width_laws(plan, edge))
        yield from (Violation(f"edges[{at}]", *wrong) for wrong in reshard_laws(plan, edge))
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
        target, read = fed[module, item].target
        if (target, read) not in there:
            message = f"item {item} of `{module}` feeds item {read} of `{target}`, which is in another step"
            yield message, "put both in one step"


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
    source, target = plan.uses.models[edge.source], plan.uses.models[edge.target]
    if not source.gives:
        yield f"`{edge.source}` gives a loss, and nothing for `{edge.target}` to read", "let an encoder feed it"
    elif target.reads != "tokens":
        yield f"`{edge.target}` reads no tokens that outputs of `{edge.source}` could stand for", "feed a decoder"
    elif source.gives != target.hidden:
        message = f"outputs of `{edge.source}` are {source.gives} wide, the tokens of `{edge.target}` {target.hidden}"
        yield message, f"set out to {target.hidden}"
