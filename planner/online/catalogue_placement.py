"""The catalogue of groups that a head plan lists, and the groups of later steps placed on it and priced again.

The catalogue has few blocks of ranks, so that all process groups can be created at load. Groups of a micro-batch are
placed largest first: one that fits a node into the node with the fewest sufficient free ranks (best fit), a larger one
onto adjacent empty nodes. Groups of 2^k ranks then start at multiples of their size: fewer than 2N blocks.

Where ranks synchronise in every micro-batch, each micro-batch is placed by itself. Where they synchronise once a step,
a rank executes its micro-batches one after another, so all groups of the step are placed together by list scheduling:
each on the block that is free first.
"""

import re
from collections.abc import Iterable, Sequence

from planner.costs import RankPool, pricing_of, rank_pools, split_degree
from planner.errors import InputError
from planner.online.batch_stream import BatchStream
from planner.plan.plan_file import Assignment, FollowingSteps, Group, MicroBatch, Plan, assignments, group_name
from planner.plan.tasks.expand import expand
from planner.scoring import with_score
from planner.specs.base import Ranks, with_fields
from planner.specs.inputs import Inputs


def node_sizes(pool: RankPool) -> list[int]:
    """Number of ranks of each node of a pool; the last node may be smaller."""
    return [min(pool.per_node, pool.ranks - at) for at in range(0, pool.ranks, pool.per_node)]


