"""Layouts of pipelines whose layers are divided as their bound is least, with what memory then asks of them.

A rank's layers are spread over its chunks, the first ones with one more where they do not divide.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from math import ceil
from typing import NamedTuple

import numpy as np

from planner.costs import dims_in_order
from planner.layouts.launchable_layouts import with_ep_overlap
from planner.layouts.layout_batches import column_batches
from planner.layouts.layout_fields import FULL_LAYERS, RANK_ORDER, RANK_ORDERS, RECOMPUTE, layout_of
from planner.layouts.layout_problem import LayoutProblem
from planner.layouts.layout_screening import fitted, fullest_columns, seconds_of, solved_numbers, stages_of
from planner.layouts.split_bound import Division, LeastDivided
from planner.plan.plan_file import Layout
from planner.specs.base import Layers, with_fields

ROUNDING = 1e-9  # of a layer
MESHES = 8  # that are tried
FEWER_CHUNKS = 3  # numbers of chunks that are tried, each half of the one before


Mesh = tuple[int, ...]


class DividedLayout(NamedTuple):
    """A layout that fits, the seconds of its step by the closed form, and the mesh that it is one of."""

    layout: Layout
    seconds: float
    mesh: Mesh = ()


def divided_layouts(problem: LayoutProblem, found: LeastDivided) -> list[DividedLayout]:
    """The quickest of each of a few meshes near the least bound, in each number of chunks, if they fit; quickest
    first.
    """
    meshes, able = set[Mesh](), list[DividedLayout]()
    for division in found.near:
        numbers = {name: int(column[division.place]) for name, column in found.layouts.items()}
        degrees = tuple(numbers[name] for name in ("tp", "cp", "pp", "ep", "micro_batch"))
        mesh = (*degrees, numbers["vpp"] > 1, numbers["zero"] == 3)
        if mesh not in meshes and len(meshes) < MESHES:
            meshes.add(mesh)
            able += (each._replace(mesh=mesh) for each in in_chunks(problem, division, numbers))
    return sorted(able, key=lambda each: each.seconds)


def in_chunks(problem: LayoutProblem, division: Division, numbers: dict[str, int]) -> Iterator[DividedLayout]:
    """One division in each number of chunks that is tried, where it fits."""
    most, fixed = numbers["vpp"], problem.trained.fixed.vpp
    tried = [most >> power for power in range(FEWER_CHUNKS)] if most > 1 and not fixed else [most]
    for chunks in tried:
        if min(division.layers) >= chunks >= min(2, most):
            again = divided_layout(problem, division, {**numbers, "vpp": chunks})
            if again:
                yield again


def divided_layout(problem: LayoutProblem, division: Division, numbers: dict[str, int]) -> DividedLayout | None:
    """One division with as few layers in full and as little offload as fit; None where nothing does."""
    trained, order = problem.trained, "-".join(dims_in_order(division.rank_order))
    stages = spread_stages(division.layers, numbers["vpp"])
    how = division.recompute  # layers in full are solved for, or the job says them
    code = numbers["recompute"] if how in ("none", "full") else RECOMPUTE.index(how)
    numbers = {**numbers, "recompute": code, RANK_ORDER: RANK_ORDERS.index(order)}
    alone = with_ep_overlap(problem, {name: np.array([value]) for name, value in numbers.items()})
    ((_, at),) = column_batches(trained, alone)
    at = replace(at, cuts=(0, *(stage[-1] + 1 for stage in stages)), alike={})
    held = fullest_columns(problem, at)
    own, needed = fitted(problem, at, held, stages_of(problem, held))
    if needed[0] > problem.allowed:
        return None
    solved = {name: int(np.max(column)) for name, column in solved_numbers(problem, own).items()}
    solved[FULL_LAYERS] = ceil(float(np.max(own.full_recompute)) * max(division.layers) - ROUNDING)
    seconds = float(seconds_of(problem, replace(own, rank_order=division.rank_order))[0])
    asked = replace(trained, fixed=with_fields(trained.fixed, stages=stages))
    return DividedLayout(layout_of(asked, {**numbers, **solved}), seconds)


def spread_stages(layers: Sequence[int], chunks: int) -> tuple[Layers, ...]:
    """The layers of each chunk, of ranks with so many layers each."""
    each = [(-own * chunk // chunks) - (-own * (chunk + 1) // chunks) for chunk in range(chunks) for own in layers]
    return tuple(Layers(range(first, last)) for first, last in pairwise(accumulate(each, initial=0)))
