"""The bound over the layouts of a module on some ranks, beside work of others on the same ranks or others.

What is cheap is bounded first: only layouts that leave room below the best one so far are held against memory, and only
those that fit have the bound of their own step.

Own bounds hold for samples that are assigned in any way: the first micro-batch of a pipeline, and its last, may be the
shortest sample alone. A layout with b samples in a micro-batch stands for all plans whose micro-batches have more than
the next smaller number in the mean, and b at most: as few micro-batches as b gives take time, and the mean of as many
as the smaller number gives is held (layouts/held_micro_batches.py), and goes through all stages. Samples that are
packed to limits are in no fewer packs than these allow. Where what layers recompute is open, a layout without stands
for all: its stages recompute as much as memory asks of each (layouts/least_recomputation.py).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from planner.costs import LayoutColumns, MachineModel, Number, columns_where
from planner.costs.step import (
    SequenceSizes,
    StepItems,
    few_micro_batches_seconds,
    least_busy_seconds,
    least_first_stage_seconds,
    least_path_seconds,
    least_step_seconds,
)
from planner.layouts.equivalent_window import with_equivalent_window
from planner.layouts.fixed_recomputation import fixed_recomputation
from planner.layouts.held_micro_batches import fewest_samples, held_in_seconds, held_micro_batches
from planner.layouts.launchable_layouts import layouts_of
from planner.layouts.layout_batches import LayoutIndices, column_batches
from planner.layouts.layout_fields import RECOMPUTE
from planner.layouts.layout_problem import LayoutProblem
from planner.layouts.layout_screening import Floats
from planner.layouts.layout_space import LayoutSpace
from planner.layouts.least_recomputation import Recomputed, held_memory, least_recomputed
from planner.layouts.optimizer_offload_bound import with_least_optimizer_offload
from planner.layouts.rank_orders import Mask, OrderChoice, order_choices, orders_of
from planner.layouts.searched_parts import taken_columns
from planner.layouts.solved_optimizer_offload import optimizer_offload_is_open
from planner.layouts.space_bound import SpaceBound, with_least_memory
from planner.plan.pack_fill import fewest_by_resource
from planner.specs.base import with_fields

FIRST = (128, 2048)  # layouts that are bounded first, those of whose work is least
FARTHEST = 1.4  # times what all ranks need for a layout: steps of more seconds are not looked at


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


class FittingLayouts(NamedTuple):
    """Layouts of the samples' module, (layouts,) each."""

    at: LayoutColumns  # with what the job says of recomputation, and of none that is open
    fits: Mask
    in_time: Mask  # of these, those that may fit in steps of the seconds that are looked at
    recomputed: Recomputed  # at least, in such steps


