"""The bound over the layouts of a module on some ranks, beside work of others on the same ranks or others.

What is cheap is bounded first: only layouts that leave room below the best one so far are held against memory, and only
those that fit have the bound of their own step.

Own bounds hold for samples that are assigned in any way: the first micro-batch of a pipeline, and its last, may be the
shortest sample alone, and a micro-batch may have fewer samples than its layout says. Samples that are packed to limits
are in as few packs as these allow.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from planner.costs import LayoutColumns, columns_where
from planner.costs.step import StepItems, least_busy_seconds, least_step_seconds
from planner.layouts.equivalent_window import with_equivalent_window
from planner.layouts.launchable_layouts import layouts_of
from planner.layouts.layout_batches import column_batches
from planner.layouts.layout_fields import TrainingSetup
from planner.layouts.layout_problem import LayoutProblem
from planner.layouts.layout_screening import Floats
from planner.layouts.optimizer_offload_bound import with_least_optimizer_offload
from planner.layouts.rank_orders import Mask, OrderChoice, order_choices, orders_of
from planner.layouts.solved_optimizer_offload import optimizer_offload_is_open
from planner.layouts.space_bound import SpaceBound, with_any_parts, with_least_memory
from planner.plan.pack_bound import fewest_by_resource
from planner.specs.base import with_fields


@dataclass(frozen=True, slots=True)
class OtherWork:
    """The work of the other modules, by seconds t in which each of them ends: rising t."""

    ends: Floats  # (t,)
    area: Floats  # ranks' seconds of all modules together, on the fewest ranks on which each ends by t, (t,)
    ranks: int  # of all modules

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

    def bound(self, known: SpaceBound) -> SpaceBound:
        """The bound over these layouts and those of a known one."""
        fixed, found = self.own.trained.fixed, layouts_of(self.own, self.own.trained.fixed)
        orders, seconds, excluded = order_choices(self.own, found), known.seconds, 0
        for places, at in column_batches(self.own.trained, found):
            at = self.in_few_micro_batches(replace(at, dispatch=self.own.dispatches))
            if fixed.recompute is None or isinstance(fixed.recompute, dict):
                at = replace(at, full_recompute=0.0)
            quick = self.shared_seconds(at, orders_of(orders, places, np.ones(len(places), np.bool_))) < seconds
            if quick.any():
                at, left = columns_where(at, quick), np.ones(int(quick.sum()), np.bool_)
                for least, fits in self.fitting(at):
                    for choice in orders_of(orders, places[quick], fits):
                        seconds = min(seconds, self.least_seconds(least, choice, fits, seconds))
                    left &= ~fits
                excluded += int(left.sum())
        return SpaceBound(seconds, known.layouts + len(found["tp"]), known.excluded + excluded)

    def fitting(self, at: LayoutColumns) -> Iterator[tuple[LayoutColumns, Mask]]:
        """The layouts with as little recomputed as may fit, and which of them fit; then, of those that recompute, the
        same with moments of the optimizer in host memory, where these may be.
        """
        problem, held = self.own, held_micro_batches(self.own.trained, at, self.packs)
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
        own = own_seconds(self.own, columns_where(some, below))
        return float(self.others.least_seconds(own, busy[below]).min())

    def busy(self, at: LayoutColumns) -> Floats:
        """Seconds that the mean of all ranks computes for this module, (layouts,)."""
        share = self.own.trained.ranks / self.others.ranks
        return np.asarray(share * least_busy_seconds(self.module, at, self.own.machine))

    def in_few_micro_batches(self, at: LayoutColumns) -> LayoutColumns:
        """The layouts, where samples are packed with as few micro-batches as packs can be."""
        if not self.packs:
            return at
        ranks, sizes = np.asarray(at.tp * at.cp), np.array(self.own.trained.sizes, dtype=np.int64)
        packs = np.ones(ranks.shape)
        for count in np.unique(ranks) if self.pack_tokens is not None else ():
            packs = np.where(ranks == count, fewest_by_resource(sizes, int(self.pack_tokens * count)), packs)
        return replace(at, micro_batch=self.own.trained.mean_sequences / packs, alike={})


def own_seconds(problem: LayoutProblem, at: LayoutColumns) -> Floats:
    """Lower bounds of a step of the samples' module alone, (layouts,), for every assignment of samples."""
    trained, machine = problem.trained, problem.machine
    shortest = replace(at, seq=float(min(trained.sizes)), micro_batch=1.0)
    mean = least_step_seconds(with_equivalent_window(trained), StepItems(at, shortest, shortest), machine)
    longest = replace(at, seq=float(max(trained.sizes)), batch=at.pipelines, micro_batch=1.0)
    alone = least_step_seconds(trained.module, StepItems(longest, replace(longest), shortest), machine)
    return np.asarray(np.maximum(mean, alone))


def held_micro_batches(trained: TrainingSetup, at: LayoutColumns, packs: bool) -> tuple[LayoutColumns, ...]:
    """The layouts with micro-batches that some rank has to hold, whatever the assignment: the longest sample alone; and
    half of the samples that a micro-batch may have, as plans with fewer in each are those of another layout.
    """
    longest = replace(at, seq=float(max(trained.sizes)), micro_batch=1.0, batch=at.pipelines)
    if packs or trained.fixed.micro_batch:
        return (longest,)
    half = np.maximum(trained.mean_share, at.micro_batch / 2.0)
    return longest, replace(at, batch=at.pipelines * half, micro_batch=half)
