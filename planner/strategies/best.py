"""The best of all strategies of the table, each with everything that the job leaves open and it leaves to be tried.

Ranks synchronise in every micro-batch, as the all-gathers of ZeRO-3 force them to, or once a step under a lower ZeRO
stage, which leaves less memory for tokens; layers recompute nothing, a part, or all; or one static layout holds for all
sequences, which decides these by itself. Every candidate that the job allows is solved, by strategies that are handed
in; of those that the software can launch the plan of least expected seconds is chosen (scoring/expected_seconds.py),
and records what the others give, or why they give nothing.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from time import perf_counter
from typing import Any, NamedTuple

from planner.costs import Objective, find_objective
from planner.errors import Infeasible, Unsupported
from planner.layouts import with_joint_fields
from planner.plan.descriptions import placed_layout
from planner.plan.join_plans import round_digits
from planner.plan.launchable.launch_refusals import unlaunchable_error
from planner.plan.plan_file import Alternative, Plan, assignments
from planner.scoring import (
    OPTIMAL_GAP,
    SPACE,
    bounded_value,
    bounds_same_work,
    least_expected,
    objective_of,
    passed_over,
    plan_doubt,
)
from planner.specs.base import with_fields
from planner.specs.inputs import Inputs
from planner.specs.parallelism import Parallelism, RecomputeName, Sync
from planner.strategies.entry import StrategyEntry
from planner.strategies.solved_job import SolvedJob

Solve = Callable[[Inputs], SolvedJob]  # a job by one strategy; raises Unsupported, Infeasible and InputError


class Candidate(NamedTuple):
    """A strategy, with a ZeRO stage that its points of synchronisation allow and what its layers recompute; None: the
    strategy decides it.
    """

    strategy: str
    zero: int | None
    sync: Sync
    recompute: RecomputeName | None = None


Failures = Mapping[Candidate, Infeasible | Unsupported]
RECOMPUTES: tuple[RecomputeName, ...] = ("none", "selective", "full")


def best_of_candidates(
    inputs: Inputs, strategies: Mapping[str, Solve], table: Mapping[str, StrategyEntry]
) -> SolvedJob:
    """The best plan by the job's objective, and the other candidates as its alternatives; `strategies`: by name, as in
    the table.

    Raises an error where none gives a plan that the software can launch; and any error that is about the job, not about
    what a strategy or its prices cover.
    """
    solved: dict[Candidate, SolvedJob] = {}
    failed: dict[Candidate, Infeasible | Unsupported] = {}
    candidates = open_candidates(inputs, table)
    searches = [each for each in candidates if table[each.strategy].searches_layouts]
    without_plan = 0.0  # seconds of tries that gave none
    for candidate in candidates:
        start = perf_counter()
        try:
            solved[candidate] = strategies[candidate.strategy](candidate_inputs(inputs, candidate))
        except (Infeasible, Unsupported) as error:
            failed[candidate], without_plan = error, without_plan + perf_counter() - start
    refused = {each: wrong for each, done in solved.items() if (wrong := unlaunchable_error(done.plan))}
    if not solved.keys() - refused.keys():
        raise error_to_raise({each: failed[each] for each in searches if each in failed}, failed, refused)
    goal = find_objective(inputs.job.objective)
    able = [each for each in candidates if each in solved and each not in refused]
    best = best_candidate({each: solved[each].plan for each in able}, searches, inputs)
    entries = [
        plan_entry(each, solved[each].plan, solved[best].plan, refused[each].message if each in refused else "")
        if each in solved
        else failed_entry(each, failed[each])
        for each in candidates
        if each != best
    ]
    others = tuple(each for number, each in enumerate(entries) if each not in entries[:number])
    by_batch = [*zip(*(each.step_seconds for each in solved.values()), strict=True)]
    seconds = tuple(sum(each) + without_plan / len(by_batch) for each in by_batch)
    covered = covered_by_search(solved, searches, inputs)
    launched = [solved[each].plan for each in able if each not in covered]
    unsearched = any(isinstance(failed.get(each), Unsupported) for each in searches)
    chosen = bounded_over_candidates(solved[best].plan, [] if unsearched else launched, goal)
    if len(inputs.model.modules) > 1:  # what a candidate decided is nothing that the job fixed
        chosen = with_fields(chosen, uses=with_fields(chosen.uses, fix=with_joint_fields(inputs).job.fix))
    return SolvedJob(with_fields(chosen, alternatives=(*others, *chosen.alternatives)), seconds)


def best_candidate(plans: Mapping[Candidate, Plan], searches: Sequence[Candidate], inputs: Inputs) -> Candidate:
    """The candidate of least expected loss; but a search of static layouts whose plan is within the job's noise of it,
    which is plainer, where samples are alike or the software has no groups that change.
    """
    losses = {each: objective_of(plan).loss(plan.outcome.value) for each, plan in plans.items()}
    least = least_expected([*plans], losses.__getitem__, lambda each: plan_doubt(plans[each]))
    assert least, "a candidate is able"
    alike = inputs.software.knobs.groups == "layout" or len({*inputs.batches[0].items.values()}) == 1
    within = inputs.job.within if alike else 0.0
    static = [each for each in searches if each in plans and losses[each] <= (1.0 + within) * losses[least]]
    return static[0] if static and within else least


def covered_by_search(
    solved: Mapping[Candidate, SolvedJob], searches: Sequence[Candidate], inputs: Inputs
) -> list[Candidate]:
    """The candidates beside a search of static layouts that its bound covers: where the software launches static
    layouts alone, and the bound is over all of these, every plan that offloads nothing.
    """
    knobs = inputs.software.knobs
    static = knobs.groups == "layout" and knobs.packing == "equal" and knobs.orders == "named"
    proven = any(each in solved and solved[each].plan.outcome.bound_by == SPACE for each in searches)
    if not (static and proven):
        return []
    return [each for each, done in solved.items() if each not in searches and not offloads(done.plan)]


def offloads(plan: Plan) -> bool:
    """Whether activations of any item are offloaded."""
    each = (a for step in plan.steps for micro_batch in step.micro_batches for a in assignments(plan, micro_batch))
    return any(any(a.offload_shares(plan.layouts[a.module])) for a in each)


def bounded_over_candidates(chosen: Plan, plans: Sequence[Plan], goal: Objective) -> Plan:
    """The plan with the least bound of all candidates' plans; its own says nothing of theirs. Unchanged where one of
    them has only a bound over orders of the same work.
    """
    if any(bounds_same_work(each.outcome.bound_by) for each in plans):
        return chosen
    least = min((each.outcome.bound for each in plans), key=goal.loss, default=chosen.outcome.bound)
    if least == chosen.outcome.bound:
        return chosen
    bounded = with_fields(chosen.outcome, bound=least, bound_by=SPACE)
    gap = round_digits(goal.gap(bounded_value(bounded), least))
    status = "optimal" if goal.gap(bounded.value, least) < OPTIMAL_GAP else "feasible"
    return with_fields(chosen, outcome=with_fields(bounded, status=status, gap=gap))


def error_to_raise(searched: Failures, failed: Failures, refused: Failures) -> Infeasible | Unsupported:
    """The error of the whole space of layouts, which names the nearest layout that fits; else what cannot be launched;
    else the first one that says what binds.
    """
    for error in searched.values():
        if isinstance(error, Infeasible):
            return error
    if refused:
        return next(iter(refused.values()))
    return next((each for each in failed.values() if isinstance(each, Infeasible)), next(iter(failed.values())))


def open_candidates(inputs: Inputs, table: Mapping[str, StrategyEntry]) -> list[Candidate]:
    """Every strategy of the table that plans so many modules, and tables or tasks where there are any, with the job's
    ZeRO stage and recomputation, or where it gives none, with all that the strategy leaves to be tried. Searches of
    static layouts come first: of equally good plans they are those that people and frameworks can say; refinements come
    last.
    """
    modules, tables, tasks = len(inputs.model.modules), bool(inputs.tables), bool(inputs.model.tasks)
    entries = {
        name: each
        for name, each in table.items()
        if each.takes(modules) and ("tables" in each.decides) == tables and (each.losses == "several") == tasks
    }
    searches = {name: each.searches_layouts for name, each in entries.items()}
    return [
        candidate
        for name in sorted(entries, key=lambda name: (bool(entries[name].refines), not searches[name]))
        for candidate in left_open(name, entries[name], inputs)
    ]


def left_open(name: str, entry: StrategyEntry, inputs: Inputs) -> Iterator[Candidate]:
    """A strategy with each ZeRO stage, point of synchronisation and recomputation that the job and it leave open.
    Packings beside encoders take as long as a search of layouts: they are tried where the software has groups that
    change, and of ZeRO-1 and 2, which send alike, with the one that holds less.
    """
    if not entry.leaves:
        yield Candidate(name, None, "micro_batch")
        return
    several = len(inputs.model.modules) > 1
    fixed = inputs.fixed_parallelism if several else inputs.job.layout
    recomputes = [None] if fixed.recompute is not None else [*RECOMPUTES]
    if several and inputs.software.knobs.groups != "any":
        return
    for (zero, sync), recompute in product(entry.leaves, recomputes):
        tried = fixed.zero in ((None, zero) if zero else (0,))  # ZeRO-0 sends what ZeRO-1 does, and holds more
        if tried and (not several or zero != 1 or fixed.zero == 1):
            yield Candidate(name, zero, sync, recompute)


def candidate_inputs(inputs: Inputs, candidate: Candidate) -> Inputs:
    """The job with what a candidate decides of it: of several modules of that of the samples."""
    chosen: dict[str, Any] = {"zero": candidate.zero, "recompute": candidate.recompute}
    given = {name: value for name, value in chosen.items() if value is not None}
    job = with_fields(inputs.job, sync=candidate.sync)
    if len(inputs.model.modules) > 1:
        own = with_fields(job.fix.layouts.get(inputs.module, Parallelism()), **given)
        fix = with_fields(job.fix, layouts={**job.fix.layouts, inputs.module: own}) if given else job.fix
        return replace(inputs, job=with_fields(job, fix=fix))
    return replace(inputs, job=with_fields(job, layout=with_fields(job.layout, **given)))


def failed_entry(candidate: Candidate, error: Infeasible | Unsupported) -> Alternative:
    """The plan file's entry for a candidate that gives no plan; one of all where the strategy itself is unable."""
    because = error.message
    if isinstance(error, Unsupported) or candidate.zero is None:
        return Alternative(strategy=candidate.strategy, because=because)
    zero, sync, recompute = candidate.zero, candidate.sync, candidate.recompute
    return Alternative(strategy=candidate.strategy, zero=zero, sync=sync, recompute=recompute, because=because)


def plan_entry(candidate: Candidate, plan: Plan, chosen: Plan, refusal: str) -> Alternative:
    """The plan file's entry for a candidate whose plan was not chosen: `refusal`, by the software, or in doubt. Of
    several modules ZeRO and recomputation are those that a candidate says of the module of the samples.
    """
    several, one = len(plan.layouts) > 1, next(iter(plan.layouts.values()))
    loss = objective_of(plan).loss
    own, best = loss(plan.outcome.value), loss(chosen.outcome.value)
    return Alternative(
        strategy=candidate.strategy,
        zero=candidate.zero if several else one.zero,
        sync=plan.steps[0].sync,
        recompute=candidate.recompute if several else None,
        value=round_digits(plan.outcome.value),
        because=refusal or passed_over(chosen, plan, own / best if best else 1.0),
        launchable=not refusal,
        groups="groups" in plan.made.decided,
        layouts={module: placed_layout(each, plan.size) for module, each in plan.layouts.items()},
    )
