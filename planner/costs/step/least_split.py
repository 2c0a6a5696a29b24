"""What a step takes at least by how many layers each pipeline rank has, whatever layers these are.

Of p ranks let rank s have n_s layers, B_s in front of its first chunk, and S be all passes of one micro-batch. A layer
takes f forward and t in both passes, and m micro-batches come. Under 1F1B rank s waits for the first micro-batch to go
to the last rank and back, beside the forwards of at most p − 1 − s others (costs/step/stage_seconds.py):

    T ≥ S + (m − 1)·t_s − min(p − 1 − s, m − 1)·f_s

GPipe has the same without the forwards. Of other schedules, and of unequal micro-batches, the fill and drain in front
of a rank count, with one layer a chunk where ranks have several:

    T ≥ (f + b)·B_s + m·t_s

All of these are straight lines in n_s and B_s, `LinesOfStages`. The first rank's exchange among replicas and its update
come behind them, and rise with its layers (`seconds_behind`).
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.costs.distinct_columns import on_distinct
from planner.costs.layout_columns import LayoutColumns, Number
from planner.costs.machine_model import MachineModel
from planner.costs.network.replica_exchange import (
    ReplicaExchange,
    exchange_fields,
    exchange_of,
    parameter_update_seconds,
    replicated_in_layers,
    replicated_on_stage,
    shards_seconds,
    updated_parameters,
)
from planner.costs.step.least_exchange import once_seconds
from planner.costs.step.least_step import StepItems, least_layer_seconds, nearest_send_seconds
from planner.costs.step.stage_seconds import MicroBatchSeconds, head_seconds
from planner.costs.step.static_step import send_fields
from planner.specs.layers import Module, kind_counts
from planner.specs.parallelism import ZERO_BUBBLE
from planner.units import MS

Floats = NDArray[np.float64]
LEAST_EACH = 1e-12  # seconds of a layer, of which single micro-batches have none beyond all passes of one


class LinesOfStages(NamedTuple):
    """Seconds of a step at least, but for what comes behind the first rank's passes: constant + before·B + each·n."""

    constant: Floats  # (ranks of the longest pipeline, layouts)
    before: Floats  # (layouts,)
    each: Floats  # (ranks of the longest pipeline, layouts)


def lines_of_stages(module: Module, items: StepItems, machine: MachineModel) -> LinesOfStages:
    """The lines of pipelines that agree in what they recompute."""
    at, pause = items.mean, machine.timing.micro_batch_ms * MS
    pp, vpp = (np.asarray(each) + np.zeros(np.shape(at.tp)) for each in (at.pp, at.vpp))
    rank = np.arange(float(pp.max()))[:, None]
    layer, head = least_layer_seconds(module, at, machine), head_seconds(module, at, machine).seconds
    t, last = layer.seconds + np.zeros(pp.shape), rank == pp - 1.0
    own = 2.0 * pause + np.where(last, head, 0.0)  # of a micro-batch besides its layers
    first, drained = (
        least_layer_seconds(module, each, machine) if each is not at else layer for each in (items.first, items.last)
    )
    there, back = (
        on_distinct(each, send_fields(each), lambda some: nearest_send_seconds(module, some, machine))
        for each in (items.first, items.last)
    )
    through = first.forward.seconds + (0.0 if at.schedule in ZERO_BUBBLE else drained.backward.seconds)
    waits = (pause / vpp + there) + (0.0 if at.schedule in ZERO_BUBBLE else pause / vpp + back)
    plain = (vpp == 1) & (at.schedule in ("1f1b", "gpipe")) & items.equal
    fill = rank * (waits + np.where(vpp > 1, through, 0.0))
    constant, each = fill + at.micro_batches * own, np.broadcast_to(at.micro_batches * t, own.shape)
    before = np.where((vpp > 1) | plain, 0.0, through)
    if plain.any():
        hidden = np.minimum(pp - 1.0 - rank, at.micro_batches - 1.0) * (at.schedule != "gpipe")
        whole = t * module.layers + head + 2.0 * pause * pp + (there + back) * (pp - 1.0)
        alone = whole + (at.micro_batches - 1.0) * own - hidden * pause
        constant = np.where(plain, alone, constant)
        each = np.where(plain, (at.micro_batches - 1.0) * t - hidden * layer.forward.seconds, each)
    if items.equal and np.any(np.asarray(at.zero) >= 3) and not machine.accounting.keeps_gathered:
        turns = steady_turns(at, pp - 1.0 - rank) * (at.schedule == "1f1b")
        some = gathered_in_turn(module, at, machine, layer, turns)
        constant, each = constant + some.constant, each + some.each
    return LinesOfStages(constant, before, np.maximum(each, LEAST_EACH))


