"""Laws of groups on the mesh of a module; findings are cached, since most micro-batches have the same groups."""

from collections import Counter
from collections.abc import Iterator

from planner.plan.mesh.rank_mesh import groups_over, stage_ranks
from planner.plan.mesh.synchronisation import all_ranks_join_micro_batches
from planner.plan.plan_file import Layout, Plan
from planner.specs.base import Ranks

Fault = tuple[str, str]  # message, fix
DeviceShares = tuple[tuple[str, str, float], ...]  # of one micro-batch: module, group, share of its devices
ROUNDING = 1e-9
WHOLE_BLOCKS = "take all of them, or none"


class GroupPlacement:
    """Violations by the groups of one plan, cached."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.stage_of_rank = {name: stage_of_rank(layout) for name, layout in plan.layouts.items()}
        self.sharding_blocks = {name: [*sharding_blocks(layout)] for name, layout in plan.layouts.items()}
        feeding = {edge.source for edge in plan.edges}
        self.syncs_each_micro_batch = {
            name: all_ranks_join_micro_batches(layout, plan.uses.models[name]) for name, layout in plan.layouts.items()
        }
        # Passes of an encoder are inserted group by group: a rank may run those of several, one after the other
        self.in_turn = {name for name in plan.layouts if name in feeding and not self.syncs_each_micro_batch[name]}
        self.fault_cache: dict[tuple[str, str], tuple[Fault, ...]] = {}
        self.share_fault_cache: dict[DeviceShares, tuple[Fault, ...]] = {}

    def faults(self, module: str, group: str) -> tuple[Fault, ...]:
        """Return what is wrong with a group. It takes its items through the whole pipeline, so it has degree x tp ranks
        on every stage, in whole tp groups, and whole cp groups where the layout has cp.
        """
        if (module, group) not in self.fault_cache:
            self.fault_cache[module, group] = tuple(self.find_faults(module, group))
        return self.fault_cache[module, group]

    def find_faults(self, module: str, group: str) -> Iterator[Fault]:
        """Yield what is wrong with a group, as `faults` returns it."""
        layout, placed_group, stage_of = self.plan.layouts[module], self.plan.groups[group], self.stage_of_rank[module]
        if any(rank not in stage_of for rank in placed_group.ranks):
            yield f"group {group} has ranks outside the layout of `{module}`", "widen the layout"
        ranks_on_stage = [0] * layout.pp
        for rank in placed_group.ranks:
            if rank in stage_of:
                ranks_on_stage[stage_of[rank]] += 1
        needed = placed_group.resolved_split(layout).degree * layout.tp
        if set(ranks_on_stage) != {needed}:
            message = f"group {group} has {', '.join(map(str, ranks_on_stage))} ranks on the stages of `{module}`"
            yield f"{message}, and shards items over {needed}", "make them equal"
        ranks = set(placed_group.ranks)
        for what, block_of in self.sharding_blocks[module]:
            for block in dict.fromkeys(block_of[rank] for rank in placed_group.ranks if rank in block_of):
                if not ranks.issuperset(block):
                    yield f"group {group} has some of ranks {block}, which shard the {what} of `{module}`", WHOLE_BLOCKS

    def share_faults(self, placed: DeviceShares) -> tuple[Fault, ...]:
        """Return what is wrong with the shares that groups of one micro-batch have of their devices."""
        if placed not in self.share_fault_cache:
            self.share_fault_cache[placed] = tuple(self.find_share_faults(placed))
        return self.share_fault_cache[placed]

    def find_share_faults(self, placed: DeviceShares) -> Iterator[Fault]:
        """Yield the faults of these shares. Groups with a share of a rank may all run at the same time, so their shares
        add up to 1 at most; groups without a share use the rank in turn, one of each module, or several of an encoder.
        """
        by_rank: dict[int, list[tuple[str, float]]] = {}
        for module, name, share in placed:
            for rank in self.plan.groups[name].ranks:
                by_rank.setdefault(rank, []).append((module, share))
        for rank, shares_of_rank in by_rank.items():
            shared = [each for each in shares_of_rank if each[1] < 1]
            total = sum(share for _, share in shared)
            if total > 1 + ROUNDING:
                names = " and ".join(f"`{module}`" for module in dict.fromkeys(module for module, _ in shared))
                message = f"in one micro-batch groups of {names} have shares of rank {rank} that add up to {total:g}"
                yield message, "shares that add up to 1 at most, or another micro-batch"
            if len({module for module, _ in shares_of_rank}) == len(shares_of_rank):
                continue
            of_module = Counter(module for module, _ in shares_of_rank)
            for module, count in of_module.items():
                mixed = (module, 1.0) in shares_of_rank and any(of == module for of, _ in shared)
                whole = (module, 1.0) in shares_of_rank and module not in self.in_turn
                if count > 1 and (mixed or whole or self.syncs_each_micro_batch[module]):
                    yield f"rank {rank} is in {count} groups of `{module}`", "put each rank into one group"


def sharding_blocks(layout: Layout) -> Iterator[tuple[str, dict[int, Ranks]]]:
    """Yield what ranks shard whatever their group, with rank → the ranks that it is sharded over."""
    yield "tensors", groups_over(layout, ("tp",))
    if layout.cp > 1:
        yield "sequences", groups_over(layout, ("cp",))


def stage_of_rank(layout: Layout) -> dict[int, int]:
    """Return rank → its stage."""
    return {rank: stage for stage in range(layout.pp) for rank in stage_ranks(layout, stage)}
