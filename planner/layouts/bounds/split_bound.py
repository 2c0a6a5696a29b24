"""A lower bound over all ways to divide layers over the stages of pipelines, and the division that comes nearest to it.

Within T seconds and its memory, rank s of a pipeline has at most n_s(T) layers: seconds and bytes rise with each layer
in straight lines (costs/step/least_split.py, costs/memory/layer_room.py). So T can be reached only if all n_s(T) are as
many as the module has, and the least such T, found by bisection, is a bound for every division. It is found for the
layouts alone whose mean rank could be quicker than the best so far, the quickest of these first.

A pipeline with one chunk a rank stands for itself, and one with as many as there may be for those with any number of
chunks of one layer or more. Layers recompute one set of parts, and in full any of them, where a framework can say
which; activations are in host memory as far as that hides, and all moments of the optimizer, in no time, where they
may be.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.costs import LayoutColumns, Number, columns_where, distinct_values
from planner.costs.memory import LayerKept, LayerRoom, layer_kept, layer_room, usual_kind
from planner.costs.step import (
    LinesOfStages,
    StepItems,
    behind_first_rank_by_layers,
    least_busy_seconds,
    lines_of_stages,
    seconds_behind,
)
from planner.layouts.bounds.space_bound import held_micro_batch, module_in_bounds, step_items
from planner.layouts.screening.layout_screening import Floats, fitted, recompute_is_open
from planner.layouts.screening.searched_parts import (
    hidden_bytes,
    named_most,
    offloaded_most,
    searched_sets,
)
from planner.layouts.screening.solved_optimizer_offload import offloads_moments, optimizer_offload_is_open
from planner.layouts.space.launchable_layouts import with_ep_overlap
from planner.layouts.space.layout_batches import LayoutIndices, column_batches
from planner.layouts.space.layout_fields import SCHEDULE, SCHEDULES
from planner.layouts.space.layout_problem import LayoutProblem
from planner.layouts.space.layout_space import LayoutSpace
from planner.layouts.space.rank_orders import Mask, order_choices
from planner.specs.layers import kind_counts
from planner.specs.parallelism import ZERO_BUBBLE, Recompute, parts_of, recompute_of
from planner.units import MS

STEPS = 14  # of bisection
ROUNDING = 1e-9  # of a layer
NEAR = 8  # layouts near the best, of each of these
FIRST = (16, 256)  # layouts that are looked at first, the quickest by their mean rank


class SetOfLayers(NamedTuple):
    """What layers of pipelines take and keep with one set of recomputed parts."""

    how: Recompute
    lines: LinesOfStages
    held: LayerKept | None  # None where the job limits tokens instead
    offload: Number  # the most of what is kept that may be in host memory
    in_full: Floats  # seconds by which a step is longer for each layer of a rank in full; infinite where none may be


class LeastSeconds(NamedTuple):
    """Seconds of steps of pipelines, (layouts,) each."""

    least: Floats  # that no division beats
    enough: Floats  # that are enough for one by its stages' lines, and hardly more
    chosen: NDArray[np.int64]  # the number of the set that its layers recompute


@dataclass(frozen=True)
class DividedPipelines:
    """Pipelines of one batch of columns, (layouts,), whose layers may be divided in any way."""

    problem: LayoutProblem
    items: StepItems
    held: LayoutColumns  # with a micro-batch that memory has to hold
    as_usual: bool = False  # whether memory counts layers of all kinds, each as one of the usual kind

    @property
    def at(self) -> LayoutColumns:
        """Their columns, with mean micro-batches."""
        return self.items.mean

    @cached_property
    def pp(self) -> Floats:
        """Ranks of each pipeline."""
        return np.asarray(self.at.pp) + np.zeros(np.shape(self.at.tp))

    @cached_property
    def staged(self) -> Mask:
        """Which ranks there are, (ranks of the longest, layouts)."""
        return np.asarray(np.arange(self.pp.max())[:, None] < self.pp)

    @cached_property
    def behind(self) -> Floats:
        """Seconds behind the first rank's passes, where it has so many layers, from 1 on: (layers, layouts)."""
        module, machine = self.problem.trained.module, self.problem.machine
        each = behind_first_rank_by_layers(module, self.at, machine)
        most = int(np.ceil(module.layers / self.pp.min()))
        counts = np.arange(1.0, most + 1.0)[:, None]
        return np.asarray(seconds_behind(module, self.items, machine, each, counts) + 0.0 * (self.pp + counts))

    @cached_property
    def room(self) -> LayerRoom | None:
        """The room for layers; None where the job limits tokens instead."""
        problem = self.problem
        if problem.limits.tokens_per_rank is not None:
            return None
        return layer_room(problem.trained.module, self.at, problem.accounting, problem.allowed)

    @cached_property
    def sets(self) -> list[SetOfLayers]:
        """What layers may recompute: what the layouts say; for nothing any parts that are searched; or in full."""
        at, problem, none = self.at, self.problem, np.full(self.pp.shape, np.inf)
        open_, ranges = recompute_is_open(problem, at), "ranges" in problem.knobs.recompute
        full = self.set_of("full", 1.0, none) if open_ else None
        others = searched_sets(problem) if not at.recomputed_parts and at.schedule not in ZERO_BUBBLE else ()
        each = [self.bare, *(self.set_of(how, at.full_recompute, none) for how in others)]
        if full and not ranges:
            return [*each, full]
        if full:
            longer = (np.maximum(0.0, full.lines.each - own.lines.each).min(axis=0) for own in each)
            return [own._replace(in_full=seconds) for own, seconds in zip(each, longer, strict=True)]
        return each

    @cached_property
    def bare(self) -> SetOfLayers:
        """What the layouts say that layers recompute."""
        none = np.full(self.pp.shape, np.inf)
        return self.set_of(recompute_of(self.at.recomputed_parts), self.at.full_recompute, none)

    def changed(self, how: Recompute, full: Number) -> dict[str, Any]:
        """The columns that differ where layers recompute this, and so many of them all."""
        at, problem, parts = self.at, self.problem, parts_of(how)
        alone = "ep" in problem.trained.overlap and problem.knobs.ep_overlap == "interleaved"
        alone = alone and ("moe" in parts or bool(np.any(np.asarray(full) > 0.0)))
        changed: dict[str, Any] = {"recomputed_parts": parts, "full_recompute": full, "alike": {}}
        return changed | ({"overlap": at.overlap - {"ep"}} if alone else {})

    def lines_of(self, changed: dict[str, Any]) -> LinesOfStages:
        """What passes of layers take with these columns."""
        at = self.at
        first, last = (at if some is at else replace(some, **changed) for some in (self.items.first, self.items.last))
        mean = replace(at, **changed)
        first, last = (mean if some is at else some for some in (first, last))
        items = self.items._replace(mean=mean, first=first, last=last)
        return lines_of_stages(self.problem.trained.module, items, self.problem.machine)

    def set_of(self, how: Recompute, full: Number, in_full: Floats) -> SetOfLayers:
        """What layers take and keep that recompute this, and so many of them all."""
        problem, changed = self.problem, self.changed(how, full)
        lines = self.lines_of(changed)
        if self.room is None:
            return SetOfLayers(how, lines, None, 0.0, in_full)
        some = replace(self.held, **changed)
        chunks = [some.vpp] if np.all(np.asarray(some.vpp) == 1) else [some.vpp, np.minimum(some.vpp, 2.0)]
        kept = layer_kept(problem.trained.module, some, problem.accounting, chunks)
        all_full = np.asarray(full) + 0.0 * kept.kept >= 1.0
        least = all_full | names_ranges(problem)
        shares, named = offloaded_most(problem, some), named_most(problem, some, hidden_bytes(problem, some))
        moved = np.where(all_full, 1.0 * (shares > 0.0), np.maximum(shares, named))
        held = kept._replace(kept=np.where(least, kept.least_kept, kept.kept))
        return SetOfLayers(how, lines, held, moved, in_full)

    def may_divide(self, most: Floats) -> Mask:
        """Whether each may take no more than so many seconds if what its layers free takes no time."""
        own = self.bare
        if own.held and (recompute_is_open(self.problem, self.at) or searched_sets(self.problem)):
            own = own._replace(held=own.held._replace(kept=own.held.least_kept))
        return self.divides(own, most)

    def least(self, most: Floats) -> LeastSeconds:
        """The least seconds of any division, (layouts,), as far as they are below `most`."""
        seconds, enough, chosen = most.copy(), most.copy(), np.zeros(most.shape, dtype=np.int64)
        for number, tried in enumerate(self.sets):
            low, high = np.minimum(self.of_mean, seconds), seconds.copy()
            open_ = self.divides(tried, high)
            for _ in range(STEPS if open_.any() else 0):
                middle = (low + high) / 2.0
                able = self.divides(tried, middle)
                low, high = np.where(able, low, middle), np.where(able, middle, high)
            seconds, enough = np.where(open_, low, seconds), np.where(open_, high, enough)
            chosen = np.where(open_, number, chosen)
        return LeastSeconds(seconds, enough, chosen)

    def division(self, place: int, number: int, seconds: float) -> tuple[int, ...] | None:
        """The layers of each rank of one pipeline with a set within so many seconds: as many as there may be, less
        those that the slowest ranks can do without. None where that is not all of them.
        """
        tried, ranks = self.sets[number], int(self.pp[place])
        _, most = self.most_layers(tried, np.full(self.pp.shape, seconds))
        found = most[:ranks, place]
        constant, each = tried.lines.constant[:ranks, place], tried.lines.each[:ranks, place]
        while (spare := found.sum() - self.problem.trained.module.layers) > 0:
            slowest = np.where(found > 1, constant + each * found, -np.inf)
            found[int(np.argmax(slowest[::-1])) * -1 - 1] -= 1
        return None if spare < 0 else tuple(found.astype(int).tolist())

    def divides(self, tried: SetOfLayers, seconds: Floats) -> Mask:
        """Whether all layers can be on ranks that have no more than so many seconds allow."""
        module = self.problem.trained.module
        by_time, both = self.most_layers(tried, seconds)
        counted = module.layers if self.as_usual else usual_kind(module)[1]
        return np.asarray((by_time.sum(axis=0) >= module.layers) & (both.sum(axis=0) >= counted))

    def most_layers(self, tried: SetOfLayers, seconds: Floats) -> tuple[Floats, Floats]:
        """The most layers of each rank within so many seconds, (ranks, layouts), and within its memory too."""
        layers, machine = self.problem.trained.module.layers, self.problem.machine
        passes = (seconds - machine.timing.step_ms * MS) / (1.0 + machine.jitter(self.at.ranks))
        first = np.zeros(self.pp.shape, dtype=np.int64)
        for _ in range(2):  # with few layers on the others the first rank has more, and more to exchange and update
            behind = self.behind[np.clip(first - 1, 0, len(self.behind) - 1), np.arange(len(first))]
            by_time = self.in_time(tried.lines, passes - behind)
            first = np.clip(layers - by_time[1:].sum(axis=0), 1, layers).astype(np.int64)
        return by_time, np.minimum(by_time, self.in_memory(tried, passes, by_time))

    def in_time(self, lines: LinesOfStages, seconds: Floats) -> Floats:
        """The most layers of each rank that passes leave time for; no rank of a pipeline has none."""
        staged = self.staged
        if not np.any(lines.before):
            found = np.floor((seconds - lines.constant) / lines.each + ROUNDING)
        else:
            front, each = np.zeros(self.pp.shape), list[Floats]()
            for constant, one, there in zip(lines.constant, lines.each, staged, strict=True):
                each.append(np.floor((seconds - constant - lines.before * front) / one + ROUNDING))
                front = front + np.where(there, np.maximum(0.0, each[-1]), 0.0)
            found = np.stack(each)
        short = (staged & (found < 1.0)).any(axis=0)
        return np.where(staged & ~short, np.minimum(found, self.problem.trained.module.layers), 0.0)

    def in_memory(self, tried: SetOfLayers, seconds: Floats, by_time: Floats) -> Floats:
        """The most layers of each rank that its memory has room for; `seconds`: of passes and what is behind them."""
        kept, offload = tried.held, tried.offload
        if self.room is None or kept is None:
            return np.full(by_time.shape, np.inf)
        moved = offloads_moments(self.problem, self.at) if optimizer_offload_is_open(self.problem) else 0.0
        room, state = self.room.room + moved * self.room.moments_outside, self.room.state - moved * self.room.moments
        left = np.maximum(0.0, seconds - tried.lines.constant)
        ends = 2.0 * np.minimum(self.held.vpp, 2.0)  # layers of a rank that stay, where others are offloaded
        bytes_, own = kept.flying * kept.kept, room - kept.ends
        most = own / (state + bytes_)
        if np.any(offload):
            beside = (own - ends * offload * bytes_) / (state + (1.0 - offload) * bytes_)
            most = np.maximum(most, np.where(beside >= ends, beside, np.minimum(most, ends)))
        if np.isfinite(tried.in_full).any():
            freed = kept.flying * np.maximum(1e-9, kept.kept * (1.0 - offload) - kept.least_kept)
            slope = tried.in_full / freed  # seconds for each byte
            some = (left + slope * own) / (tried.lines.each + slope * (state + (1.0 - offload) * bytes_))
            all_ = own / (state + kept.flying * kept.least_kept)
            most = np.maximum(most, np.where(np.isfinite(tried.in_full), np.minimum(some, all_), 0.0))
        return np.asarray(np.floor(np.maximum(0.0, most) + ROUNDING))

    @cached_property
    def of_mean(self) -> Floats:
        """Seconds of a step at least, (layouts,): of layers that could be divided into any parts, and fit."""
        at, problem = self.at, self.problem
        lines = self.lines_of(self.changed(recompute_of(at.recomputed_parts), at.full_recompute))
        each = np.where(self.staged, 1.0 / lines.each, 0.0)
        layers = problem.trained.module.layers + (each * lines.constant).sum(axis=0)
        busy = layers / each.sum(axis=0) + self.behind[0]
        return np.asarray(busy * (1.0 + problem.machine.jitter(at.ranks)) + problem.machine.timing.step_ms * MS)


