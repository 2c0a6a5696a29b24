"""A lower bound on the simulated step of a static layout, for any number of layouts at once.

Let W be the passes of a pipeline rank. In every schedule whose ranks take micro-batches in the same sequence (1F1B,
GPipe, interleaving), for every rank of the pipeline:

    T ≥ fill + W + drain + exchange + update

fill      Forward of the first micro-batch through all chunks in front of the rank's first, and their sends: the rank
          can run nothing before.
W         Of some replica at least the mean of all. A pass is a sum of terms linear in tokens and token pairs, of
          constants, and of norms and maxima of these, so that it takes at least as long on mean micro-batches; and it
          is least where each has as many sequences as a micro-batch may have.
drain     Backward of the last micro-batch through the same chunks, behind the rank's last pass.
exchange  What the first stage's replicas exchange once a step, and its update, which waits for that, follow its last
          backward. So much compute as its own may hide the exchange.

Under ZeRO-3 each micro-batch's parameters are gathered and its gradients reduced (costs/step/least_exchange.py), which
adds to W. Where weight gradients run whenever a stage waits (zero bubble), the drain does not count, and what follows
only on the first rank's own passes.
"""

from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from planner.costs.distinct_columns import on_distinct
from planner.costs.layout_columns import LayoutColumns, Number
from planner.costs.machine_model import MachineModel
from planner.costs.memory.model_states import layers_before
from planner.costs.network.layer_traffic import stage_send_seconds
from planner.costs.network.mesh_groups import stage_stride
from planner.costs.network_model import CommGroup
from planner.costs.step.least_exchange import (
    behind_first_rank,
    gathered_seconds,
    least_update_seconds,
)
from planner.costs.step.stage_seconds import (
    MicroBatchSeconds,
    head_seconds,
    mean_layer_seconds,
    weight_gradient_share,
)
from planner.costs.step.static_step import send_fields
from planner.specs.layers import Module
from planner.specs.parallelism import ZERO_BUBBLE
from planner.units import MS

LAST_RANKS = 4  # pipeline ranks from the last on that are tried: late ones wait longest, and one has most layers
WHOLE = 1e-6  # of a layer
CHUNK_FIELDS = ("pp", "vpp")


class StepItems(NamedTuple):
    """The micro-batches of a step: the mean one; and no more than the first of a pipeline has, and the last."""

    mean: LayoutColumns
    first: LayoutColumns
    last: LayoutColumns

    @property
    def equal(self) -> bool:
        """Whether they are all the same."""
        return self.first is self.mean


class RankLayers(NamedTuple):
    """Layers on a pipeline rank, those in front of its first chunk, and those on the first rank."""

    held: Number
    before: Number
    on_first: Number

    def recomputed(self, at: LayoutColumns) -> Number:
        """Layers that each rank recomputes in full, as far as it has so many: a whole number on the first, or less."""
        count = np.asarray(at.full_recompute * self.on_first)
        return np.where(np.abs(count - np.rint(count)) < WHOLE, np.rint(count), count)


def least_step_seconds(module: Module, items: StepItems, machine: MachineModel) -> Number:
    """Seconds that the simulated step of a layout takes at least, (layouts,)."""
    at = items.mean
    pause, head = machine.timing.micro_batch_ms * MS, head_seconds(module, at, machine).seconds
    gathered = gathered_seconds(module, at, items.equal, machine)
    busy: Number = 0.0
    for back in range(min(LAST_RANKS, int(np.max(at.pp)))):
        layers = on_distinct(at, CHUNK_FIELDS, partial(rank_layers, module, back))
        share = np.minimum(1.0, layers.recomputed(at) / np.maximum(1.0, layers.held))
        layer = least_layer_seconds(module, replace(at, full_recompute=share), machine)
        work = at.micro_batches * (layer.seconds * layers.held + (head if back == 0 else 0.0) + 2.0 * pause)
        if back == 0:
            work = work + gathered
        busy = np.maximum(busy, work + around_rank_seconds(module, items, machine, layers, back))
    behind = behind_first_rank(module, at, items.equal, machine, np.maximum(1.0, layers.on_first))
    if at.schedule in ZERO_BUBBLE:  # other ranks may end behind the first
        passes = at.micro_batches * (least_layer_seconds(module, at, machine).seconds * layers.on_first + 2.0 * pause)
        busy = np.maximum(busy, passes + behind)
    else:
        busy = busy + behind
    return busy * (1.0 + machine.jitter(at.ranks)) + machine.timing.step_ms * MS


def least_busy_seconds(module: Module, at: LayoutColumns, machine: MachineModel) -> Number:
    """Seconds in which the mean rank of a layout computes at least, (layouts,): passes of mean micro-batches with what
    they exchange, and the update, without what they wait for.
    """
    passes = at.micro_batches * path_seconds(module, at, machine) / at.pp
    jitter = 1.0 + machine.jitter(at.ranks)
    return (passes + least_update_seconds(module, at, machine)) * jitter + machine.timing.step_ms * MS