class LayoutsBesideOthers:
    """The layouts of a module beside the work of others. `pack_tokens`: tokens that a rank may hold in a micro-batch,
    where samples are packed: `packs`; None: as many as there are. `uneven`: whether pipelines stand for those whose
    stages have any numbers of layers, which hold and compute at least as much on the fullest as on the mean one.
    """

    def __init__(
        self, own: LayoutProblem, others: OtherWork, packs: bool, pack_tokens: int | None, uneven: bool = False
    ) -> None:
        self.own, self.others, self.packs, self.pack_tokens, self.uneven = own, others, packs, pack_tokens, uneven
        self.module = with_equivalent_window(own.trained)
        self.orders: list[OrderChoice] = []

    def bound(self, known: SpaceBound) -> SpaceBound:
        """The bound over these layouts and those of a known one."""
        found = self.layouts()
        self.orders, seconds, excluded = order_choices(self.own, found), known.seconds, 0
        for places, at in column_batches(self.own.trained, found):
            at = replace(at, dispatch=self.own.dispatches)
            everywhere = orders_of(self.orders, places, np.ones(len(places), np.bool_))
            shared = least_in_orders(self.shared_seconds, self.without_ranges(at), everywhere)
            for part in np.split(np.argsort(shared, kind="stable"), () if np.isfinite(known.seconds) else FIRST):
                some = part[shared[part] < seconds]
                if len(some):
                    within = np.minimum(seconds, FARTHEST * shared[some])
                    seconds, out = self.least_of(taken_columns(at, some), places[some], within, seconds)
                    excluded += out
        return SpaceBound(seconds, known.layouts + len(found["tp"]), known.excluded + excluded)

    def layouts(self) -> LayoutSpace:
        """The layouts; where what each layer recomputes is open, those without recomputation, which stand for all."""
        found = layouts_of(self.own, self.own.trained.fixed)
        if not self.recompute_is_open:
            return found
        chosen = found["recompute"] == RECOMPUTE.index("none")
        return {name: column[chosen] for name, column in found.items()}

    @property
    def recompute_is_open(self) -> bool:
        """Whether layers may recompute anything, or nothing."""
        told = {"none", "full"} <= {*self.own.knobs.recompute}
        return told and self.own.trained.fixed.recompute is None

    @property
    def recomputes_exactly(self) -> bool:
        """Whether each stage recomputes what columns say: of ranges of layers only those in full are in these."""
        fixed = self.own.trained.fixed
        if isinstance(fixed.recompute, dict):
            return fixed.pp == 1 and {*fixed.recompute.values()} <= {"none", "full"}
        return fixed.recompute is not None and not self.uneven

    def least_of(self, at: LayoutColumns, places: LayoutIndices, within: Floats, most: float) -> tuple[float, int]:
        """The least bound of these layouts that is below `most`, else `most`; and how many of them do not fit. Those of
        which one micro-batch alone takes longer are not held against memory, and bounds are at most `within`.
        """
        everywhere = orders_of(self.orders, places, np.ones(len(places), np.bool_))
        quick = least_in_orders(self.pipeline_seconds, self.without_ranges(at), everywhere) < most
        at, places, within = columns_where(at, quick), places[quick], within[quick]
        left = np.ones(len(places), np.bool_)
        for each in self.fitting(at, within) if len(places) else ():
            late = each.fits & ~each.in_time
            most = min(most, float(within[late].min(initial=np.inf)))
            for choice in orders_of(self.orders, places, each.in_time):
                most = min(most, self.least_seconds(each, choice, within, most))
            left &= ~each.fits
        return most, int(left.sum())

    def without_ranges(self, at: LayoutColumns) -> LayoutColumns:
        """The layouts; where the job names ranges of layers to recompute, with those in full alone, and of pipelines,
        of which stages may have none, without.
        """
        if not isinstance(self.own.trained.fixed.recompute, dict):
            return at
        full = np.where(np.asarray(at.pp) > 1, 0.0, at.full_recompute)
        return replace(at, full_recompute=full, recomputed_parts=frozenset())

    def fitting(self, at: LayoutColumns, within: Floats) -> Iterator[FittingLayouts]:
        """The layouts, which of them fit with as little recomputed as may be in steps of so many seconds, and that;
        then, of those that recompute, the same with moments of the optimizer in host memory, where these may be.
        """
        problem, held = self.own, held_micro_batches(self.own.trained, at)
        on_device = replace(problem, knobs=with_fields(problem.knobs, optimizer_offload=()))
        solved, needed = with_least_memory(on_device, at, held)
        bare, fits = self.without_ranges(at if self.recompute_is_open else solved), needed <= problem.allowed
        in_flight = held_in_seconds(problem.trained, bare, problem.machine, within)
        beside, nothing = held_memory(on_device, at, in_flight), Recomputed(*np.zeros((3, len(fits))))
        in_time = np.asarray(beside.fits if beside else fits)
        mean = self.in_few_micro_batches(at)
        least = least_recomputed(on_device, at, mean, held, beside) if self.recompute_is_open else nothing
        if self.uneven:  # a stage may have less to keep than an even one
            staged = np.asarray(at.pp) > 1
            fits, in_time = fits | staged, in_time | staged
            least = Recomputed(*(np.where(staged, 0.0, each) for each in least))
        least = self.fixed_recomputation(at) or least
        yield FittingLayouts(bare, fits, fits & in_time, least)
        if optimizer_offload_is_open(problem):
            moved, beyond = with_least_optimizer_offload(problem, at, held)
            more = np.isfinite(beyond) & (~fits | (np.asarray(solved.full_recompute) > at.full_recompute))
            yield FittingLayouts(self.without_ranges(moved), more, more, self.fixed_recomputation(at) or nothing)

    def fixed_recomputation(self, at: LayoutColumns) -> Recomputed | None:
        """What pipelines recompute where the job names ranges of layers: uneven ones in the mean alone. Else None."""
        if not isinstance(self.own.trained.fixed.recompute, dict):
            return None
        found = fixed_recomputation(self.own.trained, at)
        return Recomputed(0.0 * found.first, found.mean, 0.0 * found.least) if self.uneven else found

    def shared_seconds(self, at: LayoutColumns) -> Floats:
        """What all ranks need for all modules together, (layouts,), and those of this module for it."""
        busy = self.busy(at)
        return self.others.least_seconds(busy * self.others.ranks / self.own.trained.ranks, busy)

    def least_seconds(self, found: FittingLayouts, choice: OrderChoice, within: Floats, most: float) -> float:
        """The least bound of the layouts that fit in an order of ranks, if it is below `most`; else infinity."""
        tried = choice.tried & found.in_time
        if not tried.any():
            return np.inf
        some = replace(columns_where(found.at, tried), rank_order=choice.rank_order)
        recomputed = found.recomputed.among(tried)
        busy = self.busy(some, recomputed.mean)
        below = self.others.least_seconds(self.pipeline_seconds(some), busy) < most
        if not below.any():
            return np.inf
        own = self.own_seconds(columns_where(some, below), recomputed.among(below))
        return float(np.minimum(within[tried][below], self.others.least_seconds(own, busy[below])).min())

    def busy(self, at: LayoutColumns, recomputed: Number = 0.0) -> Floats:
        """Seconds that the mean of all ranks computes for this module, (layouts,). `recomputed`: by the mean layer."""
        share, at = self.own.trained.ranks / self.others.ranks, self.in_few_micro_batches(at)
        return np.asarray(share * least_busy_seconds(self.module, at, self.own.machine, recomputed))

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

    def own_seconds(self, at: LayoutColumns, recomputed: Recomputed) -> Floats:
        """Lower bounds of a step of this module alone, (layouts,), for every assignment of samples."""
        at = replace(at, full_recompute=np.maximum(at.full_recompute, recomputed.least))
        shortest = replace(at, seq=float(min(self.own.trained.sizes)), micro_batch=1.0)
        longest = float(max(self.own.trained.sizes))
        items = StepItems(self.in_few_micro_batches(at), shortest, shortest, longest, self.recomputes_exactly)
        first_stage = np.maximum(at.full_recompute, recomputed.first)
        each = (
            least_step_seconds(self.module, items, self.own.machine),
            self.first_stage_seconds(replace(items.mean, full_recompute=first_stage)),
            self.pipeline_seconds(at),
        )
        even = np.asarray(np.max(np.broadcast_arrays(*each), axis=0))
        if not self.uneven:
            return even
        mean = np.maximum(least_busy_seconds(self.module, items.mean, self.own.machine), self.path_seconds(at))
        return np.asarray(np.where(np.asarray(at.pp) > 1, mean, even))

    def pipeline_seconds(self, at: LayoutColumns) -> Floats:
        """Seconds in which single micro-batches go through all stages at least, (layouts,), and these with what the
        first stage does meanwhile.
        """
        path = self.path_seconds(at)
        if self.uneven:
            return path
        trained = self.own.trained
        sizes = SequenceSizes(float(min(trained.sizes)), float(max(trained.sizes)))
        few, most = self.in_few_micro_batches(at), replace(at, micro_batch=fewest_samples(trained, at), alike={})
        each = few_micro_batches_seconds(self.module, few, most.micro_batches, sizes, self.own.machine)
        return np.asarray(np.maximum(path, each))

    def path_seconds(self, at: LayoutColumns) -> Floats:
        """Seconds in which a micro-batch of the longest sequence alone, and one of mean tokens, pass all stages at
        least, (layouts,): whichever takes longer.
        """
        trained, machine = self.own.trained, self.own.machine
        longest = replace(at, seq=float(max(trained.sizes)), batch=at.pipelines, micro_batch=1.0)
        mean = replace(at, micro_batch=fewest_samples(trained, at), alike={})
        each = (least_path_seconds(trained.module, longest, machine), least_path_seconds(self.module, mean, machine))
        return np.asarray(np.maximum(*each))

    def first_stage_seconds(self, at: LayoutColumns) -> Floats:
        """What the mean rank of the first stage computes at least, (layouts,), for the other modules on it, too."""
        count = np.asarray(at.ranks / at.pp, dtype=float)
        beside = sum(work.area(count) / count for work in self.others.on_first_stage)
        return np.asarray(least_first_stage_seconds(self.module, at, self.own.machine) + beside)


def least_in_orders(
    seconds_of: Callable[[LayoutColumns], Floats], at: LayoutColumns, orders: Sequence[OrderChoice]
) -> Floats:
    """Seconds of layouts, (layouts,), in the order of ranks in which each is least."""
    seconds = np.full(np.shape(at.tp), np.inf)
    for choice in orders:
        if choice.tried.any():
            some = replace(columns_where(at, choice.tried), rank_order=choice.rank_order)
            seconds[choice.tried] = np.minimum(seconds[choice.tried], seconds_of(some))
    return seconds
