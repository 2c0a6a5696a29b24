"""Layouts of pipelines whose layers are divided as their bound is least, with what memory then asks of them.

A rank's layers are spread over its chunks. Where they do not divide, its first chunks have one more, which is quickest
for most; or ones in the middle, or its last ones, of which fewer micro-batches are in flight.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise, product
from math import ceil
from typing import NamedTuple

import numpy as np

from planner.costs import dims_in_order
from planner.layouts.bounds.split_bound import Division, LeastDivided
from planner.layouts.screening.layout_screening import (
    ScreenedLayouts,
    fitted,
    fullest_columns,
    seconds_of,
    solved_numbers,
    stages_of,
)
from planner.layouts.space.launchable_layouts import with_ep_overlap
from planner.layouts.space.layout_batches import column_batches
from planner.layouts.space.layout_fields import (
    DISPATCH,
    FULL_LAYERS,
    RANK_ORDER,
    RANK_ORDERS,
    RECOMPUTE,
    RECOMPUTE_BY_RANGES,
    SCHEDULE,
    SCHEDULES,
    SEARCHED_FIELDS,
    layout_of,
)
from planner.layouts.space.layout_problem import LayoutProblem
from planner.layouts.space.plainness import usual_zero
from planner.layouts.space.rank_orders import possible_orders
from planner.plan.launchable.launch_refusals import launchable
from planner.plan.launchable.launch_rules import trained_facts
from planner.plan.mesh.even_stages import even_stages
from planner.plan.plan_file import Layout
from planner.specs.base import Layers, with_fields
from planner.specs.parallelism import ZERO_BUBBLE

ROUNDING = 1e-9  # of a layer
MESHES = 8  # that are tried
IMPROVED = 4  # of the quickest, divisions whose neighbours are tried
MOVES = 8  # of one layer, at most
MOVED = 0.9995  # times the seconds before a move: of less the closed form, which has no order of passes, says nothing
PLAINER = 4  # of these meshes, of which plainer ones are tried

Mesh = tuple[int, ...]


class DividedLayout(NamedTuple):
    """A layout that fits, and the seconds of its step by the closed form."""

    layout: Layout
    seconds: float
    division: Division
    numbers: dict[str, int]  # its fields in the space
    moved: bool = False  # whether single layers are elsewhere than by its bound
    plainer: bool = False  # whether it is a plainer one beside what may be the quickest of its mesh

    @property
    def mesh(self) -> Mesh:
        """What makes it one of several to be tried."""
        return (*mesh_of(self.numbers), self.moved)


def divided_layouts(problem: LayoutProblem, found: LeastDivided, screened: ScreenedLayouts) -> list[DividedLayout]:
    """A few meshes near the least bound, in each number of chunks, of the first ones with fewer shards and copies of
    states, in the usual order of ranks as well, if they fit; and what moving single layers between ranks makes quicker
    of these and of the quickest with even stages, as meshes of their own; quickest first.
    """
    meshes, able = set[Mesh](), list[DividedLayout]()
    for division in found.near:
        numbers = {name: int(column[division.place]) for name, column in found.layouts.items()}
        if mesh_of(numbers) not in meshes and len(meshes) < MESHES:
            states = [*plainer_states(problem, numbers)] if len(meshes) < PLAINER else [numbers]
            meshes.add(mesh_of(numbers))
            orders = dict.fromkeys((division.rank_order, possible_orders(problem)[0]))
            for some, order in product(states, orders):
                plainer, placed = (some, order) != (numbers, division.rank_order), division._replace(rank_order=order)
                able += (each._replace(plainer=plainer) for each in in_chunks(problem, placed, some))
    able.sort(key=lambda each: each.seconds)
    quickest = {each.mesh: each for each in reversed(able) if not each.plainer}
    first = sorted(quickest.values(), key=lambda each: each.seconds)[:IMPROVED]
    first += even_layouts(problem, found, screened)
    able += [moved for each in first if (moved := with_moved_layers(problem, each)) is not each]
    return sorted(able, key=lambda each: each.seconds)


def even_layouts(problem: LayoutProblem, found: LeastDivided, screened: ScreenedLayouts) -> Iterator[DividedLayout]:
    """Yield the quickest meshes with even stages whose layers may be divided otherwise, too, where they fit."""
    columns, meshes = screened.layouts, set[Mesh]()
    split = [SCHEDULES.index(name) for name in ZERO_BUBBLE]
    by_ranges = columns["recompute"] == RECOMPUTE_BY_RANGES
    able = screened.fits(problem) & (columns["pp"] > 1) & ~by_ranges & ~np.isin(columns[SCHEDULE], split)
    seconds = np.where(able & bool(len(found.layouts["tp"])), screened.seconds, np.inf)
    for place in np.argsort(seconds, kind="stable")[: MESHES * IMPROVED]:
        numbers = {name: int(columns[name][place]) for name in found.layouts}
        if np.isfinite(seconds[place]) and mesh_of(numbers) not in meshes and len(meshes) < IMPROVED:
            meshes.add(mesh_of(numbers))
            pp, order = numbers["pp"], RANK_ORDERS[int(columns[RANK_ORDER][place])]
            chunks = even_stages(problem.trained.module.layers, pp * numbers["vpp"])
            layers = tuple(sum(map(len, chunks[rank::pp])) for rank in range(pp))
            how = RECOMPUTE[numbers["recompute"]]
            even = divided_layout(problem, Division(float(seconds[place]), int(place), order, how, layers), numbers)
            yield from [even] if even else []


def mesh_of(numbers: dict[str, int]) -> Mesh:
    """Degrees, and whether there are chunks and whether weights are sharded."""
    degrees = tuple(numbers[name] for name in ("tp", "cp", "pp", "ep", "micro_batch"))
    return (*degrees, numbers["vpp"] > 1, numbers["zero"] == 3)


def with_moved_layers(problem: LayoutProblem, divided: DividedLayout) -> DividedLayout:
    """The division, or the quickest that moves of single layers come to, each of which makes it quicker."""
    chunks = divided.numbers["vpp"]
    for _ in range(MOVES):
        moved = (divided.division._replace(layers=each) for each in neighbours(divided.division.layers, chunks))
        needed = MOVED * divided.seconds
        each = (divided_layout(problem, division, divided.numbers, below=needed) for division in moved)
        quickest = min((some for some in each if some), key=lambda some: some.seconds, default=divided)
        if quickest.seconds >= needed:
            break
        divided = quickest._replace(moved=True)
    return divided


def neighbours(layers: tuple[int, ...], least: int) -> Iterator[tuple[int, ...]]:
    """Divisions that differ by one layer: between the first rank, the last, and of the others those with the most and
    the fewest. No rank has fewer than `least`.
    """
    between = range(1, len(layers) - 1)
    some = {0, len(layers) - 1, max(between, key=layers.__getitem__, default=0)}
    takers = {0, len(layers) - 1, min(between, key=layers.__getitem__, default=0)}
    for giver, taker in product(sorted(some), sorted(takers)):
        if giver != taker and layers[giver] > least:
            yield tuple(own - (rank == giver) + (rank == taker) for rank, own in enumerate(layers))


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
        layers = with_enough(division.layers, chunks)
        if layers and chunks >= min(2, most):
            again = divided_layout(problem, division._replace(layers=layers), {**numbers, "vpp": chunks})
            if again:
                yield again


def with_enough(layers: tuple[int, ...], chunks: int) -> tuple[int, ...] | None:
    """The division with a layer or more for each chunk of each rank, of those that have most; None where there are too
    few.
    """
    if sum(layers) < chunks * len(layers):
        return None
    own = [*layers]
    while min(own) < chunks:
        own[own.index(max(own))] -= 1
        own[own.index(min(own))] += 1
    return (*own,)


def spread_otherwise(problem: LayoutProblem, divided: DividedLayout) -> list[Layout]:
    """The same with one more layer in the middle chunks or the last ones, where they do not divide, if it fits."""
    chunks = divided.numbers["vpp"]
    each = [divided_layout(problem, divided.division, divided.numbers, ahead) for ahead in (chunks // 2, 0)]
    found = {other.layout.stages: other.layout for other in each if other}
    return [layout for stages, layout in found.items() if stages != divided.layout.stages]


def divided_layout(
    problem: LayoutProblem,
    division: Division,
    numbers: dict[str, int],
    ahead: int | None = None,
    below: float = np.inf,
) -> DividedLayout | None:
    """One division with as few layers in full and as little offload as fit; None where nothing does, or where it takes
    no less than `below` seconds even without what makes it fit. `ahead`: as `spread_stages` has it.
    """
    trained, order = problem.trained, "-".join(dims_in_order(division.rank_order))
    stages = spread_stages(division.layers, numbers["vpp"], ahead)
    how = division.recompute  # layers in full are solved for, or the job says them
    code = numbers["recompute"] if how in ("none", "full") else RECOMPUTE.index(how)
    numbers = {**numbers, "recompute": code, RANK_ORDER: RANK_ORDERS.index(order)}
    alone = with_ep_overlap(problem, {name: np.array([value]) for name, value in numbers.items()})
    ((_, at),) = column_batches(trained, alone)
    at = replace(at, cuts=(0, *(stage[-1] + 1 for stage in stages)), alike={})
    if below < np.inf and float(seconds_of(problem, replace(at, rank_order=division.rank_order))[0]) >= below:
        return None
    held = fullest_columns(problem, at)
    own, needed = fitted(problem, at, held, stages_of(problem, held))
    if needed[0] > problem.allowed:
        return None
    solved = {name: int(np.max(column)) for name, column in solved_numbers(problem, own).items()}
    solved[FULL_LAYERS] = ceil(float(np.max(own.full_recompute)) * max(division.layers) - ROUNDING)
    seconds = float(seconds_of(problem, replace(own, rank_order=division.rank_order))[0])
    asked = replace(trained, fixed=with_fields(trained.fixed, stages=stages))
    return DividedLayout(layout_of(asked, {**numbers, **solved}), seconds, division, numbers)


def spread_stages(layers: Sequence[int], chunks: int, ahead: int | None = None) -> tuple[Layers, ...]:
    """The layers of each chunk, of ranks with so many layers each. Of k layers c·k/chunks, and as much more of one as
    `ahead`/chunks, rounded down, are in front of chunk c: as many as there may be if nothing is said.
    """
    more = chunks - 1 if ahead is None else ahead
    each = [
        (own * (chunk + 1) + more) // chunks - (own * chunk + more) // chunks
        for chunk in range(chunks)
        for own in layers
    ]
    return tuple(Layers(range(first, last)) for first, last in pairwise(accumulate(each, initial=0)))
