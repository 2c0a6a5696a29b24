"""Places the groups of a step on blocks of ranks of the head plan's catalogue, and prices the step again.

Where ranks synchronise in every micro-batch, each micro-batch is placed by itself. Where they synchronise once a step,
a rank executes its micro-batches one after another, so all groups of the step are placed together by list scheduling:
each on the block that is free first.
"""

from planner.costs import RankPool, pricing_of, rank_pools
from planner.errors import InputError
from planner.online.group_placement import place_groups
from planner.plan.plan_file import Assignment, Group, MicroBatch, Plan, assignments
from planner.plan.tasks.expand import expand
from planner.scoring import with_score
from planner.specs.base import Ranks, with_fields

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
