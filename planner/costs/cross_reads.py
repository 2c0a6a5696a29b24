"""What cross attention reads for the items of a pass, per token of theirs: all that its cost depends on beside them."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from planner.plan.plan_file import Plan
from planner.plan.tokens.encoder_outputs import ItemKey, fed_tokens


class CrossReads(NamedTuple):
    """Outputs of other modules that some items read.

    Layers with nothing but cross attention leave the tokens of items that read nothing as they are, and take no time
    for them.
    """

    per_token: float = 0.0  # outputs read, over tokens
    pairs: float = 0.0  # pairs of a token and an output that it attends to, over the sum of items' squared tokens
    readers: float = 1.0  # share of the tokens that are in items which read something


NO_READS = CrossReads()


def reads_of(items: Iterable[tuple[int, int]]) -> CrossReads:
    """What items read that are given as (tokens, outputs read)."""
    sizes = [*items]
    tokens, squares = sum(own for own, _ in sizes), sum(own * own for own, _ in sizes)
    if not tokens:
        return NO_READS
    return CrossReads(
        sum(read for _, read in sizes) / tokens,
        sum(own * read for own, read in sizes) / squares,
        sum(own for own, read in sizes if read) / tokens,
    )


def reads_by_item(plan: Plan) -> dict[ItemKey, int]:
    """Outputs that cross attention reads for each item of each module that has it."""
    counts = fed_tokens(plan, "cross_attention")
    named = [name for name in plan.layouts if plan.uses.models[name].cross_attention_width]
    return {(name, item): counts.get((name, item), 0) for name in named for item in plan.uses.items[name]}


def mean_cross_reads(plan: Plan, read: Mapping[ItemKey, int]) -> dict[str, CrossReads]:
    """What all items of the plan read, by module with cross attention; `read`: by item."""
    sizes: dict[str, list[tuple[int, int]]] = {}
    for (module, item), count in read.items():
        sizes.setdefault(module, []).append((plan.uses.tokens(module, item), count))
    return {module: reads_of(of_module) for module, of_module in sizes.items()}
