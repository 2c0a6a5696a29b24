"""Which parts of its layers a layout recomputes: solved for where memory needs it, by what each set frees and takes.

What a stage keeps too much is a share δ of its activations. A set of parts frees a share φ for c seconds a layer, and
all of a layer frees Φ for F seconds. So the layers that recompute a set, k of them in full, take
c·(1 − k/L) + F·k/L in the mean, and k is the least with φ + (Φ − φ)·k/L ≥ δ: the quickest set is found by arithmetic,
for every layout by itself, and a layout whose activations fit needs none. The frameworks' own sets are in the space
already (layouts/space/layout_space.py), so each layout without recomputation gives at most one more.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

import numpy as np

from planner.costs import (
    FreedBytes,
    LayoutColumns,
    Number,
    columns_where,
    freed_bytes,
    largest_offload,
    named_bytes,
    recompute_seconds_by,
)
from planner.costs.memory import OFFLOAD_STEPS, layers_on_stage, stages_bytes
from planner.layouts.screening.layout_screening import (
    Floats,
    ScreenedLayouts,
    fullest_columns,
    recompute_is_open,
    screen,
)
from planner.layouts.screening.recomputed_layers import of_stage
from planner.layouts.screening.solved_offload import offload_is_open, searched_offload
from planner.layouts.space.layout_batches import LayoutIndices, column_batches
from planner.layouts.space.layout_fields import EP_OVERLAP, FULL_LAYERS, OFFLOADS, RECOMPUTE, SOLVED_FIELDS
from planner.layouts.space.layout_problem import LayoutProblem
from planner.layouts.space.layout_space import LayoutSpace
from planner.plan.launchable.launch_refusals import launchable
from planner.plan.launchable.launch_rules import trained_facts
from planner.specs.layers import kind_counts, module_parts
from planner.specs.parallelism import PART_SETS, ZERO_BUBBLE, Recompute, parts_of, sets_of_parts

Mixing = Literal["none", "all", "ranges"]  # of layers that are recomputed in full: none, all or none, any


class PricedSet(NamedTuple):
    """What layers recompute, by one layer, (layouts,) each."""

    seconds: Floats  # in backward
    freed: FreedBytes
    named: Number = 0.0  # largest share of what is kept beside it, in kinds that may be named to be offloaded


class Excess(NamedTuple):
    """What a stage keeps too much, (layouts,) each."""

    share: Floats  # of the activations that it keeps; infinite where no recomputation helps, none where it is no stage
    kept: Floats  # bytes of these, of all micro-batches in flight
    backward: Floats  # bytes that a backward holds without recomputation
    layers: Floats
    between: Floats  # share of the layers that are neither the first nor the last of a chunk


def searched_sets(problem: LayoutProblem) -> tuple[Recompute, ...]:
    """The sets of parts that a search may choose beside the usual one: of parts that the module has and its framework
    can name.
    """
    knobs, fixed = problem.knobs, problem.trained.fixed
    named = {*knobs.recomputed_parts} & {*module_parts(problem.trained.module)}
    by_tokens = problem.limits.tokens_per_rank is not None
    if (
        fixed.recompute
        or by_tokens
        or not problem.by_rates
        or "selective" not in knobs.recompute
        or problem.accounting.selective == "ops"
    ):
        return ()
    return tuple(each for each in PART_SETS if named.issuperset(each))


def with_searched_parts(problem: LayoutProblem, screened: ScreenedLayouts) -> ScreenedLayouts:
    """The layouts, and again each that does not fit without recomputation, with the set of parts that is quickest."""
    more = searched_parts(problem, screened)
    if not len(more["tp"]):
        return screened
    again = screen(problem, more)
    layouts = {name: np.concatenate([column, again.layouts[name]]) for name, column in screened.layouts.items()}
    seconds, needed = (
        np.concatenate([getattr(each, name) for each in (screened, again)]) for name in ("seconds", "bytes_needed")
    )
    return ScreenedLayouts(layouts, seconds, needed)


def searched_parts(problem: LayoutProblem, screened: ScreenedLayouts) -> LayoutSpace:
    """The layouts without recomputation that do not fit so, and would with all layers recomputed in full, if that is
    possible: with the quickest set of parts, where it is quicker than the sets that are in the space.
    """
    sets, none, found = searched_sets(problem), RECOMPUTE.index("none"), screened.layouts
    chosen = np.full(len(found["tp"]), none)
    (places,) = np.nonzero((found["recompute"] == none) & ((found[FULL_LAYERS] > 0) | ~screened.fits(problem)))
    bare = {name: column[places] for name, column in found.items()}
    for some, at in column_batches(problem.trained, bare) if sets else ():
        mixes = recompute_is_open(problem, at)
        able = screened.fits(problem)[places[some]] | (not mixes)
        if at.schedule not in ZERO_BUBBLE and able.any():
            chosen[places[some[able]]] = quickest_sets(problem, columns_where(at, able), sets)
    (more,) = np.nonzero(chosen != none)
    columns = {name: column[more] for name, column in {**found, "recompute": chosen}.items()}
    facts = trained_facts(problem.trained.module, problem.trained.ranks, problem.trained.sizes)
    asked = {name: column for name, column in columns.items() if name not in (*SOLVED_FIELDS, EP_OVERLAP)}
    able = launchable(asked, problem.trained.fixed, facts, problem.knobs)
    unsolved = dict.fromkeys((FULL_LAYERS, *OFFLOADS), np.zeros_like(more))
    return {name: column[able] for name, column in {**columns, **unsolved}.items()}


def quickest_sets(problem: LayoutProblem, at: LayoutColumns, sets: tuple[Recompute, ...]) -> LayoutIndices:
    """The quickest set for each layout, as a place in RECOMPUTE; none where none or the usual one is."""
    held = fullest_columns(problem, at)
    stages = memory_excesses(problem, held, offloaded_most(problem, at))
    most = np.max([stage.share for stage in stages], axis=0)
    chosen = np.full(most.shape, RECOMPUTE.index("none"))
    (places,) = np.nonzero((most > 0.0) & np.isfinite(most))
    if not len(places):
        return chosen
    at, held = columns_where(at, places), columns_where(held, places)
    stages = [Excess(*(each[places] for each in stage)) for stage in stages]
    tried: tuple[Recompute, ...] = ("none", "selective", *sets, "full")
    *seconds, full = priced_sets(problem, tried, at)
    mixes = mixing(problem, at)
    each = [seconds_with(stages, one, full, held.tokens, mixes) for one in seconds]
    codes = np.array([RECOMPUTE.index("none"), RECOMPUTE.index("none"), *map(RECOMPUTE.index, sets)])
    chosen[places] = codes[np.argmin(np.stack(np.broadcast_arrays(*each)), axis=0)]
    return chosen


def priced_sets(problem: LayoutProblem, sets: Sequence[Recompute], at: LayoutColumns) -> list[PricedSet]:
    """What each of these takes and frees in a layer."""
    module = problem.trained.module
    seconds = recompute_seconds_by(module, sets, at, problem.machine)
    freed = (freed_bytes(module, how, at, problem.accounting) for how in sets)
    hidden = hidden_bytes(problem, at)
    beside = (replace(at, recomputed_parts=parts_of(how)) for how in sets)
    named = (
        0.0 if how == "full" else named_most(problem, some, hidden) for how, some in zip(sets, beside, strict=True)
    )
    return [PricedSet(*each) for each in zip(seconds, freed, named, strict=True)]


def seconds_with(stages: Sequence[Excess], price: PricedSet, full: PricedSet, tokens: Floats, mixes: Mixing) -> Floats:
    """Seconds of recomputation per layer with a set of parts, and as many layers in full as the stages need; infinite
    where nothing is enough.
    """
    share = np.max([share_in_full(stage, price, full, tokens) for stage in stages], axis=0)
    share = np.ceil(share) if mixes == "all" else share
    seconds = price.seconds * (1.0 - share) + full.seconds * share
    return np.asarray(np.where((share <= 0.0) | ((mixes != "none") & (share <= 1.0)), seconds, np.inf))


def mixing(problem: LayoutProblem, at: LayoutColumns) -> Mixing:
    """Which layers may be recomputed in full beside a set of parts in the others."""
    if not recompute_is_open(problem, at):
        return "none"
    return "ranges" if "ranges" in problem.knobs.recompute else "all"


def share_in_full(excess: Excess, price: PricedSet, full: PricedSet, tokens: Floats) -> Floats:
    """The least share of a stage's layers, whole layers, that are recomputed in full beside a set of parts in the
    others; 2 where nothing is enough.
    """

    def beyond(held: Floats) -> Floats:
        return excess.share + np.maximum(0.0, tokens * held - excess.backward) / excess.kept

    left = beyond(full.freed.held) - price.freed.share
    count = np.ceil(left / np.maximum(1e-9, full.freed.share - price.freed.share) * excess.layers)
    share = np.maximum(1.0, count) / excess.layers
    offloaded = price.named * (1.0 - price.freed.share) * excess.between
    alone = beyond(price.freed.held) <= price.freed.share + offloaded
    return np.asarray(np.where(alone, 0.0, np.where(share > 1.0, 2.0, share)))


def least_recompute(problem: LayoutProblem, at: LayoutColumns, solved: Floats) -> Floats:
    """A share of layers in full that takes no longer than any sets of parts that fit, (layouts,); `solved`: with layers
    in full alone. Where layers are of several kinds, each stage may be of the kind of which a set frees most. Of
    unequal sequences none.
    """
    places = np.flatnonzero(solved > 0.0)
    if not problem.trained.equal_lengths or not len(places):
        return np.zeros_like(solved)
    share: Floats = solved.copy()
    some, module = columns_where(at, places), problem.trained.module
    prices = priced_sets(problem, ("none", "selective", *searched_sets(problem), "full"), some)
    if len(kind_counts(module)) > 1:
        prices = [each._replace(freed=FreedBytes(each.freed.most, each.freed.most, 0.0)) for each in prices]
    *each, full = (price._replace(seconds=np.minimum(price.seconds, prices[-1].seconds)) for price in prices)
    stages, mixes = memory_excesses(problem, some, offloaded_most(problem, some)), mixing(problem, at)
    least = np.min([full.seconds, *(seconds_with(stages, one, full, some.tokens, mixes) for one in each)], axis=0)
    chunk = np.floor(module.layers / (some.pp * some.vpp))  # layers of the smallest
    layers = np.floor(least / full.seconds * chunk * some.vpp + 1e-9)
    # A chunk may have one layer in full fewer than others, so the least of a chunk counts one fewer.
    of_chunk = np.maximum(1.0, np.floor(least / full.seconds * chunk))
    layers = np.where(some.vpp > 1, np.minimum(layers, some.vpp * of_chunk - 1.0), layers)
    first = layers_on_stage(module, some, 0)
    share[places] = np.where(least < full.seconds, np.maximum(0.0, layers) / first, solved[places])
    return share


def offloaded_most(problem: LayoutProblem, at: LayoutColumns) -> Number:
    """The share of the activations of layouts without recomputation, (layouts,) or one for all, that as many bytes are
    as may be in host memory whatever is recomputed: a layer that keeps less sends no more while it computes.
    """
    if not offload_is_open(problem, at) or searched_offload(problem):
        return at.offload
    most = largest_offload(problem.trained.module, at, problem.machine, problem.trained.offloaded_size)
    return np.where(most.full > 0.0, np.minimum(1.0, most.partial + 1.0 / OFFLOAD_STEPS), 0.0)


def hidden_bytes(problem: LayoutProblem, at: LayoutColumns) -> Number:
    """Bytes of a token in one layer that hide where kinds are named to be offloaded, (layouts,), beside whatever parts
    are recomputed, as forwards hide less; 0 where none may be named.
    """
    if not searched_offload(problem) or not offload_is_open(problem, at):
        return 0.0
    bare, trained = replace(at, recomputed_parts=frozenset(), full_recompute=0.0), problem.trained
    most = largest_offload(trained.module, bare, problem.machine, trained.offloaded_size)
    return most.hidden * (1.0 + 1.0 / OFFLOAD_STEPS)


def named_most(problem: LayoutProblem, at: LayoutColumns, hidden: Number) -> Number:
    """The largest share of what layouts keep, beside the parts that they recompute, in a set of kinds that may be named
    to be offloaded, (layouts,) or one for all: one that hides, of experts only where these are not recomputed.
    """
    share: Number = 0.0
    if not np.any(hidden):
        return share
    kinds = searched_offload(problem)
    each = named_bytes(problem.trained.module, at, problem.accounting, kinds)
    for names, own in zip(sets_of_parts(kinds), each, strict=True):
        if not {"moe"} & at.recomputed_parts & {*names}:
            largest = np.where(np.asarray(at.pp) == 1, own.share, own.largest)
            share = np.maximum(share, np.where(own.mean <= hidden, largest, 0.0))
    return share


def memory_excesses(problem: LayoutProblem, held: LayoutColumns, offload: Number) -> list[Excess]:
    """What each stage of layouts without recomputation keeps too much, before what recomputation holds in backward.
    `offload`: the share of its activations in host memory, (layouts,) or one for all.
    """
    found: list[Excess] = []
    for stage in stages_bytes(problem.trained.module, held, problem.accounting):
        room, kept = stage.room(problem.allowed, problem.accounting.fragmentation), np.maximum(stage.kept, 1.0)
        moved = of_stage(stage, offload) * stage.offloadable(0.0)
        needed = stage.states + stage.kept - moved + stage.backward
        share = np.where(stage.update > room, np.inf, (needed - room) / kept)
        one = Excess(np.full(held.tp.size, -np.inf), *np.ones((4, held.tp.size)))
        between = stage.offloadable(0.0) / kept
        for column, own in zip(one, (share, kept, stage.backward, np.maximum(1.0, stage.layers), between), strict=True):
            column[stage.layouts] = own
        found.append(one)
    return found
