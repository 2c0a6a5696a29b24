"""How groups lie on the mesh of a module, each looked at once: most rows of a step have the same groups."""

from collections.abc import Iterator

from planner.plan.mesh import groups_over, stage_ranks
from planner.plan.model import Layout, Plan

Wrong = tuple[str, str]  # what, and what would mend it


class Spread:
    """Of one plan."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.stages = {name: stages_of(layout) for name, layout in plan.layouts.items()}
        self.blocks = {name: groups_over(layout, ("tp",)) for name, layout in plan.layouts.items()}
        self.found: dict[tuple[str, str], tuple[Wrong, ...]] = {}
        self.shares: dict[tuple[tuple[str, str], ...], tuple[Wrong, ...]] = {}

    def of(self, module: str, group: str) -> tuple[Wrong, ...]:
        """A group carries its items through the whole pipeline: degree x tp ranks on every stage, in whole blocks of
        tp.
        """
        if (module, group) not in self.found:
            self.found[module, group] = tuple(self.wrong(module, group))
        return self.found[module, group]

    def wrong(self, module: str, group: str) -> Iterator[Wrong]:
        layout, of_group, stage_of = self.plan.layouts[module], self.plan.groups[group], self.stages[module]
        if any(rank not in stage_of for rank in of_group.ranks):
            yield f"group {group} has ranks outside the layout of `{module}`", "widen the layout"
        held = [0] * layout.mesh.get("pp", 1)
        for rank in of_group.ranks:
            if rank in stage_of:
                held[stage_of[rank]] += 1
        needed = of_group.degree * layout.mesh.get("tp", 1)
        if set(held) != {needed}:
            message = f"group {group} has {', '.join(map(str, held))} ranks on the stages of `{module}`"
            yield f"{message}, and spreads items over {needed}", "make them equal"
        ranks, block_of = set(of_group.ranks), self.blocks[module]
        for block in dict.fromkeys(block_of[rank] for rank in of_group.ranks if rank in block_of):
            if not ranks.issuperset(block):
                yield (
                    f"group {group} parts ranks {block}, which share the tensors of `{module}`",
                    ("take all of them, or none"),
                )

    def held(self, placed: tuple[tuple[str, str], ...]) -> tuple[Wrong, ...]:
        """Shares of a device that the (module, group)s of one row hold."""
        if placed not in self.shares:
            self.shares[placed] = tuple(self.overheld(placed))
        return self.shares[placed]

    def overheld(self, placed: tuple[tuple[str, str], ...]) -> Iterator[Wrong]:
        held: dict[tuple[str, int], float] = {}
        for module, name in placed:
            group = self.plan.groups[name]
            for rank in group.ranks:
                held[module, rank] = held.get((module, rank), 0.0) + group.share
        for (module, rank), share in held.items():
            if share > 1 + 1e-9:
                yield f"rank {rank} is held {share:g} times by groups of `{module}`", "give each rank one group"


def stages_of(layout: Layout) -> dict[int, int]:
    """Rank → its stage."""
    return {rank: stage for stage in range(layout.mesh.get("pp", 1)) for rank in stage_ranks(layout, stage)}
