"""Micro-batches that some rank of a pipeline has to hold, however samples are assigned.

One micro-batch is as large as the mean at least, and each stage holds all of it when its backward begins; under GPipe
all are held at once. How many a stage holds beside it is not said by its schedule: where a replica has no samples in a
micro-batch of others, nothing of its own is in flight then. But it takes time (Little's law, of any schedule): let the
micro-batches r of a replica have t_r tokens, and take p_r seconds through all stages and back. A stage keeps each from
the start of its forward to the end of its backward, a share w of p_r at least, as others are in between. In a step of
T seconds it therefore holds, at some time, the mean over time at least:

    M ≥ Σ_r t_r · w · p_r / T

Where passes are linear in tokens and token pairs, p is no less than with the shortest samples alone, a convex function
of tokens, and so is Σ t·p of micro-batches and their tokens: of all replicas some holds as much as one with mean tokens
in mean micro-batches, as many as there may be.
"""

from dataclasses import replace

import numpy as np

from planner.costs import LayoutColumns, MachineModel, Number
from planner.costs.memory import layers_before
from planner.costs.step import least_kept_seconds
from planner.layouts.layout_fields import TrainingSetup
from planner.layouts.layout_screening import Floats
from planner.specs.layers import Module, kind_counts

MANY = 1e3


def held_micro_batches(trained: TrainingSetup, at: LayoutColumns) -> tuple[LayoutColumns, ...]:
    """The layouts with micro-batches that some rank has to hold at a backward, whatever the assignment: the longest
    sample alone; and a mean one, or under GPipe all.
    """
    longest = replace(at, seq=float(max(trained.sizes)), micro_batch=1.0, batch=at.pipelines)
    few = fewest_samples(trained, at)
    if at.schedule == "gpipe":  # all at once, and no backward
        return longest, replace(at, batch=trained.mean_sequences, micro_batch=few / MANY, alike={})
    return longest, replace(at, batch=at.pipelines * few, micro_batch=few, alike={})


def held_in_seconds(trained: TrainingSetup, at: LayoutColumns, machine: MachineModel, seconds: Floats) -> LayoutColumns:
    """The layouts with one micro-batch: of all as much as a stage holds at some time that keeps each for as long as it
    takes through all stages, if a step takes no more than these seconds.
    """
    shortest, few = float(min(trained.sizes)), fewest_samples(trained, at)
    one = replace(at, seq=shortest, micro_batch=few * trained.mean_tokens / shortest, alike={})
    through = np.asarray(least_kept_seconds(trained.module, one, machine))
    of_replica = trained.mean_sequences / at.pipelines
    held = np.maximum(few / MANY, of_replica * np.minimum(1.0, through / seconds))
    return replace(at, batch=at.pipelines * held, micro_batch=held, alike={})


def kept_share(module: Module, at: LayoutColumns, stage: int) -> Number:
    """The share of a micro-batch's time through all stages for which a stage keeps it, in the mean of its layers. Where
    layers differ, of those in front of all others alone.
    """
    pp, vpp = np.asarray(at.pp), np.asarray(at.vpp)
    rank = np.clip(pp + stage if stage < 0 else stage, 0, pp - 1)
    uniform = len(kind_counts(module)) == 1
    kept, held = np.zeros(np.broadcast(pp, vpp).shape), np.zeros(np.broadcast(pp, vpp).shape)
    for chunk in range(int(np.max(vpp))):
        place = chunk * pp + rank
        before, behind = (layers_before(module.layers, at, each) for each in (place, place + 1.0))
        share = 1.0 - np.maximum(before / module.layers, place / (pp * vpp))
        own = np.where(chunk < vpp, behind - before, 0.0)
        kept = kept + own * (share if uniform else np.where(place == 0, 1.0, 0.0))
        held = held + own
    return kept / np.maximum(1.0, held)


def fewest_samples(trained: TrainingSetup, at: LayoutColumns) -> Floats:
    """Samples of the mean micro-batch of plans that a layout stands for, at least, as sequences of mean length."""
    samples = np.rint(np.asarray(at.micro_batch) / trained.mean_share)
    fewer = np.where(samples > 2.0, samples * 2.0 / 3.0, 1.0)
    return np.asarray(fewer * trained.mean_share)
