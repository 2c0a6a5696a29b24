"""What is unusual about a layout, in one table: points that people pay for it when they set it up, read its logs and
repair it, and that no prediction counts.

Of layouts whose steps predictions cannot tell apart, the plan has the one of fewest points: the plainest. The rows
broadcast, so that a table of layouts has its points as columns, and one layout as a number.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from planner.costs import DISPATCHES
from planner.layouts.layout_fields import (
    DISPATCH,
    EP_OVERLAP,
    FULL_LAYERS,
    OFFLOADS,
    RANK_ORDER,
    RECOMPUTE,
    RECOMPUTE_BY_RANGES,
    SCHEDULE,
    SCHEDULES,
)
from planner.layouts.layout_problem import LayoutProblem
from planner.layouts.layout_space import LayoutSpace
from planner.plan.descriptions import reorders_ranks
from planner.plan.launchable.launch_rules import numbers_of
from planner.plan.mesh.even_stages import has_even_stages
from planner.plan.plan_file import Layout
from planner.specs.framework.knobs import Knobs
from planner.specs.parallelism import ZERO_BUBBLE

Number = Any  # an integer, or an array (layouts,) of them
Columns = Mapping[str, Number]
DIMS = ("tp", "cp", "pp", "etp", "replica")  # ep is usual where there are experts
FULL = RECOMPUTE.index("full")
UNEVEN = "uneven"  # of columns: whether stages have other numbers of layers than even ones
USUAL_ZERO = "usual_zero"  # of columns: the stage that a framework is started with


def dims_of(at: Columns) -> Number:
    """How many dimensions a mesh has beside replicas, and experts over them."""
    return sum((at[dim] > 1) * 1 for dim in DIMS)


def recomputed(at: Columns) -> Number:
    """0: nothing is recomputed; 1: something in all layers alike, as one switch has it; 2: anything else."""
    return (at["recompute"] > 0) * 1 + (at["recompute"] > FULL) * 1


class Unusual(NamedTuple):
    """Something unusual, its points, and why it has them."""

    name: str
    points: Callable[[Columns], Number]
    because: str


UNUSUAL = (
    Unusual(
        "dimensions",
        dims_of,
        "each one more is a group of processes to place, to name and to debug",
    ),
    Unusual(
        "ring and heads",
        lambda at: ((at["ulysses"] > 1) & (at["ulysses"] < at["cp"])) * 2,
        "sequences are sharded around a ring or by heads; both at once needs two meshes within one",
    ),
    Unusual(
        "chunks",
        lambda at: np.ceil(np.log2(at["vpp"])).astype(np.int64),
        "guides start without virtual stages, then have few: each doubling sends twice as often and holds more",
    ),
    Unusual(
        "uneven stages", lambda at: at[UNEVEN] * 2, "ranges of layers are written out, and again for another model"
    ),
    Unusual(
        "ZeRO",
        lambda at: np.maximum(0, at["zero"] - at[USUAL_ZERO]),
        "a stage beyond that which a framework is started with is another wrapper, and other checkpoints",
    ),
    Unusual(
        "recomputation",
        recomputed,
        "all layers alike, selective or in full, are one switch; parts by name, or ranges of layers, are a list",
    ),
    Unusual(
        "offload",
        lambda at: sum((at[name] > 0) * 3 for name in OFFLOADS),
        "host memory, its pinning and the bus become a part of the step, and of what fails",
    ),
    Unusual(
        "zero bubble",
        lambda at: np.isin(at[SCHEDULE], [SCHEDULES.index(name) for name in ZERO_BUBBLE]) * 2,
        "splits backward in two, which few models' kernels do",
    ),
    Unusual("rank order", lambda at: (at[RANK_ORDER] > 0) * 2, "logs, checkpoints and launchers assume the usual one"),
    Unusual("dispatch", lambda at: (at[DISPATCH] > 0) * 1, "all-to-all is built in; others are libraries to install"),
    Unusual("overlap of experts", lambda at: (at[EP_OVERLAP] > 0) * 1, "off by default, and refused beside much else"),
    Unusual(
        "micro-batch",
        lambda at: (np.bitwise_and(at["micro_batch"], at["micro_batch"] - 1) > 0) * 1,
        "batches grow by doubling: another size divides fewer of them",
    ),
)


def points_of(at: Columns) -> Number:
    """How much is unusual, in points."""
    return sum(each.points(at) for each in UNUSUAL)


def usual_zero(knobs: Knobs) -> int:
    """The stage that a framework is started with: 1, which sends no more than none does; else its highest, as where
    weights are what is sharded (FSDP).
    """
    return 1 if 1 in knobs.zero else max(knobs.zero)


def layout_points(layout: Layout, knobs: Knobs) -> int:
    """The points of one layout."""
    others: dict[str, Number] = {
        RANK_ORDER: int(reorders_ranks(layout)),
        EP_OVERLAP: int("ep" in layout.overlap),
        UNEVEN: int(not has_even_stages(layout)),
        USUAL_ZERO: usual_zero(knobs),
        **{name: int(getattr(layout, name) > 0) for name in OFFLOADS},
    }
    return int(points_of({SCHEDULE: 0, **numbers_of(layout), **others}))


def table_columns(problem: LayoutProblem, found: LayoutSpace) -> Columns:
    """Layouts with even stages, (layouts,), with what was solved for in them."""
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
    keys = (
        ~able,
        points_of(at) - dims - memory,
        np.abs(np.log2(at["ep"] / width)),
        *((memory, dims) if usual == 1 else (dims, memory)),
        *(at[name] for name in ("cp", "pp", "tp", "etp", "replica", "micro_batch", "recompute")),
        np.abs(at["zero"] - usual),
        at[SCHEDULE],
    )
    return int(np.lexsort(keys[::-1])[0])


def with_usual_solutions(problem: LayoutProblem, found: LayoutSpace) -> LayoutSpace:
    """The layouts with the usual one of what is solved for, as far as the job leaves it open and the framework has it:
    the order of ranks, the dispatch of tokens, and no overlap with experts.
    """
    fixed, usual = problem.trained.fixed, dict[str, Number]()
    if fixed.rank_order is None:
        usual[RANK_ORDER] = 0
    if fixed.dispatch is None and DISPATCHES[0] in problem.dispatches:
        usual[DISPATCH] = 0
    if fixed.overlap is None:
        usual[EP_OVERLAP] = 0
    return {**found, **{name: np.zeros_like(found[name]) for name in usual}}
