"""The best plan over ranks of several kinds: over all of them, or over some, with the others left without work.

Where slow ranks cost more in exchanges and rounding than they do of the work, they have none. A kind without the
job's dtype (V100 has no bfloat16) has none either.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from math import inf

from planner.errors import Infeasible
from planner.layouts import mixed_work_bound, problems_by_kind
from planner.plan.descriptions import placed_layout
from planner.plan.join_plans import round_digits
from planner.plan.mesh.synchronisation import sync_of
from planner.plan.plan_file import Alternative, Layout, Plan
from planner.scoring import over_space, plan_space_seconds, with_score
from planner.specs.base import Ranks, with_fields
from planner.specs.hardware.cluster import cluster_of_kinds, device_of_rank, rank_kinds, ranks_of_kind
from planner.specs.inputs import Inputs
from planner.specs.job import USUAL_DTYPE
from planner.specs.offers import DTYPE_NAMES
from planner.strategies.mixed_kinds.search import mixed_tries
from planner.strategies.static.layouts_plan import draft_of_layouts
from planner.strategies.static.tried_layouts import TriedLayouts, Tries
from planner.units import listed, percent

MOST_KINDS = 3  # of which all sets are tried; of more each alone, and all
RUNNERS_UP = 3  # meshes beside the chosen one that a plan names

SEARCH = "parallel_search"  # whose plans these are

PlanOnKind = Callable[[Inputs], Plan]  # the best plan on ranks of one kind; raises Infeasible


def mixed_kinds_plan(inputs: Inputs, on_kind: PlanOnKind) -> Plan:
    """The best plan over all ranks or those of some kinds, with the bound over both. Raises Infeasible."""
    every, able = rank_kinds(inputs.cluster), able_kinds(inputs)
    plans, refused, slower = list[Plan](), list[Infeasible](), list[Alternative]()
    for kinds in sets_of_kinds(able):
        least, best = least_on(inputs, kinds), min((each.outcome.value for each in plans), default=inf)
        if least >= best:
            slower.append(Alternative(strategy=SEARCH, because=never_quicker(kinds, least), too_slow=True, about=least))
            continue
        try:
            plans.append(plan_on_kinds(inputs, kinds, on_kind))
        except Infeasible as error:
            refused.append(error)
    if not plans:
        raise refused[0]
    chosen = min(plans, key=lambda each: each.outcome.value)
    beside = [each for each in plans if each is not chosen]
    left_out = [each for each in every if each not in able]
    alternatives = (
        *(fewer_kinds(inputs, each, chosen) for each in beside),
        *slower,
        *without_dtype(inputs, left_out),
        *chosen.alternatives,
    )
    whole = with_fields(chosen, alternatives=alternatives)
    return over_space(whole, plan_space_seconds(whole))


def least_on(inputs: Inputs, kinds: Sequence[str]) -> float:
    """Seconds that a step on the ranks of some kinds takes at least, by its work."""
    part = replace(inputs, cluster=cluster_of_kinds(inputs.cluster, kinds))
    return round_digits(mixed_work_bound(*problems_by_kind(part)))


def never_quicker(kinds: Sequence[str], least: float) -> str:
    """Why no plan on some kinds was looked for."""
    return f"on {listed(kinds, 'and')} alone the work takes {least:.2f} s at least"


def able_kinds(inputs: Inputs) -> tuple[str, ...]:
    """The kinds that have the job's dtype; all where none has."""
    every, dtype = rank_kinds(inputs.cluster), inputs.fixed_parallelism.dtype or USUAL_DTYPE
    able = tuple(each for each in every if dtype not in DTYPE_NAMES or dtype in inputs.devices[each].tflops)
    return able or every


def sets_of_kinds(kinds: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield the sets of kinds that are tried: all first, each alone last."""
    most = len(kinds)
    for size in range(most, 0, -1) if most <= MOST_KINDS else (most, 1):
        yield from combinations(kinds, size)


def plan_on_kinds(inputs: Inputs, kinds: tuple[str, ...], on_kind: PlanOnKind) -> Plan:
    """The best plan over the ranks of some kinds. Raises Infeasible."""
    if kinds == rank_kinds(inputs.cluster):
        return plan_on_all(inputs)
    part = replace(inputs, cluster=cluster_of_kinds(inputs.cluster, kinds))
    found = on_kind(part) if len(kinds) == 1 else plan_on_all(part)
    ranks = sorted(rank for kind in kinds for rank in ranks_of_kind(inputs.cluster, kind))
    layouts = {
        name: with_fields(layout, ranks=Ranks(ranks[rank] for rank in layout.ranks))
        for name, layout in found.layouts.items()
    }
    placed = with_score(draft_of_layouts(inputs, layouts), found.outcome.effort)
    return with_fields(placed, alternatives=())


def plan_on_all(inputs: Inputs) -> Plan:
    """The best plan over all ranks of several kinds. Raises Infeasible."""
    every, work = mixed_tries(inputs)
    done = Tries({str(each.layout): each for each in every})

    def scored(tried: TriedLayouts) -> Plan:
        assert tried.plan, "what is chosen has a plan"
        return with_score(tried.plan, work)

    best = done.quickest_scored(scored)
    if best is None or best.plan is None:
        message = f"no layout over {listed(rank_kinds(inputs.cluster), 'and')} fits"
        raise Infeasible(message, where="memory", fix="more ranks, a smaller model, or shorter sequences")
    others = [each for each in done.rising if each.layout != best.layout]
    slower = tuple(slower_layout(inputs, each, best) for each in others[:RUNNERS_UP])
    return with_fields(best.plan, alternatives=slower)


def slower_layout(inputs: Inputs, tried: TriedLayouts, best: TriedLayouts) -> Alternative:
    """A layout on all ranks that was not chosen."""
    return as_alternative(inputs.module, tried.layout, inputs.cluster.size, tried.seconds, best.seconds, "")


def fewer_kinds(inputs: Inputs, tried: Plan, chosen: Plan) -> Alternative:
    """The best plan on other kinds of ranks, as an alternative."""
    layout, values = tried.layouts[inputs.module], (tried.outcome.value, chosen.outcome.value)
    kinds = [*dict.fromkeys(device_of_rank(inputs.cluster, rank) for rank in layout.ranks)]
    return as_alternative(inputs.module, layout, tried.size, *values, f" on {listed(kinds, 'and')}")


def as_alternative(module: str, layout: Layout, size: int, seconds: float, best: float, where: str) -> Alternative:
    """A layout with its seconds, and how much slower it is."""
    because = f"{percent(seconds / best - 1.0)} slower{where}"
    layouts = {module: placed_layout(layout, size)}
    return Alternative(
        strategy=SEARCH, zero=layout.zero, sync=sync_of(layout), value=seconds, because=because, layouts=layouts
    )


def without_dtype(inputs: Inputs, kinds: Sequence[str]) -> Iterator[Alternative]:
    """Yield what is said of kinds that have not the job's dtype."""
    dtype = inputs.fixed_parallelism.dtype or USUAL_DTYPE
    for kind in kinds:
        yield Alternative(strategy=SEARCH, because=f"{kind} has no {DTYPE_NAMES[dtype]}: its ranks are left out")
