"""Meshes to be tried on ranks of several kinds, from what each kind alone takes of them.

Were all n ranks of kind k, a step took s_k by the closed form; n_k ranks of each kind, busy all the time, take

    1 / Σ_k (n_k / n) / s_k

as stages with layers as they are quick do about. Replicas of one kind each have whole micro-batches: the least time in
which they have done all; or where all join every micro-batch (ZeRO-3, experts), as many as the fullest of these take,
in which slower ones have fewer sequences. Layers, shares and memory are found for the meshes that come first
(division.py, search.py).
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from planner.costs import distinct_values
from planner.layouts import (
    FULL_LAYERS,
    OFFLOADS,
    SCHEDULE,
    Floats,
    LayoutProblem,
    LayoutSpace,
    fixed_fields,
    layout_at,
    layouts_of,
    problems_by_kind,
    screen,
)
from planner.plan.plan_file import Layout
from planner.specs.base import with_fields
from planner.specs.inputs import Inputs
from planner.specs.parallelism import DEFAULT_RANK_ORDER

STAGES_INSIDE = "tp-cp-pp-dp-replica"  # the ranks of a replica are neighbours, and so of one kind
MESH_FIELDS = ("tp", "cp", "pp", "ep", "micro_batch", SCHEDULE)
HALVINGS = 40  # of an interval in which seconds are looked for


class MixedSpace(NamedTuple):
    """Layouts with even stages and about what a step takes of each, the quickest first; and how many were priced."""

    layouts: list[tuple[Layout, float]]
    priced: int


def mixed_space(inputs: Inputs, most: int) -> MixedSpace:
    """The first layouts of distinct meshes that fit on ranks of some kind, in each order of ranks that is tried. Raises
    InputError where the job says the layers of stages.
    """
    problems, counts = problems_by_kind(inputs)
    first, fixed = next(iter(problems.values())), fixed_fields(inputs)
    found = layouts_of(any_share(first), fixed)
    if not len(found["tp"]):
        return MixedSpace([], 0)
    screened = {kind: screen(each, found) for kind, each in problems.items()}
    fits = np.any([each.fits(problems[kind]) for kind, each in screened.items()], axis=0)
    seconds = {kind: each.seconds for kind, each in screened.items()}
    apart, inside = by_stages(seconds, counts), by_replicas(first, found, seconds, counts)
    first_order = np.where(found["pp"] > 1, apart, inside)
    able = (fixed.rank_order,) if fixed.rank_order else first.knobs.rank_orders or (DEFAULT_RANK_ORDER, STAGES_INSIDE)
    open_ = [each for each in (DEFAULT_RANK_ORDER, STAGES_INSIDE) if each in able] or [able[0]]
    orders = [np.where(found["pp"] > 1, inside, np.inf) if each == STAGES_INSIDE else first_order for each in open_]
    every = np.concatenate([np.where(fits, each, np.inf) for each in orders])
    chosen = np.argsort(every, kind="stable")[: int(np.isfinite(every).sum())]
    which, places = np.divmod(chosen, len(fits))
    if not len(places):
        return MixedSpace([], len(fits))
    names = [
        *(found[name][places] for name in MESH_FIELDS),
        found["vpp"][places] > 1,
        found["zero"][places] == 3,
        which,
    ]
    some = np.sort(distinct_values(names)[0])[:most]
    bare = {**found, **{name: np.zeros_like(found["tp"]) for name in (FULL_LAYERS, *OFFLOADS)}}
    layouts = [
        (
            with_fields(layout_at(first.trained, bare, int(places[at])), rank_order=open_[which[at]]),
            float(every[chosen[at]]),
        )
        for at in some
    ]
    return MixedSpace(layouts, len(fits))


def by_stages(seconds: Mapping[str, Floats], counts: Mapping[str, int]) -> Floats:
    """Seconds of a step in which ranks of all kinds are busy all the time, (layouts,)."""
    whole = sum(counts.values())
    return np.asarray(1.0 / sum(counts[kind] / whole / own for kind, own in seconds.items()))


def by_replicas(
    problem: LayoutProblem, found: LayoutSpace, seconds: Mapping[str, Floats], counts: Mapping[str, int]
) -> Floats:
    """Seconds of a step in which replicas of each kind have whole micro-batches, (layouts,)."""
    pipeline = found["tp"] * found["cp"] * found["pp"]
    replicas = {kind: count // pipeline for kind, count in counts.items()}
    sequences = len(problem.trained.sizes)
    own = sequences / (problem.trained.ranks / pipeline * found["micro_batch"])  # of each, were all alike
    each = {kind: taken / own for kind, taken in seconds.items()}  # seconds of a micro-batch
    low, high = np.zeros(len(pipeline)), sequences * np.max([*each.values()], axis=0)
    for _ in range(HALVINGS):
        middle = (low + high) / 2.0
        done = sum(replicas[kind] * np.floor(middle / one) for kind, one in each.items())
        enough = done * found["micro_batch"] >= sequences
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    quickest = np.min([*each.values()], axis=0)
    together = sum(
        replicas[kind] * np.floor(found["micro_batch"] * quickest / one + 1e-9) for kind, one in each.items()
    )
    joined = np.ceil(sequences / np.maximum(1.0, together)) * quickest
    moe = problem.trained.module.routed_experts
    joins = (found["zero"] == 3) | (found["ep"] * found["etp"] > 1) | (moe is not None and moe.balance > 0)
    some = sum(replicas.values()) > 0
    return np.asarray(np.where(some, np.where(joins, joined, high), np.inf))


def any_share(problem: LayoutProblem) -> LayoutProblem:
    """The problem whose replicas may have any of the sequences, as software has it whose groups may change."""
    return replace(problem, trained=replace(problem.trained, any_assignment=problem.knobs.groups == "any"))
