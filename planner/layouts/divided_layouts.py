"""Layouts of pipelines whose layers are divided as their bound is least, with what memory then asks of them.

A rank's layers are spread over its chunks, the first ones with one more where they do not divide.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise, product
from math import ceil
from typing import NamedTuple

import numpy as np

from planner.costs import dims_in_order
from planner.layouts.launchable_layouts import with_ep_overlap
from planner.layouts.layout_batches import column_batches
from planner.layouts.layout_fields import (
    DISPATCH,
    FULL_LAYERS,
    RANK_ORDER,
    RANK_ORDERS,
    RECOMPUTE,
    SEARCHED_FIELDS,
    layout_of,
)
from planner.layouts.layout_problem import LayoutProblem
from planner.layouts.layout_screening import fitted, fullest_columns, seconds_of, solved_numbers, stages_of
from planner.layouts.plainness import usual_zero
from planner.layouts.rank_orders import possible_orders
from planner.layouts.split_bound import Division, LeastDivided
from planner.plan.launchable.launch_refusals import launchable
from planner.plan.launchable.launch_rules import trained_facts
from planner.plan.plan_file import Layout
from planner.specs.base import Layers, with_fields

ROUNDING = 1e-9  # of a layer
MESHES = 8  # that are tried
PLAINER = 4  # of these, of which plainer ones are tried


Mesh = tuple[int, ...]


class DividedLayout(NamedTuple):
    """A layout that fits, the seconds of its step by the closed form, and the mesh of which it may be the quickest."""

    layout: Layout
    seconds: float
    mesh: Mesh = ()  # none: it is a plainer one beside that


def divided_layouts(problem: LayoutProblem, found: LeastDivided) -> list[DividedLayout]:
    """The quickest of each of a few meshes near the least bound, in each number of chunks, of the first ones with fewer
    shards and copies of states, in the usual order of ranks as well, if they fit; quickest first.
    """
    meshes, able = set[Mesh](), list[DividedLayout]()
    for division in found.near:
        numbers = {name: int(column[division.place]) for name, column in found.layouts.items()}
        degrees = tuple(numbers[name] for name in ("tp", "cp", "pp", "ep", "micro_batch"))
        mesh = (*degrees, numbers["vpp"] > 1, numbers["zero"] == 3)
        if mesh not in meshes and len(meshes) < MESHES:
            states = [*plainer_states(problem, numbers)] if len(meshes) < PLAINER else [numbers]
            meshes.add(mesh)
            orders = dict.fromkeys((division.rank_order, possible_orders(problem)[0]))
            for some, order in product(states, orders):
                own = mesh if (some, order) == (numbers, division.rank_order) else ()
                placed = division._replace(rank_order=order)
                able += (each._replace(mesh=own) for each in in_chunks(problem, placed, some))
    return sorted(able, key=lambda each: each.seconds)


def plainer_states(problem: LayoutProblem, numbers: dict[str, int]) -> Iterator[dict[str, int]]:
    """Yield a layout, and it with the usual ZeRO stage and without copies of shards, as far as the job leaves them open
    and the framework can launch it.
    """
    trained, usual = problem.trained, usual_zero(problem.knobs)
    facts = trained_facts(trained.module, trained.ranks, trained.sizes)
    zeros = {numbers["zero"], usual if trained.fixed.zero is None and usual < numbers["zero"] else numbers["zero"]}
    copies = {numbers["replica"], trained.fixed.replica or 1}
    for zero, replica in product(sorted(zeros, reverse=True), sorted(copies, reverse=True)):
        some = {**numbers, "zero": zero, "replica": replica}
        columns = {name: np.array([some[name]]) for name in (*SEARCHED_FIELDS, DISPATCH)}
        if some == numbers or launchable(columns, trained.fixed, facts, problem.knobs)[0]:
            yield some


def in_chunks(problem: LayoutProblem, division: Division, numbers: dict[str, int]) -> Iterator[DividedLayout]:
    """One division in each number of chunks that is tried, where it fits."""
    most, fixed = numbers["vpp"], problem.trained.fixed.vpp
    tried = [most >> power for power in range(most.bit_length() - 1)] if most > 1 and not fixed else [most]
    for chunks in tried:
        if min(division.layers) >= chunks:
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
