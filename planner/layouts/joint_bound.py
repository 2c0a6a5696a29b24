"""A lower bound on the step of every plan of several modules: any layouts, ranks and assignments.

Let the samples' module have a layout on n of N ranks, and each other module e be on n_e ranks, which may be the same
ones. Passes of the others only add to what the first waits for, so for every layout of it

    T ≥ its own bound, as far as that holds for every assignment of samples (costs/step/least_step.py)
    T ≥ A_e(n_e) / n_e                      the ranks of e do its work
    T ≥ (n · busy + Σ_e A_e(n_e)) / N       all ranks together do all of it

busy   Seconds in which the mean rank of the samples' module computes: fill and drain of its pipeline, and exchanges
       beside compute, are left out, since others may compute meanwhile.
A_e    Ranks' seconds of the work of e: passes over all its items in one micro-batch on one rank, with what the slowest
       of n_e ranks adds; each trained parameter updated once; and the framework's constant of a step on each rank.
       More replicas, stages or micro-batches repeat constants, and degrees add exchanges.

A_e rises with n_e and A_e(n_e)/n_e falls. So with t one of the latter, the others have the fewest ranks on which they
end by t, and a layout's bound is the least over t of max(own, t, (n·busy + Σ A_e)/N). The bound over the space is the
least over layouts of the samples' module, on any number of ranks, that fit without the others.

Own bounds hold for samples that are assigned in any way: the first micro-batch of a pipeline, and its last, may be the
shortest sample alone, or a micro-batch may have fewer samples than `micro_batch` says. Samples that are packed to
limits are in as few packs as these allow.
"""

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from planner.costs import LayoutColumns, parameter_update_seconds
from planner.costs.step import StepItems, least_busy_seconds, least_step_seconds
from planner.layouts.equivalent_window import with_equivalent_window
from planner.layouts.joint_problem import JointProblem, joint_problem
from planner.layouts.launchable_layouts import layouts_of
from planner.layouts.layout_fields import TrainingSetup
from planner.layouts.layout_problem import LayoutProblem
from planner.layouts.layout_screening import Floats
from planner.layouts.space_bound import BoundRules, SpaceBound, layout_bounds, space_bound
from planner.plan.pack_bound import fewest_by_resource
from planner.specs.inputs import Inputs
from planner.units import MS


def joint_space_bound(inputs: Inputs) -> SpaceBound:
    """The bound of a job; infinite seconds where nothing fits. Raises ValueError where a job has none
    (`unbounded_jointly`).
    """
    return joint_bound(joint_problem(inputs))


@dataclass(frozen=True, slots=True)
class OtherWork:
    """The work of the modules beside the samples', by seconds t in which each of them ends: rising t."""

    ends: Floats  # (t,)
    area: Floats  # ranks' seconds of all modules together, on the fewest ranks on which each ends by t, (t,)

    def least_seconds(self, own: Floats, busy: Floats, ranks: int) -> Floats:
        """The least step, (layouts,), where the samples' module takes `own` seconds at least, and `busy` seconds of
        all ranks in the mean.
        """
        shares = self.area / ranks
        first = np.searchsorted(self.ends - shares, busy)  # from here on, t counts
        last, before = np.minimum(first, len(self.ends) - 1), np.maximum(first - 1, 0)
        each = [np.maximum(self.ends[at], busy + shares[at]) for at in (last, before)]
        return np.asarray(np.maximum(own, np.minimum(*each)))


def joint_bound(problem: JointProblem) -> SpaceBound:
    """The bound over all plans of these modules; infinite seconds where nothing fits."""
    others, work = other_work(problem), problem.least_pass_seconds(problem.module)
    seconds, layouts, excluded = np.inf, 0, 0
    for count in reversed(problem.counts(problem.module)):
        if work / count >= seconds:  # fewer ranks cannot do it sooner
            break
        own = problem.on_ranks(count)
        bounds = layout_bounds(own, layouts_of(own, own.trained.fixed), rules_of(problem, others))
        found = space_bound(own, bounds)
        seconds = min(seconds, found.seconds)
        layouts, excluded = layouts + found.layouts, excluded + found.excluded
    return SpaceBound(float(seconds), layouts, excluded)


