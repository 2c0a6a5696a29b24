"""What is unusual about a layout, in one table: points for what people pay as they set it up, read its logs and repair
it, which no prediction counts.

Of layouts whose steps predictions cannot tell apart, the plan has the one of fewest points: the plainest. Points
broadcast, so that a table of layouts has them as columns, and one layout as a number.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from planner.costs import DISPATCHES
from planner.layouts.space.layout_fields import (
    DISPATCH,
    EP_OVERLAP,
    FULL_LAYERS,
    OFFLOAD,
    OFFLOADS,
    OPTIMIZER_OFFLOAD,
    RANK_ORDER,
    RECOMPUTE,
    RECOMPUTE_BY_RANGES,
    SCHEDULE,
    SCHEDULES,
)
from planner.layouts.space.layout_problem import LayoutProblem
from planner.layouts.space.layout_space import LayoutSpace
from planner.plan.descriptions import reorders_ranks
from planner.plan.launchable.launch_rules import numbers_of
from planner.plan.mesh.even_stages import has_even_stages
from planner.plan.plan_file import Layout
from planner.specs.framework.knobs import Knobs
from planner.specs.parallelism import ZERO_BUBBLE

Number = Any  # an integer, or an array (layouts,) of them
Columns = Mapping[str, Number]
FULL, SPLIT = RECOMPUTE.index("full"), [SCHEDULES.index(name) for name in ZERO_BUBBLE]
UNEVEN, USUAL_ZERO = "uneven", "usual_zero"  # of columns: whether stages are uneven; the stage of usual_zero


def dims_of(at: Columns) -> Number:
    """Dimensions of a mesh beside data parallelism; experts are sharded wherever there are any."""
    return sum((at[dim] > 1) * 1 for dim in ("tp", "cp", "pp", "etp", "replica"))


def recomputed(at: Columns) -> Number:
    """0: nothing is recomputed; 1: something in all layers alike; 2: parts by name, or ranges of layers."""
    return (at["recompute"] > 0) * 1 + (at["recompute"] > FULL) * 1


# What is unusual: its points, and why it has them.
UNUSUAL: dict[str, tuple[Callable[[Columns], Number], str]] = {
    "dimensions": (dims_of, "each one more is a group of processes to place, to name and to debug"),
    "recomputation": (recomputed, "one kind in all layers is a switch; anything else is a list to keep"),
    "ring and heads": (lambda at: ((at["ulysses"] > 1) & (at["ulysses"] < at["cp"])) * 2, "two meshes within cp"),
    "chunks": (lambda at: np.ceil(np.log2(at["vpp"])).astype(int), "guides start with none, and double them"),
    "uneven stages": (lambda at: at[UNEVEN] * 2, "ranges of layers are written out, for each model anew"),
    "ZeRO": (lambda at: np.maximum(0, at["zero"] - at[USUAL_ZERO]), "another wrapper, and other checkpoints"),
    "offload": (lambda at: sum((at[name] != 0) * 3 for name in OFFLOADS), "hosts and their bus join the step"),
    "zero bubble": (lambda at: np.isin(at[SCHEDULE], SPLIT) * 2, "kernels have to split backward in two"),
    "rank order": (lambda at: (at[RANK_ORDER] > 0) * 2, "launchers and checkpoints assume the usual one"),
    "dispatch": (lambda at: (at[DISPATCH] > 0) * 1, "all-to-all is built in, others are libraries"),
    "overlap of experts": (lambda at: (at[EP_OVERLAP] > 0) * 1, "off by default, and refused beside much"),
    "micro-batch": (lambda at: ((at["micro_batch"] & (at["micro_batch"] - 1)) > 0) * 1, "batches grow by doubling"),
}


def points_of(at: Columns) -> Number:
    """How much is unusual, in points."""
    return sum(points(at) for points, _ in UNUSUAL.values())


def usual_zero(knobs: Knobs) -> int:
    """The stage that a framework is started with: 1, which sends no more than none does; else its highest, as where
    weights are what is sharded (FSDP).
    """
    return 1 if 1 in knobs.zero else max(knobs.zero)


def layout_points(layout: Layout, knobs: Knobs) -> int:
    """The points of one layout."""
    others = {
        RANK_ORDER: reorders_ranks(layout),
        EP_OVERLAP: "ep" in layout.overlap,
        UNEVEN: not has_even_stages(layout),
    }
    shares = {OFFLOAD: layout.offload_share, OPTIMIZER_OFFLOAD: layout.optimizer_offload}
    return int(points_of({SCHEDULE: 0, USUAL_ZERO: usual_zero(knobs), **numbers_of(layout), **others, **shares}))


def table_columns(problem: LayoutProblem, found: LayoutSpace) -> Columns:
    """Layouts with even stages, (layouts,), as points are counted of them: with what was solved for."""
    layers = -(-problem.trained.module.layers // found["pp"])
    more = (found[FULL_LAYERS] > 0) & (found["recompute"] != FULL)
    solved = np.where(found[FULL_LAYERS] < layers, RECOMPUTE_BY_RANGES, FULL)
    recompute = np.where(more, solved, found["recompute"])
    return {**found, "recompute": recompute, UNEVEN: 0, USUAL_ZERO: usual_zero(problem.knobs)}


def table_points(problem: LayoutProblem, found: LayoutSpace) -> Number:
    """The points of these layouts, (layouts,)."""
    return points_of(table_columns(problem, found))


def most_conventional(problem: LayoutProblem, found: LayoutSpace, able: Number) -> int:
    """The place of the layout that guides start with, of those that are able: nothing unusual but what makes it fit,
    experts over a node's ranks, and then the smallest degrees. What makes it fit is first tp within a node and then
    pp, and recomputation last; where weights are sharded (FSDP), recomputation first.
    """
    at, usual, experts = table_columns(problem, found), usual_zero(problem.knobs), problem.trained.module.routed_experts
    width = min(experts.experts, problem.machine.network.per_node) if experts else 1
    dims, memory = dims_of(at), recomputed(at)
    first = ~able, points_of(at) - dims - memory, np.abs(np.log2(at["ep"] / width))
    room = (memory, dims) if usual == 1 else (dims, memory)
    degrees = (at[name] for name in ("cp", "pp", "tp", "etp", "replica", "micro_batch", "recompute", SCHEDULE))
    keys = (*first, *room, *degrees, np.abs(at["zero"] - usual))
    return int(np.lexsort(keys[::-1])[0])


def with_usual_solutions(problem: LayoutProblem, found: LayoutSpace) -> LayoutSpace:
    """The layouts with the usual one of what is solved for, as far as the job leaves it open and the framework has it:
    the order of ranks, the dispatch of tokens, and no overlap with experts.
    """
    fixed, all_to_all = problem.trained.fixed, DISPATCHES[0] in problem.dispatches
    open_ = {RANK_ORDER: not fixed.rank_order, DISPATCH: not fixed.dispatch and all_to_all}
    usual = [name for name, able in {**open_, EP_OVERLAP: fixed.overlap is None}.items() if able]
    return {**found, **{name: np.zeros_like(found[name]) for name in usual}}