def gathered_in_turn(
    module: Module, at: LayoutColumns, machine: MachineModel, layer: MicroBatchSeconds, turns: Floats
) -> LinesOfStages:
    """What ZeRO-3's collectives add to passes that alternate between forward and backward, which they wait for each
    other with (costs/step/least_exchange.py): of n layers with x seconds of exchange and c of compute each, n·(x − w·c)
    + w·(c − pause) or more in each of so many turns.
    """
    found = behind_first_rank_by_layers(module, at, machine).exchange
    pause, window = machine.timing.micro_batch_ms * MS, machine.dp_window
    chunks, turns = np.asarray(at.vpp) > 1, turns * (np.asarray(at.zero) >= 3)
    constant: Number = 0.0
    each: Number = 0.0
    for exchanged, computed in (
        (found.gather, layer.forward.seconds),
        (found.backward_gather + found.reduce, layer.backward.seconds),
    ):
        longer, alone = exchanged - window * computed, window * (computed - pause)
        each = each + turns * np.maximum(0.0, longer)
        constant = (
            constant + np.where(longer > 0.0, np.where(chunks, np.minimum(0.0, alone * at.vpp), alone), 0.0) * turns
        )
    return LinesOfStages(np.asarray(constant), np.zeros(turns.shape[-1:]), np.asarray(each))


def steady_turns(at: LayoutColumns, later: Floats) -> Floats:
    """How often forward and backward alternate on ranks in front of `later` others: but for the warm-up, of as many
    forwards; of interleaving no more than those of pp + 2·later micro-batches.
    """
    turns = np.where(np.asarray(at.vpp) > 1, at.micro_batches - at.pp - 2.0 * later, at.micro_batches - later) - 1.0
    return np.asarray(np.maximum(0.0, turns))


class Behind(NamedTuple):
    """What follows the first rank's last backward: of its layers, by one of them, and of what is outside them."""

    exchange: ReplicaExchange
    exchange_outside: ReplicaExchange
    updated: Number  # parameters
    updated_outside: Number
    constant: Number


def behind_first_rank_by_layers(module: Module, at: LayoutColumns, machine: MachineModel) -> Behind:
    """What follows the first rank's last backward, of the kind of layer that takes least."""
    found: Behind = on_distinct(at, exchange_fields(at), distinct_behind, module, machine)
    return found


def distinct_behind(at: LayoutColumns, module: Module, machine: MachineModel) -> Behind:
    """What follows the first rank's last backward, of layouts that all differ in their exchange."""
    per_node = machine.network.per_node
    kinds = [replicated_in_layers(module, at, {kind: 1.0}, per_node) for kind in kind_counts(module)]
    each = [exchange_of(parts, at, machine) for parts in kinds]
    dense = replicated_on_stage(module, at, per_node)[0]._replace(calls=0.0)
    only = (dense._replace(count=dense.stay_gathered, trained=np.minimum(dense.trained, dense.stay_gathered)),)
    return Behind(
        ReplicaExchange(*(np.minimum.reduce(np.broadcast_arrays(*own)) for own in zip(*each, strict=True))),
        exchange_of(only, at, machine) if module.trained == "all" else ReplicaExchange(),
        np.minimum.reduce(np.broadcast_arrays(*(updated_parameters(parts, at) for parts in kinds))),
        updated_parameters(only, at) if module.trained == "all" else 0.0,
        shards_seconds(dense, at, machine.timing),
    )


def seconds_behind(module: Module, items: StepItems, machine: MachineModel, behind: Behind, layers: Number) -> Number:
    """Seconds behind the first rank's last backward at least, of so many layers; 0 where other ranks may end later."""
    at = items.mean
    if at.schedule in ZERO_BUBBLE:
        return np.zeros(np.shape(at.tp))
    pairs = zip(behind.exchange, behind.exchange_outside, strict=True)
    found = ReplicaExchange(*(layers * own + outside for own, outside in pairs))
    once = once_seconds(module, at, items.equal, machine, found, np.maximum(1.0, layers))
    count = behind.updated * layers + behind.updated_outside
    return once + count * parameter_update_seconds(at, machine) + behind.constant