def other_work(problem: JointProblem) -> OtherWork:
    """What all modules but the samples' do at least."""
    machine = problem.own.machine
    on_device = parameter_update_seconds(LayoutColumns(ranks=1, seq=1, batch=1), machine)  # of each parameter
    ends, areas = [], []
    for name in problem.others:
        counts = np.array(problem.counts(name), dtype=float)
        update = problem.updated(name) * on_device
        area = (problem.least_pass_seconds(name) + update) * (1.0 + machine.jitter(counts))
        if problem.updated(name):
            each = counts if problem.flows[name].trains_layers else 1.0
            area = area + machine.timing.step_ms * MS * each
        ends.append(area / counts)
        areas.append(area)
    start = max((float(each.min()) for each in ends), default=0.0)
    every = np.unique(np.concatenate([[start], *ends]))
    every = every[every >= start]
    total = np.zeros(len(every))
    for end, area in zip(ends, areas, strict=True):
        total += [float(area[end <= t].min()) for t in every]
    return OtherWork(every, total)


def rules_of(problem: JointProblem, others: OtherWork) -> BoundRules:
    """How the layouts of the samples' module are bounded beside the others."""
    ranks = problem.cluster.size

    def seconds(own: LayoutProblem, at: LayoutColumns) -> Floats:
        packed = (
            in_fewest_packs(own.trained, at, problem.pack_tokens) if problem.packs else at_most_full(own.trained, at)
        )
        share = own.trained.ranks / ranks
        busy = share * least_busy_seconds(with_equivalent_window(own.trained), packed, own.machine)
        return others.least_seconds(own_seconds(own, packed), np.asarray(busy), ranks)

    return BoundRules(seconds, partial(held_micro_batches, problem.packs))


def own_seconds(problem: LayoutProblem, at: LayoutColumns) -> Floats:
    """Lower bounds of a step of the samples' module alone, (layouts,), for every assignment of samples."""
    trained, machine = problem.trained, problem.machine
    shortest = replace(at, seq=float(min(trained.sizes)), micro_batch=1.0)
    items = StepItems(at, shortest, replace(shortest))
    mean = least_step_seconds(with_equivalent_window(trained), items, machine)
    longest = replace(at, seq=float(max(trained.sizes)), batch=at.pipelines, micro_batch=1.0)
    alone = least_step_seconds(trained.module, StepItems(longest, replace(longest), shortest), machine)
    return np.asarray(np.maximum(mean, alone))


def at_most_full(trained: TrainingSetup, at: LayoutColumns) -> LayoutColumns:
    """The layouts, where those with the largest micro-batches of the space, powers of two, stand for larger ones."""
    if trained.fixed.micro_batch:
        return at
    largest = 2.0 * at.micro_batch * at.pipelines > trained.mean_sequences
    return replace(at, micro_batch=np.where(largest, trained.mean_sequences, at.micro_batch), alike={})


def in_fewest_packs(trained: TrainingSetup, at: LayoutColumns, most: int | None) -> LayoutColumns:
    """The layouts with as few micro-batches as packs of at most so many tokens on a rank can be."""
    ranks = np.asarray(at.tp * at.cp)
    sizes = np.array(trained.sizes, dtype=np.int64)
    packs = np.ones(ranks.shape)
    for count in np.unique(ranks) if most is not None else ():
        packs = np.where(ranks == count, fewest_by_resource(sizes, int(most * count)), packs)
    return replace(at, micro_batch=trained.mean_sequences / packs, alike={})


def held_micro_batches(packs: bool, trained: TrainingSetup, at: LayoutColumns) -> tuple[LayoutColumns, ...]:
    """The layouts with micro-batches that some rank has to hold, whatever the assignment: the longest sample alone; and
    half of the samples that a micro-batch may have, as plans with fewer in each are those of another layout.
    """
    longest = replace(at, seq=float(max(trained.sizes)), micro_batch=1.0, batch=at.pipelines)
    if packs or trained.fixed.micro_batch:
        return (longest,)
    half = np.maximum(trained.mean_share, at.micro_batch / 2.0)
    return longest, replace(at, batch=at.pipelines * half, micro_batch=half)
