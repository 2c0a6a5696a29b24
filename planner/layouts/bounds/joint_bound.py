"""A lower bound on the step of every plan of several modules: any layouts, ranks and assignments.

Let the samples' module have a layout on n of N ranks, and each other module e be on n_e ranks, which may be the same
ones. Passes of the others only add to what the first waits for, so for every layout of it

    T ≥ its own bound, as far as that holds for every assignment of samples (costs/step/least_step.py), if its stages
        are as even as they can be
    T ≥ one micro-batch through all of its stages and back: of the longest sequence alone, or of mean tokens
    T ≥ A_e(n_e) / n_e                      the ranks of e do its work
    T ≥ (n · busy + Σ_e A_e(n_e)) / N       all ranks together do all of it

busy   Seconds in which the mean rank of the samples' module computes: fill and drain of its pipeline, and exchanges
       beside compute, are left out, since others may compute meanwhile. Where software runs passes of others beside
       those of the samples' module (`orders: any`), what they compute while these exchange takes 1 − w less, w being
       the share that is waited for all the same (costs/side_by_side.py).
A_e    Ranks' seconds of the work of e: passes over all its items in one micro-batch on one rank, with what the slowest
       of n_e ranks adds; each trained parameter updated once; and the framework's constant of a step on each rank.
       More replicas, stages or micro-batches repeat constants, and degrees add exchanges.

A_e rises with n_e and A_e(n_e)/n_e falls. So with t one of the latter, the others have the fewest ranks on which they
end by t, and a layout's bound is the least over t of max(own, t, (n·busy + Σ A_e)/N). The bound over the space is the
least over layouts of the samples' module on any number of ranks, whatever memory they need.

The first micro-batch of a pipeline, and its last, may be the shortest sample alone. A layout with b samples in a
micro-batch stands for all plans whose micro-batches have more than the next smaller number in the mean, and b at most:
as few micro-batches as b gives take time, and the mean of as many as the smaller number gives goes through all stages.
Samples that are packed to limits may all be in one. Where what layers recompute is open, a layout without stands for
all; of stages with any numbers of layers the work of the mean rank alone counts.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from planner.costs import (
    LayoutColumns,
    MachineModel,
    columns_where,
    distinct_values,
    joined_by_kind,
    parameter_update_seconds,
)
from planner.costs.step import least_busy_seconds, least_exchange_seconds, least_path_seconds
from planner.layouts.bounds.space_bound import least_seconds_of, module_in_bounds
from planner.layouts.screening.layout_screening import Floats
from planner.layouts.space.joint_problem import JointProblem
from planner.layouts.space.launchable_layouts import layouts_of
from planner.layouts.space.layout_batches import column_batches
from planner.layouts.space.layout_fields import TrainingSetup
from planner.layouts.space.layout_problem import LayoutProblem
from planner.layouts.space.layout_space import LayoutSpace
from planner.layouts.space.rank_orders import order_choices
from planner.specs.base import with_fields

FIRST = (128, 2048)  # layouts that are bounded first, those of whose work is least


@dataclass(frozen=True, slots=True)
class ModuleWork:
    """The work of one of the other modules."""

    seconds: float  # ranks' seconds of its passes and its update
    machine: MachineModel

    def area(self, counts: Floats) -> Floats:
        """Ranks' seconds at least, on so many ranks."""
        return np.asarray(self.seconds * (1.0 + self.machine.jitter(counts)))


@dataclass(frozen=True, slots=True)
class OtherWork:
    """The work of the other modules, by seconds t in which each of them ends: rising t."""

    ends: Floats  # (t,)
    area: Floats  # ranks' seconds of all modules together, on the fewest ranks on which each ends by t, (t,)
    ranks: int  # of all modules

    def least_seconds(self, own: Floats, busy: Floats) -> Floats:
        """The least step, (layouts,), beside a module whose own step takes `own` seconds at least, and in which the
        mean of all ranks computes for it `busy` seconds.
        """
        shares = self.area / self.ranks
        first = np.searchsorted(self.ends - shares, busy)  # from here on, t is more than what all ranks do
        last, before = np.minimum(first, len(self.ends) - 1), np.maximum(first - 1, 0)
        each = [np.maximum(self.ends[at], busy + shares[at]) for at in (last, before)]
        return np.asarray(np.maximum(own, np.minimum(*each)))


def joint_bound(problem: JointProblem) -> float:
    """Seconds that no plan of these modules can beat; infinite where none of the samples' module has a layout."""
    others, work, least = other_work(problem), problem.least_pass_seconds(problem.module), np.inf
    most, *fewer = reversed(problem.counts(problem.module))
    for counts in ([most], fewer):
        able = [problem.on_ranks(count) for count in counts if work / count < least]  # others cannot do it sooner
        for at in joined_by_kind(each for own in able for each in columns_in_orders(own, problem.uneven)):
            least = least_of(problem, at, others, least)
    return float(least)


