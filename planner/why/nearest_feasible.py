"""Finds the feasible value nearest to an infeasible change by bisection: feasibility is monotone in these keys."""

from collections.abc import Sequence
from dataclasses import replace

from planner.errors import Infeasible
from planner.layouts import fixed_fields
from planner.plan.launchable.launch_refusals import first_refusal
from planner.specs.inputs import Inputs
from planner.strategies.static import impossible_fields
from planner.why.apply_changes import apply_changes, apply_implied
from planner.why.change_setters import ITEM
from planner.why.resolved import SolveAgain


def nearest_feasible(unchanged: Inputs, words: tuple[str, ...], resolve: SolveAgain) -> str:
    """`nodes=4` where `nodes=1` is infeasible, other changes unchanged; empty when no single change suffices."""
    for at, word in enumerate(words):
        key, _, value = (part.strip() for part in word.partition("="))
        tries = [f"{key}={other}" for other in values_to_plan(unchanged, key, int(value) if value.isdigit() else 0)]
        others = (words[:at], words[at + 1 :])
        feasible = first_feasible(unchanged, tries, others, resolve)
        if feasible:
            return feasible
    return ""


def values_to_plan(inputs: Inputs, key: str, asked: int) -> Sequence[int]:
    """Values from the requested one up to the plan's, or to the largest degree of an item, rising."""
    if key == "ranks":
        return range(asked + 1, inputs.cluster.size + 1)
    if key == "nodes":
        return range(asked + 1, inputs.cluster.size // inputs.cluster.ranks[0].per_node + 1)
    if ITEM.fullmatch(key):
        return [degree for degree in sorted(inputs.job.degrees) if degree > asked]
    return ()


def first_feasible(
    inputs: Inputs, tries: list[str], others: tuple[tuple[str, ...], tuple[str, ...]], resolve: SolveAgain
) -> str:
    """The first feasible of rising changes; empty when the last is infeasible too."""
    before, after = others
    if not tries or not is_feasible(inputs, (*before, tries[-1], *after), resolve):
        return ""
    low, high = 0, len(tries) - 1
    while low < high:
        middle = (low + high) // 2
        if is_feasible(inputs, (*before, tries[middle], *after), resolve):
            high = middle
        else:
            low = middle + 1
    return tries[high]


def is_feasible(inputs: Inputs, words: tuple[str, ...], resolve: SolveAgain) -> bool:
    """Whether the problem with these changes is feasible; effort 1 suffices to tell."""
    changed, _, unable = apply_implied(apply_changes(inputs, words), words)
    if unable or first_refusal(changed, fixed_fields(changed)) or impossible_fields(changed):
        return False
    try:
        resolve(replace(changed, effort=1))
    except Infeasible:
        return False
    return True
