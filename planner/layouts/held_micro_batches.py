"""Micro-batches that some rank of a pipeline has to hold, however samples are assigned.

A pipeline's stage with f micro-batches in flight holds any f that follow each other, and the backward of the first of
these. Cut K of them into runs of f, in each of the f ways: runs and what is left over are at most (K + 2f − 1)/f, and
each is held, so that one of them has f/(K + 2f − 1) of all at least, and as much of its backward. With chunks, all but
the last of pp micro-batches are held when the last has its backward, and there are (K + pp − 1)/pp such groups at most.
Without its backward, the first stage holds more: one of the runs from the first micro-batch on, of which there are
(K + f − 1)/f at most, or such a group with its last micro-batch.

K is the mean of replicas, each of which has its micro-batches one after another: none in which others work, and it does
not, is between two of its own.
"""

from dataclasses import replace

import numpy as np

from planner.costs import LayoutColumns
from planner.layouts.layout_fields import TrainingSetup
from planner.layouts.layout_screening import Floats

MANY = 1e3


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


def held_by_first_stage(trained: TrainingSetup, at: LayoutColumns) -> LayoutColumns:
    """The layouts with micro-batches that the first stage of a pipeline holds at some backward, whatever that needs
    itself.
    """
    of_replica, pp, vpp = trained.mean_sequences / at.pipelines, np.asarray(at.pp), np.asarray(at.vpp)
    count = of_replica / fewest_samples(trained, at)  # micro-batches of a replica, at most
    if at.schedule == "gpipe":
        return replace(at, batch=trained.mean_sequences, micro_batch=of_replica / count, alike={})
    together = 2.0 * pp - 1.0 if at.schedule == "zb_h2" else pp
    counted = np.where(vpp > 1, ((vpp + 1.0) * pp - 1.0) / vpp, together)  # as in flight, of memory's formulas
    share = together / (count + together - 1.0)
    return replace(at, batch=MANY * at.batch, micro_batch=of_replica * share / counted, alike={})


def fewest_samples(trained: TrainingSetup, at: LayoutColumns) -> Floats:
    """Samples of the mean micro-batch of plans that a layout stands for, at least, as sequences of mean length."""
    samples = np.rint(np.asarray(at.micro_batch) / trained.mean_share)
    fewer = np.where(samples > 2.0, samples * 2.0 / 3.0, 1.0)
    return np.asarray(fewer * trained.mean_share)
