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
"""

import numpy as np

from planner.costs import LayoutColumns, parameter_update_seconds
from planner.layouts.beside_others import LayoutsBesideOthers, ModuleWork, OtherWork
from planner.layouts.joint_problem import JointProblem
from planner.layouts.space_bound import SpaceBound
from planner.specs.base import FirstStage
from planner.units import MS


def joint_bound(problem: JointProblem) -> SpaceBound:
    """The bound over all plans of these modules; infinite seconds where nothing fits. Layouts that cannot be quicker
    than another are not held against memory, and not counted as excluded.
    """
    others, work = other_work(problem), problem.least_pass_seconds(problem.module)
    found = SpaceBound(np.inf, 0, 0)
    for count in reversed(problem.counts(problem.module)):
        if work / count >= found.seconds:  # fewer ranks cannot do it sooner
            break
        own = LayoutsBesideOthers(problem.on_ranks(count), others, problem.packs, problem.pack_tokens, problem.uneven)
        found = own.bound(found)
    return found


def other_work(problem: JointProblem) -> OtherWork:
    """What all modules but the samples' do at least."""
    works = {name: module_work(problem, name) for name in problem.others}
    ends, areas = [], []
    for name, work in works.items():
        counts = np.array(problem.counts(name), dtype=float)
        areas.append(work.area(counts))
        ends.append(areas[-1] / counts)
    start = max((float(each.min()) for each in ends), default=0.0)
    every = np.unique(np.concatenate([[start], *ends]))
    every = every[every >= start]
    total = np.zeros(len(every))
    for end, area in zip(ends, areas, strict=True):
        total += [float(area[end <= t].min()) for t in every]
    beside = tuple(works[name] for name in problem.others if isinstance(problem.fixed[name].ranks, FirstStage))
    return OtherWork(every, total, problem.cluster.size, beside)


def module_work(problem: JointProblem, name: str) -> ModuleWork:
    """What one of them does at least."""
    machine, updated = problem.own.machine, problem.updated(name)
    on_device = parameter_update_seconds(LayoutColumns(ranks=1, seq=1, batch=1), machine)  # of each parameter
    seconds = problem.least_pass_seconds(name) + updated * on_device
    constant = problem.prices.timing.step_ms * MS if updated else 0.0
    return ModuleWork(seconds, constant, problem.flows[name].trains_layers, machine)
