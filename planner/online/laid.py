"""The groups of a step on blocks of ranks that exist; laid anew, they are worth what they are worth there.

Where ranks meet in every micro-batch, each micro-batch is laid by itself. Where they meet once a step, a rank does its
micro-batches one after another, so all groups of the step are laid together, each on the block that is done soonest.
"""

from planner.costs.pricing import pricing_of
from planner.costs.step.sequences import Pool, pools
from planner.errors import InputError
from planner.online.catalogue import lay
from planner.plan.expand import expand
from planner.plan.model import Assignment, Group, Plan, Row, assignments
from planner.specs.base import Ranks, changed
from planner.verify.score import scored

Known = dict[Ranks, str]  # block → group
Timed = tuple[float, Assignment]  # seconds


def on_catalogue(head: Plan, plan: Plan) -> Plan:
    """The same groups of items on groups that exist, priced again. Raises InputError when there is no room for them."""
    if all(head.groups.get(name) == group for name, group in plan.groups.items()):
        return plan
    known = {group.ranks: name for name, group in head.groups.items()}
    (step,) = plan.steps
    if step.sync == "step":
        rows = laid_step(plan, known)
    else:
        rows = tuple(laid_row(plan, row, known) for row in step.micro_batches)
    names = {a.group for row in rows for a in assignments(plan, row)}
    groups: dict[str, Group] = {name: head.groups[name] for name in names}
    return scored(changed(plan, groups=groups, steps=(changed(step, micro_batches=rows),)), plan.outcome.effort)


def laid_row(plan: Plan, row: Row, known: Known) -> Row:
    """One micro-batch, each group within its own pool of ranks."""
    laid: Row = {}
    for pool in pools_of(plan):
        own = [a for a in assignments(plan, row) if plan.groups[a.group].ranks[0] in ranks_of(pool)]
        own.sort(key=lambda a: (-len(plan.groups[a.group].ranks), plan.groups[a.group].ranks))
        blocks = lay(pool, [len(plan.groups[a.group].ranks) for a in own])
        if blocks is None or any(block not in known for block in blocks):
            raise missing()
        laid |= {known[block]: a.entries for block, a in zip(blocks, own, strict=True)}
    return laid


def laid_step(plan: Plan, known: Known) -> tuple[Row, ...]:
    """All groups of the step, in the order that is done soonest: as they lay, widest first, or longest first."""
    groups = timed(plan)
    widest = sorted(groups, key=lambda g: (-len(plan.groups[g[1].group].ranks), -g[0], g[1].items))
    longest = sorted(groups, key=lambda g: (-g[0], g[1].items))
    laid = [listed(plan, known, order) for order in (groups, widest, longest)]
    return min(laid, key=lambda way: way[0])[1]


def listed(plan: Plan, known: Known, groups: list[Timed]) -> tuple[float, tuple[Row, ...]]:
    """One group after another on the block of its pool that is done soonest; and when the last rank is done."""
    ends, begun = dict.fromkeys(range(plan.size), 0.0), dict.fromkeys(range(plan.size), 0)
    reaches, rows = [ranks_of(pool) for pool in pools_of(plan)], list[Row]()
    for seconds, a in groups:
        ranks = plan.groups[a.group].ranks
        pool = next(reach for reach in reaches if ranks[0] in reach)
        blocks = [block for block in known if len(block) == len(ranks) and block[0] in pool]
        if not blocks:
            raise missing()
        block = min(blocks, key=lambda block: (max(ends[rank] for rank in block), block))
        end, row = max(ends[rank] for rank in block) + seconds, max(begun[rank] for rank in block)
        ends |= dict.fromkeys(block, end)
        begun |= dict.fromkeys(block, row + 1)
        if row == len(rows):
            rows.append({})
        rows[row][known[block]] = a.entries
    firsts = {name: block[0] for block, name in known.items()}
    ordered = tuple(dict(sorted(row.items(), key=lambda entry: firsts[entry[0]])) for row in rows)
    return max(ends.values()), ordered


def timed(plan: Plan) -> list[Timed]:
    """The groups of the step as they lie, with the seconds that they take."""
    price, seconds = pricing_of(plan).price, dict[tuple[int | None, str], float]()
    for task in expand(plan, 0):
        if task.phase in ("F", "B"):
            key = (task.micro_batch, task.group)
            seconds[key] = seconds.get(key, 0.0) + price(task).value
    rows = enumerate(plan.steps[0].micro_batches)
    return [(seconds[number, a.group], a) for number, row in rows for a in assignments(plan, row) if a.entries]


def pools_of(plan: Plan) -> tuple[Pool, ...]:
    return pools(plan.uses.cluster, Ranks(range(plan.size)))


def ranks_of(pool: Pool) -> range:
    return range(pool.first, pool.first + pool.ranks)


def missing() -> InputError:
    return InputError(
        "a micro-batch has groups that are not in the plan's catalogue",
        where="groups",
        fix="use degrees that divide each other, and the ranks of a node",
    )