def least_exchange_seconds(module: Module, at: LayoutColumns, machine: MachineModel) -> Number:
    """Of `least_busy_seconds`, those in which passes exchange, and wait for it, (layouts,)."""
    found = whole_pass(module, at, machine)
    exchanged = found.seconds - found.forward.compute - found.backward.compute
    return at.micro_batches * exchanged / at.pp * (1.0 + machine.jitter(at.ranks))


def least_path_seconds(module: Module, at: LayoutColumns, machine: MachineModel) -> Number:
    """Seconds of a step at least in which one micro-batch goes through all stages and back, (layouts,): in whatever
    chunks; where weight gradients may wait, without these.
    """
    path = path_seconds(module, at, machine)
    if at.schedule in ZERO_BUBBLE:
        path = path * (1.0 - weight_gradient_share(module, at, machine))
    return path * (1.0 + machine.jitter(at.ranks)) + machine.timing.step_ms * MS


def path_seconds(module: Module, at: LayoutColumns, machine: MachineModel) -> Number:
    """Seconds of the passes of one micro-batch through all stages at least, with as many layers recomputed on each as
    on the smallest.
    """
    return whole_pass(module, at, machine).seconds + 2.0 * machine.timing.micro_batch_ms * MS * at.pp


def whole_pass(module: Module, at: LayoutColumns, machine: MachineModel) -> MicroBatchSeconds:
    """The passes of one micro-batch through all layers and the head at least, by cause."""
    layers = on_distinct(at, CHUNK_FIELDS, partial(rank_layers, module, 0))
    smallest = np.floor(module.layers / (at.pp * at.vpp)) * at.vpp  # of any rank
    share = np.minimum(layers.recomputed(at), smallest) * at.pp / module.layers
    share = np.where(np.asarray(at.full_recompute) >= 1.0, 1.0, np.minimum(1.0, share))
    layer = least_layer_seconds(module, replace(at, full_recompute=share), machine)
    return layer * module.layers + head_seconds(module, at, machine)


def least_layer_seconds(module: Module, at: LayoutColumns, machine: MachineModel) -> MicroBatchSeconds:
    """Seconds of one layer in the mean of all. Where attention has windows, without the exchange of cp around a ring:
    how much these hide of it is simulated for one length.
    """
    found = mean_layer_seconds(module, at, machine)
    if all(module.window_of(layer) is None for layer in range(module.layers)):
        return found
    ring = np.asarray(at.ring) > 1
    return MicroBatchSeconds(
        *(replace(each, cp=np.where(ring, 0.0, each.cp)) for each in (found.forward, found.backward))
    )


def rank_layers(module: Module, back: int, at: LayoutColumns) -> RankLayers:
    """The layers of the pipeline rank that is `back` from the last; of the first where there are fewer ranks."""
    rank = np.maximum(0.0, at.pp - 1.0 - back)
    before = layers_before(module.layers, at, rank)
    dims = np.broadcast(at.pp, at.vpp).ndim
    chunk = np.arange(float(np.max(at.vpp))).reshape(-1, *(1,) * dims)
    own, first, there = chunk * at.pp + rank, chunk * at.pp, chunk < np.asarray(at.vpp)
    held, on_first = (np.where(there, chunk_size(module, at, each), 0.0).sum(axis=0) for each in (own, first))
    return RankLayers(held, before, on_first)


def chunk_size(module: Module, at: LayoutColumns, chunk: Number) -> Number:
    """Layers of a chunk."""
    return layers_before(module.layers, at, chunk + 1.0) - layers_before(module.layers, at, chunk)


def around_rank_seconds(
    module: Module, items: StepItems, machine: MachineModel, layers: RankLayers, back: int
) -> Number:
    """Seconds of the first micro-batch's forward and the last one's backward in front of a rank, through one chunk of
    each of these stages.
    """
    at = items.mean
    stages = np.maximum(0.0, at.pp - 1.0 - back)
    smallest = np.floor(module.layers / (at.pp * at.vpp))
    recomputed = stages * np.minimum(smallest, np.floor(layers.recomputed(at) / at.vpp))
    share = np.minimum(1.0, recomputed / np.maximum(1.0, layers.before))
    first = least_layer_seconds(module, items.first, machine).forward.seconds
    last = least_layer_seconds(module, replace(items.last, full_recompute=share), machine).backward.seconds
    sends = (
        on_distinct(each, send_fields(each), lambda some: nearest_send_seconds(module, some, machine))
        for each in (items.first, items.last)
    )
    pause, (there, back_again) = machine.timing.micro_batch_ms * MS / at.vpp, sends
    fill = first * layers.before + (pause + there) * stages
    drain = last * layers.before + (pause + back_again) * stages
    return fill + (0.0 if at.schedule in ZERO_BUBBLE else drain)


def nearest_send_seconds(module: Module, at: LayoutColumns, machine: MachineModel) -> Number:
    """Seconds of a send to the next stage, over the nearest link that may join ranks a stage apart."""
    return stage_send_seconds(module, at, machine, CommGroup(2, 1, stage_stride(at) + 1.0))
