"""The smallest change of a layout, or of the fields that a job fixes, that fits into memory: the quickest of the
nearest.
"""

from dataclasses import dataclass
from math import prod

import numpy as np

from planner.errors import Infeasible
from planner.plan.descriptions import layout_text
from planner.plan.plan_file import Layout
from planner.specs.parallelism import MESH_DIMS, Parallelism
from planner.strategies.static.fixed_layout import unsupported_sharding
from planner.strategies.static.layout_fields import RECOMPUTE, SEARCHED_FIELDS, fixed_text
from planner.strategies.static.layout_screening import (
    Floats,
    LayoutProblem,
    ScreenedLayouts,
    first_fitting,
    screen_seconds,
)
from planner.strategies.static.layout_space import LayoutSpace, layout_at, layout_space
from planner.units import GIB


@dataclass(frozen=True, slots=True)
class LayoutChange:
    """Another layout that fits, and its differences."""

    layout: Layout
    differences: tuple[str, ...]  # differences, as `tp 4`
    seconds: float  # of a step, by the closed form
    bytes_needed: float  # bytes on the fullest rank


def smallest_change(problem: LayoutProblem, wanted: dict[str, int]) -> LayoutChange | None:
    """The layout that fits with the fewest of these fields changed, and these by least; None when nothing fits."""
    found = layout_space(problem.trained, problem.machine.network.per_node, Parallelism())
    if not len(found["tp"]):
        return None
    screened = screen_seconds(problem, found)
    away = sum(((found[name] != value).astype(int) for name, value in wanted.items()), np.zeros(len(screened.seconds)))
    far = sum(
        (doublings_apart(found[name].astype(np.float64), value) for name, value in wanted.items()),
        np.zeros(len(screened.seconds)),
    )
    place = first_fitting(problem, found, screened, np.lexsort((screened.seconds, far, away)), 1)
    return change_at(problem, found, screened, int(place[0]), wanted) if len(place) else None


def doublings_apart(sizes: Floats, wanted: int) -> Floats:
    """Distance in doublings: from pp 3 it is further to 1 than to 4."""
    doublings: Floats = np.abs(np.log2(np.maximum(sizes, 0.5) / max(wanted, 0.5)))
    return doublings


def change_at(
    problem: LayoutProblem, found: LayoutSpace, screened: ScreenedLayouts, place: int, wanted: dict[str, int]
) -> LayoutChange:
    """A layout of the space as a change of the wanted fields."""
    names = [name for name, value in wanted.items() if int(found[name][place]) != value]
    what = tuple(f"{name} {field_text(name, int(found[name][place]))}" for name in names)
    layout = layout_at(problem.trained, found, place)
    return LayoutChange(layout, what, float(screened.seconds[place]), float(screened.bytes_needed[place]))


def field_text(name: str, value: int) -> str:
    """The value of a searched field as text."""
    return RECOMPUTE[value] if name == "recompute" else str(value)


def fixed_numbers(fixed: Parallelism) -> dict[str, int]:
    """The searched fields that a job fixes, as numbers."""
    given = {name: getattr(fixed, name) for name in SEARCHED_FIELDS if getattr(fixed, name) is not None}
    whole = {name: value for name, value in given.items() if not isinstance(value, dict)}
    return {name: RECOMPUTE.index(value) if name == "recompute" else value for name, value in whole.items()}


def mesh_mismatch(fixed: Parallelism, ranks: int) -> str | None:
    """The message about a fixed mesh whose degrees do not multiply to the number of ranks; None where they can."""
    sizes = {dim: getattr(fixed, dim) for dim in MESH_DIMS if getattr(fixed, dim) is not None}
    count, whole = prod(sizes.values()), len({*MESH_DIMS} - {*sizes, "replica"}) == 0
    if count == ranks or (ranks % count == 0 and not whole):
        return None
    named = " · ".join(f"{dim} {size}" for dim, size in sizes.items())
    return f"{named} does not multiply to {ranks} ranks"


def infeasible_error(
    problem: LayoutProblem, found: LayoutSpace, screened: ScreenedLayouts | None, fixed: Parallelism
) -> Infeasible:
    """The error when no layout is feasible: what binds, the leanest layout, and a change that would fit."""
    change = smallest_change(problem, fixed_numbers(fixed))
    ranks, batch = problem.trained.ranks, len(problem.trained.sizes)
    held = f" with {fixed_text(fixed)}" if fixed_numbers(fixed) else ""
    fix = "more ranks, a smaller model, or shorter sequences"
    if change and change.differences:
        fix = f"{', '.join(change.differences)} instead"
    elif change is None and problem.trained.equal_lengths and screened is None:
        fix = "a batch that some number of replicas divides"
    whole = unsupported_sharding(problem.trained.module, fixed.tp or 1, fixed.cp or 1, fixed.pp or 1)
    if screened is None and whole:
        return Infeasible(whole[0], where="layouts", fix=fix if change and change.differences else whole[1])
    if screened is None:
        uneven = mesh_mismatch(fixed, ranks)
        message = uneven or f"no layout{held} divides {ranks} ranks and {batch} sequences evenly"
        fix = (
            "degrees whose product does, or leave one of them out"
            if uneven and not (change and change.differences)
            else fix
        )
        return Infeasible(message, where="layouts", fix=fix)
    if problem.limits.tokens_per_rank is not None:
        return token_limit_error(problem, found, held, fix)
    place = int(np.nanargmin(screened.bytes_needed))
    least, allowed = screened.bytes_needed[place] / GIB, problem.allowed / GIB
    leanest = layout_text(layout_at(problem.trained, found, place))
    message = f"no layout{held} fits: the leanest ({leanest}) takes {least:.1f} GiB of a rank's {allowed:.1f} GiB"
    return Infeasible(message, where="memory", fix=fix)


def token_limit_error(problem: LayoutProblem, found: LayoutSpace, held: str, fix: str) -> Infeasible:
    """The error when the job's own limit in tokens is what binds."""
    longest = max(problem.trained.sizes)
    tokens = found["micro_batch"] * longest / (found["tp"] * found["cp"])
    place = int(np.argmin(tokens))
    leanest = layout_text(layout_at(problem.trained, found, place))
    message = (
        f"no layout{held} keeps to {problem.limits.tokens_per_rank:,} tokens a rank: the leanest ({leanest}) "
        f"has {tokens[place]:,.0f} of the longest sequence, {longest:,}"
    )
    return Infeasible(message, where="limits.tokens_per_rank", fix=fix)
