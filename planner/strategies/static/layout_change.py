"""The smallest change of a layout, or of the fields that a job fixes, that fits into memory: the quickest of the
nearest.
"""

from dataclasses import dataclass, replace
from math import prod

import numpy as np

from planner.errors import Infeasible
from planner.layouts import (
    FULL_LAYERS,
    OFFLOADS,
    RECOMPUTE,
    SEARCHED_FIELDS,
    Floats,
    LayoutProblem,
    LayoutSpace,
    ScreenedLayouts,
    fixed_fields,
    fixed_offload_hides,
    fixed_text,
    layout_at,
    layout_problem,
    layouts_of,
    screen,
)
from planner.plan.descriptions import flow_text, layout_text
from planner.plan.launchable.launch_refusals import launch_refusals
from planner.plan.launchable.launch_rules import trained_facts
from planner.plan.plan_file import Layout
from planner.specs.base import with_fields
from planner.specs.framework.knobs import Knobs
from planner.specs.inputs import Inputs
from planner.specs.parallelism import MESH_DIMS, Parallelism, decided_fields
from planner.strategies.static.enough_ranks import MOST_TIMES, enough_ranks
from planner.strategies.static.fixed_layout import uneven_degrees
from planner.units import GIB, plural

# Fields in the order in which people change them when a run does not fit: what costs time alone, then the mesh.
CHANGED_FIRST = (
    "micro_batch", "recompute", "zero", "offload", "optimizer_offload", "tp", "cp", "ulysses", "pp", "vpp", "ep", "etp",
    "replica", "ranks",
)  # fmt: skip

FULL = ("recompute", RECOMPUTE.index("full"))  # of which less never fits where it does not


@dataclass(frozen=True, slots=True)
class LayoutChange:
    """Another layout that fits, and its differences."""

    layout: Layout
    differences: tuple[str, ...]  # differences, as `tp 4`
    seconds: float  # of a step, by the closed form
    bytes_needed: float  # bytes on the fullest rank


def smallest_change(problem: LayoutProblem, wanted: dict[str, int]) -> LayoutChange | None:
    """The layout that fits with the fewest of these fields changed: of as few, those that people change first, and by
    least; None when nothing fits. What is offloaded so that it fits, or recomputed in full, is a change too, and so is
    another offload than the job's; where it says stages, they are as even as they can be instead.
    """
    stages, lifted = problem.trained.fixed.stages, ["stages"]  # what is fixed for all spaces
    lifted += [name for name in ("micro_batch", "recompute") if name in wanted and (name, wanted[name]) != FULL]
    fixed = with_fields(problem.trained.fixed, **dict.fromkeys(lifted))
    problem = replace(problem, trained=replace(problem.trained, fixed=fixed))
    kept = Parallelism(schedule=fixed.schedule)  # which all of the space have
    spaces = [kept]
    if "recompute" in wanted:  # a search recomputes no more in full than it has to, and this one keeps it
        spaces.append(with_fields(kept, recompute=RECOMPUTE[wanted["recompute"]]))
    problems = [problem]
    if fixed.offload:
        open_ = with_fields(fixed, offload=None)
        problems.append(replace(problem, trained=replace(problem.trained, fixed=open_)))
    tried = ((each, layouts_of(each, space), wanted, each is not problem) for each in problems for space in spaces)
    nearest = [found for each in tried if (found := nearest_in(*each))]
    if not nearest:
        return None
    change = min(nearest, key=lambda each: each[0])[1]
    even = (f"stages {flow_text(change.layout.stages)}",) if stages and change.layout.stages else ()
    return replace(change, differences=(*change.differences, *even))


def nearest_in(
    problem: LayoutProblem, found: LayoutSpace, wanted: dict[str, int], otherwise: bool
) -> tuple[tuple[float, ...], LayoutChange] | None:
    """The nearest layout of a space that fits and hides what the job says is offloaded, and how far it is; `otherwise`:
    whether what it offloads is another than the job's, which is no more fixed.
    """
    if not len(found["tp"]):
        return None
    screened = screen(problem, found)
    changed = {name: found[name] != value for name, value in wanted.items()}
    if wanted.get("zero", 3) < 3:  # without ranks that share parameters, such stages shard nothing
        changed["zero"] &= found["tp"] * found["pp"] < problem.trained.ranks
    partly = (screened.layouts[FULL_LAYERS] > 0) & (found["recompute"] != FULL[1])
    solved = {"recompute": partly} | {name: screened.layouts[name] != 0 for name in OFFLOADS}
    changed |= {name: changed.get(name, np.zeros(len(each), dtype=np.bool_)) | each for name, each in solved.items()}
    changed |= {"offload": np.ones(len(screened.seconds), dtype=np.bool_)} if otherwise else {}
    away = np.sum([*changed.values()], axis=0)
    late = np.sum([each * CHANGED_FIRST.index(name) for name, each in changed.items()], axis=0)
    none = np.zeros(len(screened.seconds))
    far = sum((doublings_apart(found[name].astype(np.float64), value) for name, value in wanted.items()), none)
    measures = (away, late, far, screened.seconds)
    order = np.lexsort(measures[::-1])
    fitting = order[(screened.fits(problem) & fixed_offload_hides(problem, screened.layouts))[order]]
    if not len(fitting):
        return None
    place = int(fitting[0])
    names = [name for name in wanted if changed[name][place]]
    change = change_at(problem, screened, place, names, wanted)
    if otherwise and not change.layout.offload:
        change = replace(change, differences=(*change.differences, "offload 0"))
    return tuple(float(each[place]) for each in measures), change


