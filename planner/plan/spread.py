"""How groups lie on the mesh of a module, each looked at once: most rows of a step have the same groups."""

from collections.abc import Iterator

from planner.plan.mesh import groups_over, stage_ranks
from planner.plan.model import Layout, Plan
from planner.specs.base import Ranks

Wrong = tuple[str, str]  # what, and what would mend it
ALL_OR_NONE = "take all of them, or none"


class Spread:
    """Of one plan."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.stages = {name: stages_of(layout) for name, layout in plan.layouts.items()}
        self.blocks = {name: [*blocks_of(layout)] for name, layout in plan.layouts.items()}
        self.found: dict[tuple[str, str], tuple[Wrong, ...]] = {}
        self.shares: dict[tuple[tuple[str, str], ...], tuple[Wrong, ...]] = {}

    def of(self, module: str, group: str) -> tuple[Wrong, ...]:
        """A group carries its items through the whole pipeline: degree x tp ranks on every stage, in whole blocks of
        tp, and of cp where the layout has it.
        """
        if (module, group) not in self.found:
            self.found[module, group] = tuple(self.wrong(module, group))
        return self.found[module, group]

    def wrong(self, module: str, group: str) -> Iterator[Wrong]:
        layout, of_group, stage_of = self.plan.layouts[module], self.plan.groups[group], self.stages[module]
        if any(rank not in stage_of for rank in of_group.ranks):
            yield f"group {group} has ranks outside the layout of `{module}`", "widen the layout"
        held = [0] * layout.pp
        for rank in of_group.ranks:
            if rank in stage_of:
                held[stage_of[rank]] += 1
        needed = of_group.split_in(layout).degree * layout.tp
        if set(held) != {needed}:
            message = f"group {group} has {', '.join(map(str, held))} ranks on the stages of `{module}`"
            yield f"{message}, and spreads items over {needed}", "make them equal"
        ranks = set(of_group.ranks)
        for what, block_of in self.blocks[module]:
            for block in dict.fromkeys(block_of[rank] for rank in of_group.ranks if rank in block_of):
                if not ranks.issuperset(block):
                    yield f"group {group} parts ranks {block}, which share the {what} of `{module}`", ALL_OR_NONE

    def held(self, placed: tuple[tuple[str, str], ...]) -> tuple[Wrong, ...]:
        """Shares of a device that the (module, group)s of one row hold."""
        if placed not in self.shares:
            self.shares[placed] = tuple(self.overheld(placed))
        return self.shares[placed]

    def overheld(self, placed: tuple[tuple[str, str], ...]) -> Iterator[Wrong]:
        """Groups of one module on a rank hold it at the same time, and so do those of any that have a part of it; whole
        ones of several modules have it in turn.
        """
        held: dict[int, list[tuple[str, float]]] = {}
        for module, name in placed:
            group = self.plan.groups[name]
            for rank in group.ranks:
                held.setdefault(rank, []).append((module, group.share))
        for rank, of_rank in held.items():
            modules = list(dict.fromkeys(module for module, _ in of_rank))
            in_turn = len(modules) == len(of_rank) and all(share == 1 for _, share in of_rank)
            total = sum(share for _, share in of_rank)
            if total > 1 + 1e-9 and not in_turn:
                names = " and ".join(f"`{module}`" for module in modules)
                yield f"rank {rank} is held {total:g} times by groups of {names}", "give each rank one group"


def blocks_of(layout: Layout) -> Iterator[tuple[str, dict[int, Ranks]]]:
    """What ranks share among each other whatever the group: rank → its block."""
    yield "tensors", groups_over(layout, ("tp",))
    if layout.cp > 1:
        yield "sequences", groups_over(layout, ("cp",))


def stages_of(layout: Layout) -> dict[int, int]:
    """Rank → its stage."""
    return {rank: stage for stage in range(layout.pp) for rank in stage_ranks(layout, stage)}
