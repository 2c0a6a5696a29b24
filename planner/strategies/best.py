"""The best of several strategies, where a job leaves open when its ranks synchronise.

They do in every micro-batch, as the all-gathers of ZeRO-3 force them to, or once a step under a lower ZeRO stage, which
leaves less memory for tokens. Every candidate that the job allows is solved, by strategies that are handed in; the plan
of the best one records what the others give.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

from planner.costs import find_objective
from planner.errors import Infeasible, InputError
from planner.plan.descriptions import fixable_layout
from planner.plan.join_plans import round_digits
from planner.plan.plan_file import Alternative
from planner.specs.base import with_fields
from planner.specs.inputs import Inputs
from planner.specs.parallelism import Sync
from planner.strategies.solved_job import SolvedJob

Solve = Callable[[Inputs], SolvedJob]  # a job by one strategy; raises InputError and Infeasible


class Candidate(NamedTuple):
    """A strategy, with a ZeRO stage that its points of synchronisation allow."""

    strategy: str
    zero: int
    sync: Sync


CANDIDATES = (
    Candidate("sequence_groups", 3, "micro_batch"),
    Candidate("data_ranks", 2, "step"),
    Candidate("data_ranks", 1, "step"),
)


def best_of_candidates(inputs: Inputs, strategies: Mapping[str, Solve]) -> SolvedJob:
    """The best plan by the job's objective, and the other candidates as its alternatives; `strategies`: by name.

    Raises the first candidate's Infeasible where none is feasible, and InputError where none has the job's ZeRO stage.
    """
    solved: dict[Candidate, SolvedJob] = {}
    infeasible: dict[Candidate, Infeasible] = {}
    candidates = open_candidates(inputs)
    for candidate in candidates:
        try:
            solved[candidate] = strategies[candidate.strategy](inputs_of(inputs, candidate))
        except Infeasible as error:
            infeasible[candidate] = error
    if not solved:
        raise infeasible[candidates[0]]
    loss = find_objective(inputs.job.objective).loss
    best = min(solved, key=lambda each: loss(solved[each].plan.outcome.value))  # the first one of equal ones
    others = tuple(
        alternative_entry(each, solved.get(each), infeasible.get(each)) for each in candidates if each != best
    )
    seconds = tuple(map(sum, zip(*(each.step_seconds for each in solved.values()), strict=True)))
    return SolvedJob(with_fields(solved[best].plan, alternatives=others), seconds)


def open_candidates(inputs: Inputs) -> list[Candidate]:
    """Those with the job's ZeRO stage, or all where it gives none. Raises InputError where none has that stage."""
    stage = inputs.job.layout.zero
    candidates = [each for each in CANDIDATES if stage in (None, each.zero)]
    if not candidates:
        message = f"best tries ZeRO stages 1 to 3, and the job says zero: {stage}"
        fix = "leave zero out, or say strategy: data_ranks and sync: step"
        raise InputError(message, where=f"{inputs.sources['job']} (layout.zero)", fix=fix)
    return candidates


def inputs_of(inputs: Inputs, candidate: Candidate) -> Inputs:
    """The job with the ZeRO stage and the synchronisation of a candidate."""
    layout = with_fields(inputs.job.layout, zero=candidate.zero)
    return replace(inputs, job=with_fields(inputs.job, sync=candidate.sync, layout=layout))


def alternative_entry(candidate: Candidate, solved: SolvedJob | None, infeasible: Infeasible | None) -> Alternative:
    """The plan file's entry for a candidate that was not chosen."""
    entry = Alternative(
        strategy=candidate.strategy,
        zero=candidate.zero,
        sync=candidate.sync,
        because=infeasible.message if infeasible else "",
    )
    if solved is None:
        return entry
    layouts = {module: fixable_layout(layout) for module, layout in solved.plan.layouts.items()}
    return with_fields(entry, value=round_digits(solved.plan.outcome.value), layouts=layouts)