def other_work(problem: JointProblem) -> OtherWork:
    """What all modules but the samples' do at least."""
    ends, areas = [], []
    for name in problem.others:
        counts = np.array(problem.counts(name), dtype=float)
        areas.append(module_work(problem, name).area(counts))
        ends.append(areas[-1] / counts)
    start = max((float(each.min()) for each in ends), default=0.0)
    every = np.unique(np.concatenate([[start], *ends]))
    every = every[every >= start]
    total = np.zeros(len(every))
    for end, area in zip(ends, areas, strict=True):
        total += [float(area[end <= t].min()) for t in every]
    return OtherWork(every, total, problem.cluster.size)


def module_work(problem: JointProblem, name: str) -> ModuleWork:
    """What one of them does at least."""
    machine, updated = problem.own.machine, problem.updated(name)
    on_device = parameter_update_seconds(LayoutColumns(ranks=1, seq=1, batch=1), machine)  # of each parameter
    seconds = problem.least_pass_seconds(name) + updated * on_device
    return ModuleWork(seconds, machine)


def least_of(problem: JointProblem, at: LayoutColumns, others: OtherWork, least: float) -> float:
    """The least bound of these layouts of the samples' module that is below `least`, else this."""
    own, share = problem.own, np.asarray(at.ranks / others.ranks) + np.zeros(np.shape(at.tp))
    mean = in_few_micro_batches(own.trained, at) if problem.packs else at
    module = module_in_bounds(own.trained)
    alone = np.asarray(least_busy_seconds(module, mean, own.machine))
    busy = share * alone
    if problem.hides:
        exchanged = share * np.asarray(least_exchange_seconds(module, mean, own.machine))
        most = others.area.max(initial=0.0) / others.ranks
        busy = busy - (1.0 - own.machine.timing.overlapped) * np.minimum(exchanged, most)
    seconds = others.least_seconds(alone, busy)
    for part in np.split(np.argsort(seconds, kind="stable"), FIRST):
        part = part[seconds[part] < least]
        if len(part):
            step = np.maximum(alone[part], path_seconds(own, columns_where(at, part)))
            if not problem.uneven:
                step = np.maximum(step, least_seconds_of(own, columns_where(mean, part)))
            least = min(least, float(others.least_seconds(step, busy[part]).min()))
    return least


def columns_in_orders(own: LayoutProblem, uneven: bool) -> Iterator[LayoutColumns]:
    """Yield the layouts in each order of ranks that they are tried in; where the job names ranges of layers to
    recompute, with those in full alone, and of pipelines, of which stages may have none, without.
    """
    found = representatives(own, uneven)
    orders = order_choices(own, found)
    for places, at in column_batches(own.trained, found):
        at = replace(at, dispatch=own.dispatches)
        if isinstance(own.trained.fixed.recompute, dict):
            full = np.where(np.asarray(at.pp) > 1, 0.0, at.full_recompute)
            at = replace(at, full_recompute=full, recomputed_parts=frozenset())
        for choice in orders:
            if choice.tried[places].any():
                yield replace(columns_where(at, choice.tried[places]), rank_order=choice.rank_order)


def representatives(own: LayoutProblem, uneven: bool) -> LayoutSpace:
    """The layouts that stand for all. Where what layers recompute is open, those without recomputation; where stages
    may be `uneven`, so that the mean rank alone counts, one number of chunks of each, and no copies of shards.
    """
    fixed = own.trained.fixed
    if fixed.recompute is None and {"none", "full"} <= {*own.knobs.recompute}:
        fixed = with_fields(fixed, recompute="none")
    found = layouts_of(own, with_fields(fixed, replica=fixed.replica or 1) if uneven else fixed)
    if not uneven or not len(found["tp"]):
        return found
    first, _ = distinct_values([column for name, column in found.items() if name != "vpp"])
    return {name: column[first] for name, column in found.items()}


def in_few_micro_batches(trained: TrainingSetup, at: LayoutColumns) -> LayoutColumns:
    """The layouts of packed samples: those with the largest micro-batch of the space stand for larger ones, too."""
    largest = 2.0 * at.micro_batch * at.pipelines > trained.mean_sequences
    return replace(at, micro_batch=np.where(largest, trained.mean_sequences, at.micro_batch), alike={})


def path_seconds(own: LayoutProblem, at: LayoutColumns) -> Floats:
    """Seconds in which a micro-batch of the longest sequence alone, and one of mean tokens, pass all stages at
    least, (layouts,): whichever takes longer.
    """
    trained, machine = own.trained, own.machine
    longest = replace(at, seq=float(max(trained.sizes)), batch=at.pipelines, micro_batch=1.0)
    mean = replace(at, micro_batch=fewest_samples(trained, at), alike={})
    each = (
        least_path_seconds(trained.module, longest, machine),
        least_path_seconds(module_in_bounds(trained), mean, machine),
    )
    return np.asarray(np.maximum(*each))


def fewest_samples(trained: TrainingSetup, at: LayoutColumns) -> Floats:
    """Samples of the mean micro-batch of plans that a layout stands for, at least, as sequences of mean length."""
    samples = np.rint(np.asarray(at.micro_batch) / trained.mean_share)
    fewer = np.where(samples > 2.0, samples * 2.0 / 3.0, 1.0)
    return np.asarray(fewer * trained.mean_share)
