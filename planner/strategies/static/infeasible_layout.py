"""Why a module has no layout: what binds, and the nearest change that fits, or how many ranks would do."""

from dataclasses import replace
from math import prod

import numpy as np

from planner.errors import Infeasible
from planner.layouts import (
    SEARCHED_FIELDS,
    LayoutProblem,
    LayoutSpace,
    ScreenedLayouts,
    fixed_fields,
    fixed_text,
    layout_at,
    layout_problem,
    layouts_of,
)
from planner.plan.descriptions import layout_text
from planner.plan.launchable.launch_refusals import launch_refusals
from planner.plan.launchable.launch_rules import trained_facts
from planner.specs.framework.knobs import Knobs
from planner.specs.inputs import Inputs
from planner.specs.parallelism import MESH_DIMS, Parallelism
from planner.strategies.static.closed_form_change import DOUBLINGS, enough_ranks, smallest_change
from planner.strategies.static.fixed_layout import uneven_degrees
from planner.units import GIB, plural

TOO_FEW = f"{max(DOUBLINGS)} times as many ranks do not do"


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
    """What is wrong with the fields that the job fixes of its module's layout, and the fix: the nearest layout that
    fits, where there is one. None where a layout may have them.
    """
    problem, fixed = layout_problem(inputs), fixed_fields(inputs)
    wrong = contradiction(problem, fixed) if has_searched(fixed) else None
    change = smallest_change(problem, fixed) if wrong else None
    return (wrong[0], change.fix if change else wrong[1]) if wrong else None


def has_searched(fixed: Parallelism) -> bool:
    """Whether a job fixes something that is searched for else."""
    return any(getattr(fixed, name) is not None for name in SEARCHED_FIELDS)


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


def infeasible_error(
    problem: LayoutProblem, screened: ScreenedLayouts | None, fixed: Parallelism, module: str = ""
) -> Infeasible:
    """The error when no layout is feasible: what binds, the leanest layout, and a change that would fit; `module`: the
    name of one of several.
    """
    change = smallest_change(problem, fixed, module)
    ranks, batch = problem.trained.ranks, len(problem.trained.sizes)
    held = f" with {fixed_text(fixed)}" if has_searched(fixed) else ""
    fix = change.fix if change else "more ranks, a smaller model, or shorter sequences"
    if screened is None:
        if not change and problem.trained.equal_lengths:
            fix = "a batch that some number of replicas divides"
        uneven = f"no layout{held} divides {ranks} ranks and {batch} sequences evenly"
        wrong = contradiction(problem, fixed) or (unlaunchable_text(problem, fixed) or uneven, fix)
        return Infeasible(wrong[0], where="layouts", fix=fix if change else wrong[1])
    if problem.limits.tokens_per_rank is not None:
        return token_limit_error(problem, screened.layouts, held, fix)
    place = int(np.argmin(screened.bytes_needed))
    least, allowed = screened.bytes_needed[place] / GIB, problem.allowed / GIB
    leanest = layout_text(layout_at(problem.trained, screened.layouts, place))
    if change is None:
        found = enough_ranks(problem)
        many = f"fits on {found.ranks} ranks: {layout_text(found.layout)}" if found else TOO_FEW
        fix = f"{fix}; {many}"
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