class Division(NamedTuple):
    """A pipeline whose layers are divided so that its bound is least."""

    seconds: float  # that are enough for it by its stages' lines
    place: int  # of the layout in its space
    rank_order: str
    recompute: Recompute  # of its layers, as far as they do not in full
    layers: tuple[int, ...]  # of each rank


class LeastDivided(NamedTuple):
    """The least seconds of any division of a space's pipelines, and which of them are near it."""

    seconds: float
    layouts: LayoutSpace
    near: list[Division]  # the quickest first


def least_divided(problem: LayoutProblem, found: LayoutSpace, most: float, *, as_usual: bool = False) -> LeastDivided:
    """The least seconds of any pipeline of a space with its layers divided in any way, if that is below `most`; else
    this. `as_usual`: of layers of several kinds memory counts all, each as one of the usual kind: no bound, but near
    what fits.
    """
    if not problem.knobs.uneven_stages or problem.trained.fixed.stages:
        return LeastDivided(most, found, [])
    some, near = with_any_chunks(problem, found), list[Division]()
    orders = order_choices(problem, some)
    for places, at in column_batches(problem.trained, some):
        at = replace(at, dispatch=problem.dispatches)
        if names_ranges(problem):  # a division may have any of these on each rank
            at = replace(at, full_recompute=0.0, recomputed_parts=frozenset())
        limited = within_limit(problem, at)
        for choice in orders:
            tried = choice.tried[places] & limited
            if tried.any():
                own = replace(columns_where(at, tried), rank_order=choice.rank_order)
                most, more = least_of_batch(problem, own, places[tried], most, as_usual)
                near += more
    return LeastDivided(most, some, sorted(near, key=lambda each: each.seconds))


