"""The packing problem: sequences to place on groups of ranks in micro-batches, with a cost line and a token cap per
group.

It is built from a job before solving, and from a plan's `uses` when verifying, by the same function: what is bounded is
what was solved.
"""

from dataclasses import dataclass, field, replace

from planner.costs.cost_lines import CostLine
from planner.costs.memory.infeasible_reasons import PoolLimits, require_groups_hold_items, require_states_fit
from planner.costs.memory.offload import Offloading
from planner.costs.memory.token_caps import ActivationBytes, token_cap
from planner.costs.pricing import Pricing
from planner.costs.ulysses_or_ring import split_degree
from planner.plan.mesh.rank_mesh import stage_ranks
from planner.plan.mesh.synchronisation import reduces_gradients
from planner.plan.plan_file import PlanInputs
from planner.plan.task import Phase, Task
from planner.specs.base import Layers, Ranks
from planner.specs.hardware.cluster import Cluster, device_of_rank
from planner.specs.parallelism import Sync
from planner.specs.sequence_sharding import SequenceSplit

ENDLESS = 1e18  # seconds of compute that hide all that can be hidden; finite, so that no share of it is undefined


@dataclass(frozen=True, slots=True)
class RankPool:
    """Consecutive ranks of one device kind, node by node."""

    first: int  # rank
    ranks: int
    per_node: int


@dataclass(frozen=True, slots=True)
class GroupShape:
    """A possible group: its degree, its pool, and its cost line for forward and backward together."""

    degree: int
    pool: int
    cap: int  # tokens that one rank can hold in a micro-batch
    line: CostLine

    @property
    def room(self) -> int:
        """Tokens that the group can hold."""
        return self.degree * self.cap


