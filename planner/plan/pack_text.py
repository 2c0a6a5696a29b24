"""What verbs say of packs: how many, how full, and how few could do."""

from planner.plan.pack_fill import FilledModule, PackFill
from planner.units import percent, plural


def pack_text(found: PackFill) -> str:
    """`5 micro-batches, 5 at least (by vision's limit); llm 40 packs, 61.3 % of 16,384 tokens each; …`."""
    least = f"{plural(found.micro_batches, 'micro-batch')}, {found.fewest:,} at least (by {found.fewest_by}'s limit)"
    return "; ".join([least, *map(module_text, found.modules)])


def module_text(found: FilledModule) -> str:
    """`llm 40 packs (25 at least), on average 61.3 % of 16,384 tokens`."""
    packs = f"{found.module} {plural(found.packs, 'pack')} ({found.fewest_packs:,} at least)"
    return f"{packs}, on average {percent(found.fill)} of {found.budget:,} {found.unit}"
