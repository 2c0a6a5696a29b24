"""Which layouts a framework can launch: a million at once, or one, with what is wrong with it."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.errors import InputError
from planner.plan.launch_case import (
    LaunchCase,
    TrainedFacts,
    Truth,
    UndecidedError,
    case_of,
    case_of_columns,
    trained_facts,
    with_defaults,
)
from planner.plan.launch_rules import RULES, Rule
from planner.specs.base import Ranks
from planner.specs.framework.knobs import Knobs
from planner.specs.framework.software import ANY
from planner.specs.inputs import Inputs
from planner.specs.parallelism import Parallelism


class LaunchRefusal(NamedTuple):
    """The rule that a layout breaks, what is wrong, and what to do."""

    rule: str
    message: str
    fix: str


def launchable(
    columns: Mapping[str, NDArray[np.int64]],
    fixed: Parallelism,
    facts: TrainedFacts,
    knobs: Knobs,
    rules: Sequence[Rule] = RULES,
) -> NDArray[np.bool_]:
    """Whether these rules let each layout be launched, (layouts,). `columns`: the fields that differ, by their names in
    `Parallelism`, words as places in CODED_FIELDS; `fixed`: those that a job fixes of all.
    """
    at = case_of_columns(columns, fixed, facts, knobs)
    allowed = np.ones(np.broadcast_shapes(*(np.shape(each) for each in columns.values())), dtype=np.bool_)
    for rule in rules:
        allowed &= ~np.asarray(refuses(rule, at), dtype=np.bool_)
    return allowed


def launch_refusals(layout: Parallelism, facts: TrainedFacts, knobs: Knobs) -> tuple[LaunchRefusal, ...]:
    """The rules that one layout breaks; of fields that are not decided none."""
    at = case_of(layout, facts, knobs)
    broken, told = [rule for rule in RULES if refuses(rule, at)], with_defaults(at)
    return tuple(LaunchRefusal(rule.name, *rule.why(told).split(" | ", 1)) for rule in broken)


def refuses(rule: Rule, at: LaunchCase) -> Truth:
    """Whether a rule refuses each layout: False where it needs what is not decided."""
    try:
        return rule.refuses(at)
    except UndecidedError:
        return False


def first_refusal(inputs: Inputs, layout: Parallelism, *, runs: bool = True) -> LaunchRefusal | None:
    """The first rule of a job's software that a layout of its module breaks; rules about the batch only if the layout
    is to run. None where it breaks none.
    """
    sizes = tuple(inputs.batches[0].items.values()) if runs else ()
    ranks = len(layout.ranks) if isinstance(layout.ranks, Ranks) else inputs.cluster.size
    facts = trained_facts(inputs.spec, ranks, sizes)
    return next(iter(launch_refusals(layout, facts, inputs.software.knobs)), None)


def refusal_text(software: str, refusal: LaunchRefusal, what: str = "layout") -> str:
    """What is wrong with a layout, or with a plan, as a sentence."""
    return f"{software} cannot launch this {what}: {refusal.message} (rule: {refusal.rule})"


def require_launchable(inputs: Inputs, layout: Parallelism, where: str, *, runs: bool = True) -> None:
    """Raises InputError at `where` in the job for the first rule of its software that a layout of its module breaks."""
    refusal = first_refusal(inputs, layout, runs=runs)
    if refusal:
        raise InputError(
            refusal_text(inputs.software.name, refusal),
            where=f"{inputs.sources.get('job', inputs.job.name)} ({where})",
            fix=f"{refusal.fix}; or software: {ANY}, to price what nothing can launch",
        )
