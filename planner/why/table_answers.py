"""Why an embedding table is where it is, and what another number of groups would cost, by the terms of a step."""

from dataclasses import replace

from planner.costs.tables import CUTS, plan_group, rank_samples, shard_options, table_loads
from planner.errors import InputError, PlannerError
from planner.plan.plan_file import Plan
from planner.scoring import score
from planner.specs.base import Spec, with_fields
from planner.specs.inputs import Inputs, require_possible_groups
from planner.specs.tables import JobTables
from planner.units import GIB
from planner.why.plan_problem import asked_inputs
from planner.why.resolved import Infeasibility, SolveAgain, infeasibility

GROUPS_KEYS = ("groups", "replicas", "average_every")


class OtherCut(Spec, omit_defaults=False):
    """The cheapest way to cut a table in one manner, in seconds of all ranks of a group, and of one with a shard."""

    cut: str
    parts: int
    cache: float
    rank_seconds: float
    group_seconds: float
    rank_gib: float


class WhyTable(Spec, omit_defaults=False, kw_only=True):
    """Why a table is where it is: what its shards take, of what its ranks take, beside other ways to cut it."""

    plan: str
    table: str
    cut: str
    at: str | int
    cache: float
    lookup: float  # seconds of a rank with a shard
    exchange: float
    average: float
    rank_seconds: float  # of all tables on the slowest rank that has a shard
    slowest_seconds: float  # of the slowest rank of a group
    others: tuple[OtherCut, ...]  # the plan's own among them


class TableTerms(Spec, omit_defaults=False):
    """Groups, and what tables take of the slowest rank of a group, in seconds, and bytes of the fullest."""

    groups: int
    replicas: str
    average_every: int
    lookup: float
    exchange: float
    average: float
    imbalance: float
    fullest_gib: float
    step_seconds: float


class WhyNotTables(Spec, omit_defaults=False, kw_only=True):
    """What other groups would cost, by term; or what binds."""

    plan: str
    changes: tuple[str, ...]
    before: TableTerms
    after: TableTerms | None
    infeasible: Infeasibility | None


def why_table(plan: Plan, name: str) -> WhyTable:
    """Why a table of a plan is where it is."""
    loads, placed = table_loads(plan), plan.embeddings
    assert loads and placed, "only plans with tables are asked"
    number, each = [*plan.uses.tables].index(name), placed.tables[name]
    options = shard_options({name: plan.uses.tables[name]}, plan_group(plan, placed), rank_samples(plan))
    least: dict[tuple[str, bool], OtherCut] = {}
    for option in options.of(0):
        other = OtherCut(
            cut=CUTS[options.cut[option]],
            parts=int(options.parts[option]),
            cache=float(options.cache[option]),
            rank_seconds=float(options.seconds[option]),
            group_seconds=float(options.totals[option]),
            rank_gib=float(options.held[option]) / GIB,
        )
        known = least.get((other.cut, other.cache > 0))
        if known is None or other.group_seconds < known.group_seconds:
            least[other.cut, other.cache > 0] = other
    return WhyTable(
        plan=plan.name,
        table=name,
        cut=each.cut,
        at=each.at.to_file() if each.at else "all",
        cache=each.cache,
        lookup=float(loads.shards.lookup[number]),
        exchange=float(loads.shards.exchange[number]),
        average=float(loads.shards.average[number]),
        rank_seconds=max(float(loads.seconds[rank]) for rank in loads.ranks_of(each)),
        slowest_seconds=float(loads.seconds.max()),
        others=tuple(sorted(least.values(), key=lambda other: other.group_seconds)),
    )


def asks_about_groups(words: tuple[str, ...]) -> bool:
    """Whether changes are of the groups that tables are in."""
    return all(word.partition("=")[0].strip() in GROUPS_KEYS for word in words)


def why_not_groups(plan: Plan, words: tuple[str, ...], resolve: SolveAgain) -> WhyNotTables:
    """Place the tables of a plan in other groups, and compare. Raises InputError."""
    inputs = changed_groups(asked_inputs(plan), words)
    before, after, binds = terms_of(plan), None, None
    try:
        after = terms_of(resolve(inputs))
    except PlannerError as error:
        binds = infeasibility(error)
    return WhyNotTables(plan=plan.name, changes=words, before=before, after=after, infeasible=binds)


def changed_groups(inputs: Inputs, words: tuple[str, ...]) -> Inputs:
    """The inputs of a job whose tables are in other groups. Raises InputError."""
    asked = inputs.job.tables or JobTables(file="")
    for word in words:
        key, _, value = (part.strip() for part in word.partition("="))
        if key == "replicas":
            if value not in ("node", "across"):
                raise InputError(f"`{value}` is not possible for `{key}`", where=key, fix="node or across")
            asked = with_fields(asked, replicas=value)
            continue
        if not value.isdecimal() or not 1 <= int(value[:9]) <= 10**6:
            raise InputError(f"`{value}` is not possible for `{key}`", where=key, fix="a whole number from 1 on")
        asked = with_fields(asked, **{key: int(value)})
        require_possible_groups(asked, inputs.cluster, key)
    return replace(inputs, job=with_fields(inputs.job, tables=asked))


def terms_of(plan: Plan) -> TableTerms:
    """What the tables of a plan take."""
    loads, placed = table_loads(plan), plan.embeddings
    assert loads and placed, "only plans with tables are asked"
    at = loads.slowest
    return TableTerms(
        groups=placed.groups,
        replicas=placed.replicas,
        average_every=placed.average_every,
        lookup=float(loads.lookup[at]),
        exchange=float(loads.exchange[at]),
        average=float(loads.average[at]),
        imbalance=loads.imbalance,
        fullest_gib=float(loads.held.max()) / GIB,
        step_seconds=score(plan).step_seconds,
    )
