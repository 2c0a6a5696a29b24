"""How groups lie on the mesh of a module, each looked at once: most rows of a step have the same groups."""

from collections import Counter
from collections.abc import Iterator

from planner.plan.meets import meets
from planner.plan.mesh import groups_over, stage_ranks
from planner.plan.model import Layout, Plan
from planner.specs.base import Ranks

Wrong = tuple[str, str]  # what, and what would mend it
Placed = tuple[tuple[str, str, float], ...]  # of one row: module, group, share of its devices
ROUNDING = 1e-9
ALL_OR_NONE = "take all of them, or none"


class Spread:
    """Of one plan."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.stages = {name: stages_of(layout) for name, layout in plan.layouts.items()}
        self.blocks = {name: [*blocks_of(layout)] for name, layout in plan.layouts.items()}
        self.meets = {name: meets(layout, plan.uses.models[name]) for name, layout in plan.layouts.items()}
        self.found: dict[tuple[str, str], tuple[Wrong, ...]] = {}
        self.shares: dict[Placed, tuple[Wrong, ...]] = {}

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

    def held(self, placed: Placed) -> tuple[Wrong, ...]:
        """What the groups of one row hold of their devices."""
        if placed not in self.shares:
            self.shares[placed] = tuple(self.overheld(placed))
        return self.shares[placed]

    def overheld(self, placed: Placed) -> Iterator[Wrong]:
        """Groups with a share of a rank may all run at the same time, so their shares add up to 1 at most; whole ones
        have it in turn, one of each module.
        """
        held: dict[int, list[tuple[str, float]]] = {}
        for module, name, share in placed:
            for rank in self.plan.groups[name].ranks:
                held.setdefault(rank, []).append((module, share))
        for rank, of_rank in held.items():
            shared = [each for each in of_rank if each[1] < 1]
            total = sum(share for _, share in shared)
            if total > 1 + ROUNDING:
                names = " and ".join(f"`{module}`" for module in dict.fromkeys(module for module, _ in shared))
                message = f"in one micro-batch groups of {names} have shares of rank {rank} that add up to {total:g}"
                yield message, "shares that add up to 1 at most, or another micro-batch"
            of_module = Counter(module for module, _ in of_rank)
            for module, count in of_module.items():
                if count > 1 and ((module, 1.0) in of_rank or self.meets[module]):
                    yield f"rank {rank} is held {count} times by groups of `{module}`", "give each rank one group"


def blocks_of(layout: Layout) -> Iterator[tuple[str, dict[int, Ranks]]]:
    """What ranks share among each other whatever the group: rank → its block."""
    yield "tensors", groups_over(layout, ("tp",))
    if layout.cp > 1:
        yield "sequences", groups_over(layout, ("cp",))


def stages_of(layout: Layout) -> dict[int, int]:
    """Rank → its stage."""
    return {rank: stage for stage in range(layout.pp) for rank in stage_ranks(layout, stage)}
