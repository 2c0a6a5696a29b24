"""Changes of the layout of a module alone, by the closed form: what is fixed of it beside some fields left open, and on
how many ranks it fits where no change does.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from planner.costs import NetworkLevel
from planner.layouts import (
    FULL_LAYERS,
    RECOMPUTE,
    SEARCHED_FIELDS,
    Floats,
    LayoutProblem,
    ScreenedLayouts,
    anything_fits,
    fixed_offload_hides,
    layout_at,
    layouts_of,
    screen,
)
from planner.plan.plan_file import Layout
from planner.specs.base import with_fields
from planner.specs.parallelism import MESH_DIMS, Parallelism, decided_fields
from planner.strategies.static.nearest_change import CHANGED_FIRST, Change, FieldChange, nearest_change

ALONE = CHANGED_FIRST[:-1]  # but ranks
DOUBLINGS = (2, 4, 8, 16)  # times as many ranks as there are


def smallest_change(problem: LayoutProblem, fixed: Parallelism, module: str = "") -> Change | None:
    """The nearest change of fields that are fixed that fits; None where nothing does. Where stages are, they are as
    even as they can be instead; what of a layout is open may be anything. `module`: the name of one of several.
    """
    told = decided_fields(fixed)
    options = [FieldChange(module, name) for name in ALONE if name in told]
    evaluate = partial(opened, problem, fixed)
    return nearest_change(options, evaluate, len(options)) if options and evaluate(options).fits else None


def opened(problem: LayoutProblem, fixed: Parallelism, changes: Sequence[FieldChange]) -> Change:
    """The nearest of the layouts that fit, with any values of these fields, or the leanest."""
    names = {each.field for each in changes}
    follows = {"stages", "dp"} if names & {*MESH_DIMS} else {"stages"}
    open_ = with_fields(fixed, **dict.fromkeys(names | follows))
    problem = replace(problem, trained=replace(problem.trained, fixed=open_))
    screened = screen(problem, layouts_of(problem, open_))
    if not len(screened.seconds):
        return Change(tuple(changes), {}, (), 0.0, np.inf, np.inf, np.inf, False)
    fits = screened.fits(problem) & fixed_offload_hides(problem, screened.layouts)
    far = doublings(screened, fixed, changes)
    place = int(np.lexsort((screened.seconds, far, np.where(fits, 0.0, screened.bytes_needed)))[0])
    layout, needed = layout_at(problem.trained, screened.layouts, place), float(screened.bytes_needed[place])
    module = next((each.module for each in changes), "")
    told = [name for name in ALONE if getattr(fixed, name) not in (None, getattr(layout, name))]
    told += ["stages"] if fixed.stages and layout.stages else []
    return Change(
        tuple(changes),
        {module: layout},
        tuple(str(FieldChange(module, name, getattr(layout, name))) for name in told),
        float(far[place]),
        float(screened.seconds[place]),
        needed,
        needed / problem.allowed,
        bool(fits[place]),
    )


def doublings(screened: ScreenedLayouts, fixed: Parallelism, changes: Sequence[FieldChange]) -> Floats:
    """How far layouts are from what is fixed of some fields, (layouts,), in doublings: from pp 3 it is further to 1
    than to 4.
    """
    found, far = screened.layouts, np.zeros(len(screened.seconds))
    fully = np.where(found[FULL_LAYERS] > 0, RECOMPUTE.index("full"), found["recompute"])
    for name in (each.field for each in changes if each.field in SEARCHED_FIELDS):
        value = getattr(fixed, name)
        number = value if isinstance(value, int) else RECOMPUTE.index(value) if value in RECOMPUTE else 0
        column = fully if name == "recompute" else found[name]
        far += np.abs(np.log2(np.maximum(column, 0.5) / max(number, 0.5)))
    return far


class EnoughRanks(NamedTuple):
    """A number of ranks, and the quickest layout that fits on them by the closed form."""

    ranks: int
    layout: Layout


def enough_ranks(problem: LayoutProblem) -> EnoughRanks | None:
    """The least number of ranks on which a layout fits that has what the job fixes: whole nodes of the same kind, and
    the same batch; None where none up to 16 times as many does. The job's own ranks are known not to do. That more
    ranks need not fit what fewer do, where the batch or the heads do not divide, may hide a smaller number yet.
    """
    per_node = problem.machine.network.per_node

    def fits(nodes: int) -> bool:
        wider = on_ranks(problem, nodes * per_node)
        return anything_fits(wider, layouts_of(wider, wider.trained.fixed))

    own = -(-problem.trained.ranks // per_node)
    many = next((own * times for times in DOUBLINGS if fits(own * times)), None)
    if many is None:
        return None
    ranks = per_node * bisect_left(range(many), True, lo=many // 2 + 1, key=fits)
    wider = on_ranks(problem, ranks)
    screened = screen(wider, layouts_of(wider, wider.trained.fixed))
    place = int(np.argmin(np.where(screened.fits(wider), screened.seconds, np.inf)))
    return EnoughRanks(ranks, layout_at(wider.trained, screened.layouts, place))


def on_ranks(problem: LayoutProblem, ranks: int) -> LayoutProblem:
    """The problem on so many ranks. The widest level joins them all; nodes that no level joins yet are joined as the
    ranks within them.
    """
    *nearer, widest = problem.machine.network.levels
    joined = NetworkLevel(max(widest.ranks, ranks), widest.gb_per_s, widest.us)
    levels = (*nearer, joined) if nearer else (widest, joined)
    network = replace(problem.machine.network, levels=levels, cached_costs={}, cached_links={})
    trained = replace(problem.trained, ranks=ranks)
    return replace(problem, trained=trained, machine=replace(problem.machine, network=network))