@dataclass(frozen=True, slots=True)
class PackingProblem:
    """Items to place on groups of these shapes, in micro-batches of these pools of ranks. Equal problems hash alike."""

    sizes: dict[int, int] = field(hash=False)  # item → tokens
    pools: tuple[RankPool, ...]
    shapes: tuple[GroupShape, ...]  # by rising degree, then by pool
    micro_batch_seconds: float  # lower bound of what every micro-batch adds to its slowest group
    step_seconds: float  # what every step adds once
    fixed: dict[int, int] = field(hash=False)  # item → the degree it must have
    sync: Sync = "micro_batch"  # when all ranks synchronise
    offload: Offloading | None = None  # of activations to the host; None: not possible
    full_micro_batch_seconds: float = 0.0  # what a full micro-batch adds to its slowest group

    @property
    def with_full_micro_batches(self) -> "PackingProblem":
        """The problem with the cost of full micro-batches, which packing assumes."""
        return replace(self, micro_batch_seconds=max(self.micro_batch_seconds, self.full_micro_batch_seconds))

    def choices(self, item: int) -> list[int]:
        """Indices of the shapes that can hold an item."""
        needed, degree = self.least_tokens(self.sizes[item]), self.fixed.get(item)
        return [i for i, s in enumerate(self.shapes) if needed <= s.room and (degree is None or s.degree == degree)]

    def least_tokens(self, size: int) -> float:
        """Tokens that an item takes of a group's room with as much offload as hides; only items that no single rank
        holds offload.
        """
        if self.offload is None or size <= min(shape.cap for shape in self.shapes):
            return size
        return self.offload.kept_share(self.offload.largest_ratio(size)) * size

    def offload_ratio(self, size: int, shape: int) -> float:
        """The share of its activations that an item must offload on a group of this shape."""
        if self.offload is None or size <= self.shapes[shape].room:
            return 0.0
        return self.offload.least_ratio(size, self.shapes[shape].room, self.offload.largest_ratio(size))

    def seconds(self, shape: int, items: tuple[int, ...]) -> float:
        """Seconds of a group of this shape for these items, forward and backward."""
        line = self.shapes[shape].line
        return line.const + sum(line.item_seconds(self.sizes[item]) for item in items)

    @property
    def tokens(self) -> int:
        """Tokens of all items."""
        return sum(self.sizes.values())

    @property
    def ranks(self) -> int:
        """Ranks of all pools."""
        return sum(pool.ranks for pool in self.pools)

    @property
    def micro_batch_tokens(self) -> int:
        """Tokens that a micro-batch can hold at most."""
        caps = [max((shape.cap for shape in self.shapes if shape.pool == i), default=0) for i in range(len(self.pools))]
        return sum(pool.ranks * cap for pool, cap in zip(self.pools, caps, strict=True))

    @property
    def fewest_micro_batches(self) -> int:
        """A lower bound of the number of micro-batches by their tokens, where all ranks synchronise in each."""
        return max(1, -(-self.tokens // self.micro_batch_tokens))

    @property
    def least_micro_batch_seconds(self) -> float:
        """Seconds of a micro-batch however little it holds."""
        return min(shape.line.const for shape in self.shapes) + self.micro_batch_seconds


def packing_problem(
    pricing: Pricing, module: str, uses: PlanInputs, sizes: dict[int, int], sync: Sync = "micro_batch"
) -> PackingProblem:
    """The packing problem for `sizes` (items of one step) under what the plan uses. Raises Infeasible, naming what
    binds.
    """
    layout = pricing.layouts[module]
    cluster_pools = rank_pools(uses.cluster, layout.ranks)
    caps = [pool_cap(pricing, module, uses, device_of_rank(uses.cluster, pool.first)) for pool in cluster_pools]
    problem = PackingProblem(
        sizes=dict(sorted(sizes.items())),
        pools=cluster_pools,
        shapes=tuple(
            GroupShape(degree, number, caps[number], group_line(pricing, module, degree, pool.first))
            for degree in sorted(set(uses.degrees))
            for number, pool in enumerate(cluster_pools)
            if degree <= pool.ranks
        ),
        micro_batch_seconds=micro_batch_zero3_seconds(pricing, module, (ENDLESS, ENDLESS)),
        step_seconds=once_a_step_seconds(pricing, module, ENDLESS),
        fixed={item: fixed.degree for item, fixed in uses.fix.items.items() if item in sizes},
        sync=sync,
        offload=host_offload(pricing, module, uses) if sync == "step" else None,
    )
    degrees = [tuple(shape.degree for shape in problem.shapes if shape.pool == n) for n in range(len(cluster_pools))]
    allowed = [
        PoolLimits(device_of_rank(uses.cluster, pool.first), pool.ranks, pool_degrees, cap)
        for pool, pool_degrees, cap in zip(cluster_pools, degrees, caps, strict=True)
    ]
    require_groups_hold_items(problem.sizes, problem.choices, problem.fixed, allowed)
    return replace(problem, full_micro_batch_seconds=full_micro_batch_zero3(pricing, module, problem))


def rank_pools(cluster: Cluster, ranks: Ranks) -> tuple[RankPool, ...]:
    """The pools among consecutive ranks: neighbours of one device kind, on nodes of one size, are one pool."""
    merged: list[RankPool] = []
    first, previous_kind = 0, ""
    for entry in cluster.ranks:
        begin, end = max(first, ranks[0]), min(first + entry.count, ranks[-1] + 1)
        first += entry.count
        if begin >= end:
            continue
        last = merged[-1] if merged else None
        if last and previous_kind == entry.kind and last.per_node == entry.per_node and last.ranks % last.per_node == 0:
            merged[-1] = RankPool(last.first, last.ranks + end - begin, last.per_node)
        else:
            merged.append(RankPool(begin, end - begin, entry.per_node))
        previous_kind = entry.kind
    return tuple(merged)


def pool_cap(pricing: Pricing, module: str, uses: PlanInputs, kind: str) -> int:
    """Tokens of a micro-batch that a rank of a kind can hold. Raises Infeasible where it cannot hold the model
    states.
    """
    layout, spec, device = pricing.layouts[module], pricing.models[module], uses.devices[kind]
    accounting = uses.prices.accounting
    if uses.limits.tokens_per_rank is None:
        several = len(pricing.device_kinds(layout.ranks)) > 1
        require_states_fit(spec, layout, device, uses.limits, accounting, kind if several else "")
    return activation_cap(pricing, module, uses, kind)


def activation_cap(pricing: Pricing, module: str, uses: PlanInputs, kind: str) -> int:
    """Tokens of a micro-batch that a rank of a kind can hold beside model states; ≤ 0 where it cannot hold these."""
    layout, spec, device = pricing.layouts[module], pricing.models[module], uses.devices[kind]
    basis, accounting, whole = pricing.module_pricing(module, kind), uses.prices.accounting, Layers(range(spec.layers))

    def held(tokens: int) -> ActivationBytes:
        """Where attention's matrix is kept, of sequences so short that it takes nothing."""
        if accounting.flash:
            return basis.activation_bytes(whole, True, SequenceSplit(), (tokens,))
        return basis.activation_bytes(whole, True, SequenceSplit(), (1,)).times(tokens)

    return token_cap(spec, held, layout, device, uses.limits, accounting)


def host_offload(pricing: Pricing, module: str, uses: PlanInputs) -> Offloading | None:
    """Offload to the hosts of all ranks; None where they differ in kind, or have no link to a host."""
    kinds = {device_of_rank(uses.cluster, rank) for rank in pricing.layouts[module].ranks}
    device = uses.devices[min(kinds)]
    if len(kinds) > 1 or not device.host_gb_per_s:
        return None
    return pricing.offloading(module, min(kinds), Layers(range(pricing.models[module].layers)))


def group_line(pricing: Pricing, module: str, degree: int, first: int) -> CostLine:
    """The cost line of a group of this degree, forward and backward."""
    forward, backward = pass_lines(pricing, module, degree, first)
    return forward + backward


def micro_batch_zero3_seconds(pricing: Pricing, module: str, compute: tuple[float, float]) -> float:
    """Seconds that ZeRO-3 adds to every micro-batch: gathers in forward and backward and one reduction, as far as the
    seconds of compute in each pass do not hide them.
    """
    layout = pricing.layouts[module]
    if layout.zero < 3:
        return 0.0
    layers = Layers(range(pricing.models[module].layers))
    phases: tuple[Phase, ...] = ("gather", "sync")
    exchanges = (Task(module, layers, phase, 0, "all", layout.ranks) for phase in phases)
    return sum(pricing.exposed_seconds(task, seconds) for task, seconds in zip(exchanges, compute, strict=True))


def once_a_step_seconds(pricing: Pricing, module: str, compute: float) -> float:
    """Seconds that every step adds once on the first stage: the update, and below ZeRO-3 the exposed part of the
    reduction and of the gather after the update, each next to `compute` seconds of compute.
    """
    layout = pricing.layouts[module]
    stages = layout.stages or (Layers(range(pricing.models[module].layers)),)
    layers, ranks = Layers(layer for stage in stages[:: layout.pp] for layer in stage), stage_ranks(layout, 0)
    update = pricing.price(Task(module, layers, "update", None, "all", ranks)).value
    if layout.zero == 3 or not reduces_gradients(layout, pricing.models[module]):
        return update
    phases: tuple[Phase, ...] = ("sync", "gather") if layout.zero else ("sync",)
    exchanges = (Task(module, layers, phase, None, "all", ranks) for phase in phases)
    return update + sum(pricing.exposed_seconds(task, compute) for task in exchanges)


def full_micro_batch_zero3(pricing: Pricing, module: str, problem: PackingProblem) -> float:
    """Seconds that ZeRO-3 adds to a full micro-batch, which packing assumes."""
    layout = pricing.layouts[module]
    if layout.zero < 3 or not problem.shapes:
        return problem.micro_batch_seconds
    ranks = Ranks(range(problem.pools[0].first, problem.pools[0].first + 1))
    forward, backward = (
        pricing.module_line(module, ranks, SequenceSplit(), is_forward)[0] for is_forward in (True, False)
    )
    each = [sum(line.item_seconds(size) for size in problem.sizes.values()) for line in (forward, backward)]
    share = 1.0 / problem.ranks / problem.fewest_micro_batches
    return micro_batch_zero3_seconds(pricing, module, (each[0] * share, each[1] * share))


def pass_lines(pricing: Pricing, module: str, degree: int, first: int) -> tuple[CostLine, CostLine]:
    """Cost lines of forward and backward on an aligned block of `degree` ranks, from rank `first` on."""
    block = Ranks(range(first, first + degree))
    parts = SequenceSplit(**split_degree(pricing.models[module], degree))
    return pricing.module_line(module, block, parts, True)[0], pricing.module_line(module, block, parts, False)[0]
