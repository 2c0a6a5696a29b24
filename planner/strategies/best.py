"""The best of all strategies that support a job, each with everything that the job leaves open.

Ranks synchronise in every micro-batch, as the all-gathers of ZeRO-3 force them to, or once a step under a lower ZeRO
stage, which leaves less memory for tokens; layers recompute nothing, a part, or all; or one static layout holds for all
sequences, which decides these by itself. Every candidate that the job allows is solved, by strategies that are handed
in; of those that the software can launch the plan of least expected seconds is chosen (scoring/expected_seconds.py),
and records what the others give, or why they give nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any, NamedTuple

from planner.costs import Objective, find_objective
from planner.errors import Infeasible, Unsupported
from planner.layouts import with_joint_fields
from planner.plan.descriptions import placed_layout
from planner.plan.join_plans import round_digits
from planner.plan.launchable import refusal_text
from planner.plan.launchable_plan import plan_refusals
from planner.plan.plan_file import Alternative, Plan, assignments
from planner.scoring import (
    OPTIMAL_GAP,
    SPACE,
    bounds_same_work,
    least_expected,
    objective_of,
    passed_over,
    plan_doubt,
)
from planner.specs.base import with_fields
from planner.specs.framework.software import ANY
from planner.specs.inputs import Inputs
from planner.specs.parallelism import Parallelism, RecomputeName, Sync
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


GROUPED = (("sequence_groups", 3, "micro_batch"), *(("data_ranks", zero, "step") for zero in (2, 1, 0)))
RECOMPUTES: tuple[RecomputeName, ...] = ("none", "selective", "full")
SEARCHED = Candidate("parallel_search", None, "micro_batch")
ORDERED = Candidate("pipeline_order", None, "micro_batch")
JOINT = Candidate("modality_layout", None, "micro_batch")


def best_of_candidates(inputs: Inputs, strategies: Mapping[str, Solve]) -> SolvedJob:
    """The best plan by the job's objective, and the other candidates as its alternatives; `strategies`: by name.

    Raises an error where none gives a plan that the software can launch; and any error that is about the job, not about
    what a strategy or its prices cover.
    """
    solved: dict[Candidate, SolvedJob] = {}
    failed: dict[Candidate, Infeasible | Unsupported] = {}
    candidates = open_candidates(inputs)
    for candidate in candidates:
        try:
            solved[candidate] = strategies[candidate.strategy](candidate_inputs(inputs, candidate))
        except (Infeasible, Unsupported) as error:
            failed[candidate] = error
    refused = {each: text for each, done in solved.items() if (text := unlaunchable_text(done.plan))}
    if not solved.keys() - refused.keys():
        raise error_to_raise(failed, refused)
    goal = find_objective(inputs.job.objective)
    able = [each for each in candidates if each in solved and each not in refused]
    losses = {each: goal.loss(solved[each].plan.outcome.value) for each in able}
    best = least_expected(able, losses.__getitem__, lambda each: plan_doubt(solved[each].plan))
    assert best, "a candidate is able"
    entries = [
        plan_entry(each, solved[each].plan, solved[best].plan, refused.get(each, ""))
        if each in solved
        else failed_entry(each, failed[each])
        for each in candidates
        if each != best
    ]
    others = tuple(each for number, each in enumerate(entries) if each not in entries[:number])
    seconds = tuple(map(sum, zip(*(each.step_seconds for each in solved.values()), strict=True)))
    launched = [solved[each].plan for each in able if not covered_by_search(each, solved, inputs)]
    searches = not isinstance(failed.get(SEARCHED), Unsupported)
    chosen = bounded_over_candidates(solved[best].plan, launched if searches else [], goal)
    if len(inputs.model.modules) > 1:  # what a candidate decided is nothing that the job fixed
        chosen = with_fields(chosen, uses=with_fields(chosen.uses, fix=with_joint_fields(inputs).job.fix))
    return SolvedJob(with_fields(chosen, alternatives=(*others, *chosen.alternatives)), seconds)


def covered_by_search(candidate: Candidate, solved: Mapping[Candidate, SolvedJob], inputs: Inputs) -> bool:
    """Whether the bound of the search of static layouts is over all plans of another candidate that the software can
    launch: those are static layouts, and offload nothing.
    """
    knobs = inputs.software.knobs
    searched = solved.get(SEARCHED, solved.get(JOINT))
    static = knobs.groups == "layout" and knobs.packing == "equal" and knobs.orders == "named"
    proven = searched is not None and searched.plan.outcome.bound_by == SPACE
    return candidate not in (SEARCHED, JOINT) and static and proven and not offloads(solved[candidate].plan)


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
    gap = round_digits(goal.gap(chosen.outcome.value, least))
    status = "optimal" if gap < OPTIMAL_GAP else "feasible"
    return with_fields(chosen, outcome=with_fields(chosen.outcome, status=status, bound=least, gap=gap, bound_by=SPACE))


def unlaunchable_text(plan: Plan) -> str:
    """The first rule of its software that a plan breaks, as a sentence; empty where it breaks none."""
    first = next(plan_refusals(plan), None)
    return refusal_text(plan.uses.software.name, first[1], "plan") if first else ""


def error_to_raise(
    failed: Mapping[Candidate, Infeasible | Unsupported], refused: Mapping[Candidate, str]
) -> Infeasible | Unsupported:
    """The error of the whole space of layouts, which names the nearest layout that fits; else what cannot be launched;
    else the first one that says what binds.
    """
    searched = failed.get(SEARCHED, failed.get(JOINT))
    if isinstance(searched, Infeasible):
        return searched
    if refused:
        fix = f"software: {ANY}, to price what nothing can launch"
        return Infeasible(next(iter(refused.values())), where="software", fix=fix)
    return next((each for each in failed.values() if isinstance(each, Infeasible)), next(iter(failed.values())))


def open_candidates(inputs: Inputs) -> list[Candidate]:
    """Every candidate with the job's ZeRO stage and recomputation, or all that may be best where it gives none. Static
    layouts come first: of equally good plans they are those that people and frameworks can say. Packings beside
    encoders take as long as a search of layouts: they are tried where the software has groups that change, and of
    ZeRO-1 and 2, which send alike, with the one that holds less.
    """
    several = len(inputs.model.modules) > 1
    fixed = inputs.fixed_parallelism if several else inputs.job.layout
    stage, how = fixed.zero, fixed.recompute
    recomputes = [None] if how is not None else [*RECOMPUTES]
    grouped = [
        Candidate(name, zero, sync, recompute)  # type: ignore[arg-type]
        for (name, zero, sync), recompute in product(GROUPED, recomputes)
        if stage in ((None, zero) if zero else (0,))  # ZeRO-0 sends what ZeRO-1 does, and updates and holds more
    ]
    if several:
        able = inputs.software.knobs.groups == "any"
        return [JOINT, *(each for each in grouped if able and (each.zero != 1 or stage == 1))]
    return [SEARCHED, *grouped, ORDERED]


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
    (layout, *encoders) = plan.layouts.values()
    loss = objective_of(plan).loss
    own, best = loss(plan.outcome.value), loss(chosen.outcome.value)
    return Alternative(
        strategy=candidate.strategy,
        zero=candidate.zero if encoders else layout.zero,
        sync=plan.steps[0].sync,
        recompute=candidate.recompute if encoders else None,
        value=round_digits(plan.outcome.value),
        because=refusal or passed_over(chosen, plan, own / best if best else 1.0),
        launchable=not refusal,
        layouts={module: placed_layout(each, plan.size) for module, each in plan.layouts.items()},
    )