def divisions_near(problem: LayoutProblem, found: LayoutSpace, least: LeastDivided, most: float) -> LeastDivided:
    """Divisions to be tried: those near the bound; of layers of several kinds those near it if all need memory."""
    one, none = len(kind_counts(problem.trained.module)) == 1, least.seconds >= most  # with less memory there is none
    return least if one or none else least_divided(problem, found, most, as_usual=True)


def names_ranges(problem: LayoutProblem) -> bool:
    """Whether the job says which ranges of layers recompute what."""
    return isinstance(problem.trained.fixed.recompute, dict)


def within_limit(problem: LayoutProblem, at: LayoutColumns) -> Mask:
    """Whether layouts keep to the job's limit in tokens, which no division changes."""
    if problem.limits.tokens_per_rank is None:
        return np.ones(np.shape(at.tp), dtype=np.bool_)
    return np.asarray(fitted(problem, at, held_micro_batch(problem.trained, at), [])[1] <= problem.allowed)


def least_of_batch(
    problem: LayoutProblem, at: LayoutColumns, places: LayoutIndices, most: float, as_usual: bool
) -> tuple[float, list[Division]]:
    """The least seconds of pipelines in one order of ranks that are below `most`, else this; and some near it."""
    module, machine = problem.trained.module, problem.machine
    quick = np.asarray(least_busy_seconds(module_in_bounds(problem.trained), at, machine)) < most
    if not quick.any():
        return most, []
    at, places, found = columns_where(at, quick), places[quick], list[Division]()
    seconds = divided(problem, at).of_mean
    for part in np.split(np.argsort(seconds, kind="stable"), FIRST):
        part = part[seconds[part] < most]
        if not len(part):
            continue
        limit = np.full(len(part), most) if np.isfinite(most) else module.layers * seconds[part]
        able = divided(problem, columns_where(at, part)).may_divide(limit)
        part, limit = part[able], limit[able]
        if not able.any():
            continue
        some = replace(divided(problem, columns_where(at, part)), as_usual=as_usual)
        least, enough, chosen = some.least(limit)
        most = min(most, float(least[least < limit].min(initial=np.inf)))
        for number in np.argsort(enough, kind="stable")[:NEAR]:
            layers = some.division(number, chosen[number], enough[number]) if enough[number] < limit[number] else None
            if layers:
                how = some.sets[chosen[number]].how
                found.append(Division(float(enough[number]), int(places[part[number]]), at.rank_order, how, layers))
    return most, found


