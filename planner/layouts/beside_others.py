"""The bound over the layouts of a module on some ranks, beside work of others on the same ranks or others.

What is cheap is bounded first: only layouts that leave room below the best one so far are held against memory, and only
those that fit have the bound of their own step.

Own bounds hold for samples that are assigned in any way: the first micro-batch of a pipeline, and its last, may be the
shortest sample alone. A layout with b samples in a micro-batch stands for all plans whose micro-batches have more than
the next smaller number in the mean, and b at most: as few micro-batches as b gives take time, and the mean of as many
as the smaller number gives is held, and goes through all stages. Samples that are packed to limits are in no fewer
packs than these allow.

A pipeline's stage with f micro-batches in flight holds any f that follow each other, and the backward of the first of
these. Cut K of them into runs of f, in each of the f ways: runs and what is left over are at most (K + 2f − 1)/f, and
each is held, so that one of them has f/(K + 2f − 1) of all at least, and as much of its backward. With chunks, all but
the last of pp micro-batches are held when the last has its backward, and there are (K + pp − 1)/pp such groups at most.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from planner.costs import LayoutColumns, MachineModel, columns_where
from planner.costs.step import (
    StepItems,
    least_busy_seconds,
    least_first_stage_seconds,
    least_path_seconds,
    least_step_seconds,
)
from planner.layouts.equivalent_window import with_equivalent_window
from planner.layouts.launchable_layouts import layouts_of
from planner.layouts.layout_batches import LayoutIndices, column_batches
from planner.layouts.layout_fields import TrainingSetup
from planner.layouts.layout_problem import LayoutProblem
from planner.layouts.layout_screening import Floats
from planner.layouts.optimizer_offload_bound import with_least_optimizer_offload
from planner.layouts.rank_orders import Mask, OrderChoice, order_choices, orders_of
from planner.layouts.searched_parts import taken_columns
from planner.layouts.solved_optimizer_offload import optimizer_offload_is_open
from planner.layouts.space_bound import SpaceBound, with_any_parts, with_least_memory
from planner.plan.pack_bound import fewest_by_resource
from planner.specs.base import with_fields

MANY = 1e3
FIRST = (128, 2048)  # layouts that are bounded first, those of whose work is least


@dataclass(frozen=True, slots=True)
class ModuleWork:
    """The work of one of the other modules."""

    seconds: float  # ranks' seconds of its passes and its update
    constant: float  # seconds of a step on each rank that updates some of it
    on_every: bool  # whether each of its ranks does
    machine: MachineModel

    def area(self, counts: Floats) -> Floats:
        """Ranks' seconds at least, on so many ranks."""
        each = self.constant * (counts if self.on_every else np.ones_like(counts))
        return np.asarray(self.seconds * (1.0 + self.machine.jitter(counts)) + each)


@dataclass(frozen=True, slots=True)
class OtherWork:
    """The work of the other modules, by seconds t in which each of them ends: rising t."""

    ends: Floats  # (t,)
    area: Floats  # ranks' seconds of all modules together, on the fewest ranks on which each ends by t, (t,)
    ranks: int  # of all modules
    on_first_stage: tuple[
        ModuleWork, ...
    ] = ()  # of these, those on the ranks of the first stage of the samples' module

    def least_seconds(self, own: Floats | float, busy: Floats) -> Floats:
        """The least step, (layouts,), beside a module whose own step takes `own` seconds at least, and in which the
        mean of all ranks computes for it `busy` seconds.
        """
        shares = self.area / self.ranks
        first = np.searchsorted(self.ends - shares, busy)  # from here on, t is more than what all ranks do
        last, before = np.minimum(first, len(self.ends) - 1), np.maximum(first - 1, 0)
        each = [np.maximum(self.ends[at], busy + shares[at]) for at in (last, before)]
        return np.asarray(np.maximum(own, np.minimum(*each)))