def doublings_apart(sizes: Floats, wanted: int) -> Floats:
    """Distance in doublings: from pp 3 it is further to 1 than to 4."""
    doublings: Floats = np.abs(np.log2(np.maximum(sizes, 0.5) / max(wanted, 0.5)))
    return doublings


def change_at(
    problem: LayoutProblem, screened: ScreenedLayouts, place: int, names: list[str], wanted: dict[str, int]
) -> LayoutChange:
    """A layout of the space as a change of these of the wanted fields."""
    layout = layout_at(problem.trained, screened.layouts, place)
    what = [f"{name} {int(screened.layouts[name][place])}" for name in names if name != "recompute"]
    how = [f"recompute {flow_text(layout.recompute)}"] if "recompute" in names else []
    known = {*wanted, *decided_fields(problem.trained.fixed)}
    also = [text for text in solved_fields(layout) if text.split()[0] not in known]
    seconds, needed = float(screened.seconds[place]), float(screened.bytes_needed[place])
    return LayoutChange(layout, (*what, *how, *also), seconds, needed)


def solved_fields(layout: Layout) -> tuple[str, ...]:
    """What of a layout is solved for, as a job says it: layers recomputed in full, and the shares offloaded."""
    recompute = (f"recompute {flow_text(layout.recompute)}",) if layout.recompute != "none" else ()
    offload = (f"offload {flow_text(layout.offload)}",) if layout.offload else ()
    moments = (f"optimizer_offload {layout.optimizer_offload:g}",) if layout.optimizer_offload else ()
    return (*recompute, *offload, *moments)


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


def contradiction(problem: LayoutProblem, fixed: Parallelism) -> tuple[str, str] | None:
    """What is wrong with fields that a job fixes, whatever the others are, and the fix; None where a layout may have
    them.
    """
    uneven = mesh_mismatch(fixed, problem.trained.ranks)
    if uneven:
        return uneven, "degrees whose product does, or leave one of them out"
    degrees = {name: getattr(fixed, name) or 1 for name in SEARCHED_FIELDS if name not in ("zero", "recompute")}
    chunks = degrees["vpp"] if fixed.pp else 1  # of a pipeline whose ranks are open, nothing is known
    return uneven_degrees({**degrees, "vpp": chunks}, replace(problem.trained, fixed=fixed))


def impossible_fields(inputs: Inputs) -> tuple[str, str] | None:
    """What is wrong with the fields that a job fixes of its module's layout, and the fix: the nearest layout that fits,
    where there is one. None where a layout may have them.
    """
    fixed = fixed_fields(inputs)
    problem = layout_problem(inputs)
    wrong = contradiction(problem, fixed) if fixed_numbers(fixed) else None
    if wrong is None:
        return None
    change = smallest_change(problem, fixed_numbers(fixed))
    return wrong[0], f"{', '.join(change.differences)} instead" if change and change.differences else wrong[1]


def unlaunchable_text(problem: LayoutProblem, fixed: Parallelism) -> str:
    """Why the software can launch none of the layouts that divide evenly: what is wrong with the first of them; empty
    where there are none.
    """
    found = layouts_of(replace(problem, knobs=Knobs()), fixed)
    if not len(found["tp"]):
        return ""
    facts = trained_facts(problem.trained.module, problem.trained.ranks, problem.trained.sizes)
    refusals = launch_refusals(layout_at(problem.trained, found, 0), facts, problem.knobs)
    count, first = len(found["tp"]), f": {refusals[0].message} (rule: {refusals[0].rule})" if refusals else ""
    return f"the job's software can launch none of {plural(count, 'layout')} that divide evenly{first}"


def infeasible_error(problem: LayoutProblem, screened: ScreenedLayouts | None, fixed: Parallelism) -> Infeasible:
    """The error when no layout is feasible: what binds, the leanest layout, and a change that would fit."""
    change = smallest_change(problem, fixed_numbers(fixed))
    ranks, batch = problem.trained.ranks, len(problem.trained.sizes)
    held = f" with {fixed_text(fixed)}" if fixed_numbers(fixed) else ""
    fix = "more ranks, a smaller model, or shorter sequences"
    if change and change.differences:
        fix = f"{', '.join(change.differences)} instead"
    elif change is None and problem.trained.equal_lengths and screened is None:
        fix = "a batch that some number of replicas divides"
    if screened is None:
        uneven = f"no layout{held} divides {ranks} ranks and {batch} sequences evenly"
        wrong = contradiction(problem, fixed) or (unlaunchable_text(problem, fixed) or uneven, fix)
        return Infeasible(wrong[0], where="layouts", fix=fix if change and change.differences else wrong[1])
    if problem.limits.tokens_per_rank is not None:
        return token_limit_error(problem, screened.layouts, held, fix)
    place = int(np.argmin(screened.bytes_needed))
    least, allowed = screened.bytes_needed[place] / GIB, problem.allowed / GIB
    leanest = layout_text(layout_at(problem.trained, screened.layouts, place))
    if change is None:
        fix += f"; {enough_ranks_text(problem)}"
    message = f"no layout{held} fits: the leanest ({leanest}) takes {least:.1f} GiB of a rank's {allowed:.1f} GiB"
    return Infeasible(message, where="memory", fix=fix)


def enough_ranks_text(problem: LayoutProblem) -> str:
    """How many ranks would do, and in which layout; or how many would not."""
    found = enough_ranks(problem)
    if found is None:
        return f"{MOST_TIMES} times as many ranks do not do"
    return f"fits on {found.ranks} ranks: {layout_text(found.layout)}"


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