def catalogue_blocks(pool: RankPool, degrees: Iterable[int]) -> list[Ranks]:
    """Every block on which `place_groups` may place groups of these degrees."""
    candidates = []
    wide = [degree for degree in degrees if degree > pool.per_node]
    for degree in degrees:
        if degree > pool.per_node:
            steps = [-(-other // pool.per_node) for other in wide if other >= degree]
            begins = {at * pool.per_node for at in reachable_sums([0], steps, len(node_sizes(pool)))}
        else:
            others = [other for other in degrees if degree <= other <= pool.per_node]
            tails = {other % pool.per_node for other in wide}
            within = reachable_sums([0, *tails], others, pool.per_node - degree + 1)
            begins = {node + at for node in range(0, pool.ranks, pool.per_node) for at in within}
        candidates += [range(at, at + degree) for at in sorted(begins) if at + degree <= pool.ranks]
    return [Ranks(pool.first + rank for rank in block) for block in candidates]


def reachable_sums(starts: Iterable[int], steps: Iterable[int], end: int) -> set[int]:
    """Numbers below `end` that are a start plus any number of steps."""
    reached = {at for at in starts if at < end}
    for at in range(end):
        if at in reached:
            reached |= {at + step for step in steps if at + step < end}
    return reached


def place_groups(pool: RankPool, degrees: Sequence[int]) -> list[Ranks] | None:
    """Blocks for groups of these degrees, in descending order; None when they do not fit the nodes."""
    free, placed = node_sizes(pool), []
    for degree in degrees:
        at = fit_empty_nodes(free, pool, degree) if degree > pool.per_node else fit_fullest_node(free, pool, degree)
        if at is None:
            return None
        placed.append(Ranks(range(pool.first + at, pool.first + at + degree)))
    return placed


def fit_fullest_node(free: list[int], pool: RankPool, degree: int) -> int | None:
    """First rank of a block in the node with the fewest free ranks of those with enough; None if there is none."""
    fitting = [node for node in range(len(free)) if free[node] >= degree]
    if not fitting:
        return None
    node = min(fitting, key=lambda node: (free[node], node))
    at = node * pool.per_node + node_sizes(pool)[node] - free[node]
    free[node] -= degree
    return at


def fit_empty_nodes(free: list[int], pool: RankPool, degree: int) -> int | None:
    """First rank of a block over the first empty nodes, which are at the end as larger groups come first; None if they
    are too few.
    """
    count, sizes = -(-degree // pool.per_node), node_sizes(pool)
    first = next((node for node in range(len(free)) if free[node:] == sizes[node:]), len(free))
    if sum(free[first : first + count]) < degree:
        return None
    left = sum(free[first : first + count]) - degree
    free[first : first + count] = [0] * (count - 1) + [left]
    return first * pool.per_node


Known = dict[Ranks, str]  # block → group
Timed = tuple[float, Assignment]  # seconds, and the group with its items


def place_on_catalogue(head: Plan, plan: Plan) -> Plan:
    """The plan with its groups placed on those of the head plan, priced again. Raises InputError if they do not fit."""
    if all(head.groups.get(name) == group for name, group in plan.groups.items()):
        return plan
    known = {group.ranks: name for name, group in head.groups.items()}
    (step,) = plan.steps
    if step.sync == "step":
        micro_batches = place_step(plan, known)
    else:
        micro_batches = tuple(place_micro_batch(plan, each, known) for each in step.micro_batches)
    names = {a.group for each in micro_batches for a in assignments(plan, each)}
    groups: dict[str, Group] = {name: head.groups[name] for name in names}
    return with_score(
        with_fields(plan, groups=groups, steps=(with_fields(step, micro_batches=micro_batches),)), plan.outcome.effort
    )


def place_micro_batch(plan: Plan, micro_batch: MicroBatch, known: Known) -> MicroBatch:
    """Places the groups of one micro-batch, each within its own pool of ranks."""
    placed: MicroBatch = {}
    for pool in pools_of(plan):
        own = [a for a in assignments(plan, micro_batch) if plan.groups[a.group].ranks[0] in ranks_of(pool)]
        own.sort(key=lambda a: (-len(plan.groups[a.group].ranks), plan.groups[a.group].ranks))
        blocks = place_groups(pool, [len(plan.groups[a.group].ranks) for a in own])
        if blocks is None or any(block not in known for block in blocks):
            raise not_in_catalogue()
        placed |= {known[block]: a.entries for block, a in zip(blocks, own, strict=True)}
    return placed


def place_step(plan: Plan, known: Known) -> tuple[MicroBatch, ...]:
    """Places all groups of the step by list scheduling in three orders: as given, largest degree first, longest first;
    the one with the least makespan wins.
    """
    groups = group_times(plan)
    widest = sorted(groups, key=lambda g: (-len(plan.groups[g[1].group].ranks), -g[0], g[1].items))
    longest = sorted(groups, key=lambda g: (-g[0], g[1].items))
    schedules = [list_schedule(plan, known, order) for order in (groups, widest, longest)]
    return min(schedules, key=lambda schedule: schedule[0])[1]


def list_schedule(plan: Plan, known: Known, groups: list[Timed]) -> tuple[float, tuple[MicroBatch, ...]]:
    """Makespan and micro-batches when one group after another is placed on the block of its pool that is free first."""
    ends, counts = dict.fromkeys(range(plan.size), 0.0), dict.fromkeys(range(plan.size), 0)
    pool_ranks, micro_batches = [ranks_of(pool) for pool in pools_of(plan)], list[MicroBatch]()
    for seconds, a in groups:
        ranks = plan.groups[a.group].ranks
        pool = next(each for each in pool_ranks if ranks[0] in each)
        blocks = [block for block in known if len(block) == len(ranks) and block[0] in pool]
        if not blocks:
            raise not_in_catalogue()
        block = min(blocks, key=lambda block: (max(ends[rank] for rank in block), block))
        end, number = max(ends[rank] for rank in block) + seconds, max(counts[rank] for rank in block)
        ends |= dict.fromkeys(block, end)
        counts |= dict.fromkeys(block, number + 1)
        if number == len(micro_batches):
            micro_batches.append({})
        micro_batches[number][known[block]] = a.entries
    firsts = {name: block[0] for block, name in known.items()}
    ordered = tuple(dict(sorted(each.items(), key=lambda entry: firsts[entry[0]])) for each in micro_batches)
    return max(ends.values()), ordered


def group_times(plan: Plan) -> list[Timed]:
    """The groups of the step, each with the seconds of its forward and backward."""
    price, seconds = pricing_of(plan).price, dict[tuple[int | None, str], float]()
    for task in expand(plan, 0):
        if task.phase in ("F", "B"):
            key = (task.micro_batch, task.group)
            seconds[key] = seconds.get(key, 0.0) + price(task).value
    numbered = enumerate(plan.steps[0].micro_batches)
    return [(seconds[number, a.group], a) for number, each in numbered for a in assignments(plan, each) if a.entries]


def pools_of(plan: Plan) -> tuple[RankPool, ...]:
    return rank_pools(plan.uses.cluster, Ranks(range(plan.size)))


def ranks_of(pool: RankPool) -> range:
    return range(pool.first, pool.first + pool.ranks)


def not_in_catalogue() -> InputError:
    return InputError(
        "a micro-batch has groups that are not in the plan's catalogue",
        where="groups",
        fix="use degrees that divide each other, and the ranks of a node",
    )


def with_group_catalogue(plan: Plan, inputs: Inputs) -> Plan:
    """Adds the catalogue of groups and the step folder to a plan of the job's first batches."""
    groups = {
        group_name(block): Group(ranks=block, split=split_degree(inputs.spec, len(block)))  # type: ignore[arg-type]
        for pool in rank_pools(inputs.cluster, Ranks(range(inputs.cluster.size)))
        for block in catalogue_blocks(pool, plan.uses.degrees)
    } | plan.groups
    total = BatchStream(inputs).total
    return with_fields(
        plan,
        groups=dict(sorted(groups.items(), key=lambda entry: (entry[1].ranks[0], -len(entry[1].ranks), entry[0]))),
        then=FollowingSteps(
            folder=re.sub(r"[^\w.+-]", "_", plan.name) + ".steps",
            batches=None if total is None else total - len(plan.steps),
        ),
    )