class LayoutsBesideOthers:
    """The layouts of a module beside the work of others. `pack_tokens`: tokens that a rank may hold in a micro-batch,
    where samples are packed: `packs`; None: as many as there are.
    """

    def __init__(self, own: LayoutProblem, others: OtherWork, packs: bool, pack_tokens: int | None) -> None:
        self.own, self.others, self.packs, self.pack_tokens = own, others, packs, pack_tokens
        self.module = with_equivalent_window(own.trained)
        self.orders: list[OrderChoice] = []

    def bound(self, known: SpaceBound) -> SpaceBound:
        """The bound over these layouts and those of a known one."""
        found = layouts_of(self.own, self.own.trained.fixed)
        self.orders, seconds, excluded = order_choices(self.own, found), known.seconds, 0
        for places, at in column_batches(self.own.trained, found):
            at = replace(at, dispatch=self.own.dispatches)
            everywhere = orders_of(self.orders, places, np.ones(len(places), np.bool_))
            shared = self.shared_seconds(self.without_ranges(at), everywhere)
            for part in np.split(np.argsort(shared, kind="stable"), () if np.isfinite(known.seconds) else FIRST):
                some = part[shared[part] < seconds]
                if len(some):
                    seconds, out = self.least_of(taken_columns(at, some), places[some], seconds)
                    excluded += out
        return SpaceBound(seconds, known.layouts + len(found["tp"]), known.excluded + excluded)

    def least_of(self, at: LayoutColumns, places: LayoutIndices, most: float) -> tuple[float, int]:
        """The least bound of these layouts that is below `most`, else `most`; and how many of them do not fit."""
        left = np.ones(len(places), np.bool_)
        for least, fits in self.fitting(at):
            for choice in orders_of(self.orders, places, fits):
                most = min(most, self.least_seconds(self.without_ranges(least), choice, fits, most))
            left &= ~fits
        return most, int(left.sum())

    def without_ranges(self, at: LayoutColumns) -> LayoutColumns:
        """The layouts; where the job names ranges of layers to recompute, of which stages may have none, without."""
        if not isinstance(self.own.trained.fixed.recompute, dict):
            return at
        return replace(at, full_recompute=0.0, recomputed_parts=frozenset())

    def fitting(self, at: LayoutColumns) -> Iterator[tuple[LayoutColumns, Mask]]:
        """The layouts with as little recomputed as may fit, and which of them fit; then, of those that recompute, the
        same with moments of the optimizer in host memory, where these may be.
        """
        problem, held = self.own, held_micro_batches(self.own.trained, at)
        if not optimizer_offload_is_open(problem):
            least, needed = with_least_memory(problem, at, held)
            yield least, needed <= problem.allowed
            return
        on_device = replace(problem, knobs=with_fields(problem.knobs, optimizer_offload=()))
        least, needed = with_least_memory(on_device, at, held)
        fits = needed <= problem.allowed
        yield least, fits
        moved, beyond = with_least_optimizer_offload(problem, at, held)
        yield moved, np.isfinite(beyond) & (~fits | (np.asarray(least.full_recompute) > at.full_recompute))

    def shared_seconds(self, at: LayoutColumns, orders: list[OrderChoice]) -> Floats:
        """What all ranks need for all modules together, (layouts,): of the orders of ranks the least."""
        seconds = np.full(np.shape(at.tp), np.inf)
        for choice in orders:
            if choice.tried.any():
                some = with_any_parts(self.own, replace(columns_where(at, choice.tried), rank_order=choice.rank_order))
                seconds[choice.tried] = np.minimum(
                    seconds[choice.tried], self.others.least_seconds(0.0, self.busy(some))
                )
        return seconds

    def least_seconds(self, at: LayoutColumns, choice: OrderChoice, fits: Mask, most: float) -> float:
        """The least bound of the layouts that fit in an order of ranks, if it is below `most`; else infinity."""
        tried = choice.tried & fits
        if not tried.any():
            return np.inf
        some = with_any_parts(self.own, replace(columns_where(at, tried), rank_order=choice.rank_order))
        busy = self.busy(some)
        below = self.others.least_seconds(0.0, busy) < most
        if not below.any():
            return np.inf
        own = self.own_seconds(columns_where(some, below))
        return float(self.others.least_seconds(own, busy[below]).min())

    def busy(self, at: LayoutColumns) -> Floats:
        """Seconds that the mean of all ranks computes for this module, (layouts,)."""
        share = self.own.trained.ranks / self.others.ranks
        return np.asarray(share * least_busy_seconds(self.module, self.in_few_micro_batches(at), self.own.machine))

    def in_few_micro_batches(self, at: LayoutColumns) -> LayoutColumns:
        """The layouts, where samples are packed with as few micro-batches as packs can be; those with the largest of
        the space stand for larger ones, too.
        """
        if not self.packs:
            return at
        ranks, sizes = np.asarray(at.tp * at.cp), np.array(self.own.trained.sizes, dtype=np.int64)
        packs = np.ones(ranks.shape)
        for count in np.unique(ranks) if self.pack_tokens is not None else ():
            packs = np.where(ranks == count, fewest_by_resource(sizes, int(self.pack_tokens * count)), packs)
        fullest = self.own.trained.mean_sequences / packs
        largest = 2.0 * at.micro_batch * at.pipelines > self.own.trained.mean_sequences
        return replace(at, micro_batch=np.where(largest, fullest, np.minimum(at.micro_batch, fullest)), alike={})

    def own_seconds(self, at: LayoutColumns) -> Floats:
        """Lower bounds of a step of this module alone, (layouts,), for every assignment of samples."""
        trained, machine = self.own.trained, self.own.machine
        shortest = replace(at, seq=float(min(trained.sizes)), micro_batch=1.0)
        items = StepItems(self.in_few_micro_batches(at), shortest, shortest)
        longest = replace(at, seq=float(max(trained.sizes)), batch=at.pipelines, micro_batch=1.0)
        each = (
            least_step_seconds(self.module, items, machine),
            least_path_seconds(trained.module, longest, machine),
            least_path_seconds(self.module, replace(at, micro_batch=fewest_samples(trained, at), alike={}), machine),
        )
        seconds = np.max(np.broadcast_arrays(*each), axis=0)
        if not self.others.on_first_stage:
            return np.asarray(seconds)
        count = np.asarray(at.ranks / at.pp, dtype=float)
        beside = sum(work.area(count) / count for work in self.others.on_first_stage)
        first = least_first_stage_seconds(self.module, self.in_few_micro_batches(at), machine)
        return np.asarray(np.maximum(seconds, first + beside))