def divided(problem: LayoutProblem, at: LayoutColumns) -> DividedPipelines:
    """Layouts as pipelines that may be divided in any way."""
    items = step_items(problem.trained, at)
    return DividedPipelines(problem, items, held_micro_batch(problem.trained, at))


def with_any_chunks(problem: LayoutProblem, found: LayoutSpace) -> LayoutSpace:
    """The pipelines of a space with one chunk a rank; and, unless the job says how many, each mesh with as many chunks
    as there may be, for those with any number.
    """
    trained, staged = problem.trained, found["pp"] > 1
    layers, many = trained.module.layers, staged & (found["vpp"] > 1)
    if (
        trained.fixed.vpp
        or trained.fixed.schedule not in (None, "interleaved")
        or "interleaved" not in problem.knobs.schedules
    ):
        return {name: column[staged] for name, column in found.items()}
    pipelines = trained.ranks // (found["tp"] * found["cp"] * found["pp"])
    able = staged & (found["pp"] * 2 <= layers) & (found[SCHEDULE] == SCHEDULES.index("1f1b"))
    if trained.equal_lengths:
        able &= len(trained.sizes) // (pipelines * found["micro_batch"]) % found["pp"] == 0
    chunks = {name: column[able | many] for name, column in found.items()}
    chunks["vpp"] = layers // chunks["pp"]
    first, _ = distinct_values([*chunks.values()]) if len(chunks["tp"]) else (chunks["tp"], None)
    plain = staged & (found["vpp"] == 1)
    both = {name: np.concatenate([column[plain], chunks[name][first]]) for name, column in found.items()}
    return with_ep_overlap(problem, both)