def held_micro_batches(trained: TrainingSetup, at: LayoutColumns) -> tuple[LayoutColumns, ...]:
    """The layouts with micro-batches that some rank has to hold, whatever the assignment: the longest sample alone; and
    some of all.
    """
    longest = replace(at, seq=float(max(trained.sizes)), micro_batch=1.0, batch=at.pipelines)
    of_replica = trained.mean_sequences / at.pipelines
    count = of_replica / fewest_samples(trained, at)  # micro-batches of a replica, at most
    pp, vpp = np.asarray(at.pp), np.asarray(at.vpp)
    if at.schedule == "gpipe":
        runs = MANY * count  # all at once, and no backward
    else:
        flying = 2.0 * pp - 1.0 if at.schedule == "zb_h2" else pp
        runs = np.where(pp > 1, count + 2.0 * flying - 1.0, count)
        runs = np.where(
            vpp > 1, (count + pp - 1.0) * ((vpp + 1.0) * pp - 1.0) / (np.maximum(1.0, vpp - 1.0) * pp), runs
        )
    return longest, replace(at, batch=trained.mean_sequences, micro_batch=of_replica / runs, alike={})


def fewest_samples(trained: TrainingSetup, at: LayoutColumns) -> Floats:
    """Samples of the mean micro-batch of plans that a layout stands for, at least, as sequences of mean length."""
    samples = np.rint(np.asarray(at.micro_batch) / trained.mean_share)
    fewer = np.where(samples > 2.0, samples * 2.0 / 3.0, 1.0)
    return np.asarray(fewer * trained.mean_share)
