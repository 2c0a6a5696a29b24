"""The least that replicas' exchange adds to a simulated step: once a step behind it, or in turn with the passes.

Under ZeRO-3 a stage's collectives run one after another, in the order of its slots: the gather of a forward, the
reduction of a backward. Without a pipeline gather, forward, backward, reduction and the next gather therefore wait for
each other in turn, and every exposed part adds to the step.

On the last rank of a pipeline, 1F1B and interleaving alternate between forward and backward once it has warmed up:
B_k, F_n, B_{k+1}. The gather of F_n comes behind the reduction of B_k, which waits for B_k; F_n waits for its gather,
and B_{k+1} comes behind F_n. So each such pair of collectives adds to the rank's passes: all but those of the warm-up,
the first, and those behind the last forward. The smallest chunk's count for all: of ℓ layers with x seconds of exchange
each, beside c seconds of compute each and a constant p, max(x, ℓ·x − w·(c·ℓ + p)·(1 − 1/ℓ)) is exposed, which does not
fall in ℓ: where the second term is larger, x ≥ w·(c + p/ℓ), and its slope x − w·c − w·p/ℓ² is no less than 0.

Where micro-batches are unequal, a collective hides behind the longest pass of any replica: none counts in turn, and of
those once a step only what has no compute beside it, one layer of ℓ.
"""

from collections.abc import Sequence

import numpy as np

from planner.costs.distinct_columns import on_distinct
from planner.costs.layout_columns import LayoutColumns, Number
from planner.costs.machine_model import MachineModel
from planner.costs.network.replica_exchange import (
    ReplicaExchange,
    exchange_fields,
    exchange_of,
    exposed_part,
    optimizer_seconds,
    parameter_update_seconds,
    replicated_in_layers,
    stage_exchange,
    updated_parameters,
)
from planner.costs.step.stage_seconds import mean_layer_seconds
from planner.specs.layers import Module, kind_counts
from planner.units import MS

ANY_LENGTH = 1e30  # seconds of compute that hide all that can be hidden
ROUNDING = 1e-9  # of a micro-batch


def gathered_seconds(module: Module, at: LayoutColumns, equal: bool, machine: MachineModel) -> Number:
    """Seconds that ZeRO-3's collectives of a step add to the passes of the last pipeline rank, (layouts,); 0 below
    ZeRO-3, and where micro-batches are not equal.
    """
    if not equal or not np.any(np.asarray(at.zero) >= 3):
        return 0.0
    whole = on_distinct(at, exchange_fields(at), lambda some: stage_exchange(module, some, machine))
    alone = at.micro_batches * in_turn_seconds(module, at, machine, whole, module.layers)
    smallest = np.maximum(1.0, np.floor(module.layers / (at.pp * at.vpp)))
    chunk = on_distinct(at, exchange_fields(at), lambda some: chunk_exchange(module, some, machine))
    pair = in_turn_seconds(module, at, machine, chunk, smallest)
    count = np.floor(at.micro_batches + ROUNDING) * at.vpp * (not machine.accounting.keeps_gathered)
    warm_up = np.where(np.asarray(at.vpp) > 1, (at.vpp - 1.0) * at.pp, 0.0)
    turns = np.maximum(0.0, count - warm_up - 1.0) * (at.schedule in ("1f1b", "interleaved"))
    return np.where(np.asarray(at.zero) >= 3, np.where(np.asarray(at.pp) > 1, turns * pair, alone), 0.0)


def chunk_exchange(module: Module, at: LayoutColumns, machine: MachineModel) -> ReplicaExchange:
    """The collectives of the smallest chunk's layers, of the kinds that take least; its gathers stay."""
    per_node = machine.network.per_node
    kinds = [
        exchange_of(replicated_in_layers(module, at, {kind: 1.0}, per_node), at, machine)
        for kind in kind_counts(module)
    ]
    return ReplicaExchange(*(least_of_chunk(module, at, own) for own in zip(*kinds, strict=True)))


def least_of_chunk(module: Module, at: LayoutColumns, each: Sequence[Number]) -> Number:
    """The least that the layers of the smallest chunk take, of what one of each kind takes: of a kind there are no more
    than the module has.
    """
    left = np.maximum(1.0, np.floor(module.layers / (at.pp * at.vpp)))
    by_kind = np.stack(np.broadcast_arrays(*each, left)[:-1])
    counts, order = np.array([*kind_counts(module).values()]), np.argsort(by_kind, axis=0)
    total: Number = 0.0
    for place in range(len(by_kind)):
        kind = order[place]
        there = np.minimum(counts[kind], left)
        total, left = total + there * np.take_along_axis(by_kind, kind[None], 0)[0], left - there
    return total


def in_turn_seconds(
    module: Module, at: LayoutColumns, machine: MachineModel, found: ReplicaExchange, layers: Number
) -> Number:
    """Exposed seconds of one gather beside a forward through these layers, and of the collectives beside a backward, of
    equal micro-batches.
    """
    forward, backward = passes_beside(module, at, True, machine, layers)
    uncovered, window = 1.0 / layers, machine.dp_window
    reduced = exposed_part(found.backward_gather + found.reduce, backward, window, uncovered)
    return exposed_part(found.gather, forward, window, uncovered) + reduced


def passes_beside(
    module: Module, at: LayoutColumns, equal: bool, machine: MachineModel, layers: Number
) -> tuple[Number, Number]:
    """The longest that forward and backward of a micro-batch may take in these layers, beside which replicas
    exchange.
    """
    if not equal:
        return ANY_LENGTH, ANY_LENGTH
    layer, pause = mean_layer_seconds(module, at, machine), machine.timing.micro_batch_ms * MS
    return layer.forward.seconds * layers + pause, layer.backward.seconds * layers + pause


def behind_first_rank(module: Module, at: LayoutColumns, equal: bool, machine: MachineModel, layers: Number) -> Number:
    """Seconds behind the last backward of the first pipeline rank, of so many layers: its replicas' exchange, and
    its update.
    """
    found = on_distinct(at, exchange_fields(at), lambda some: stage_exchange(module, some, machine))
    return once_seconds(module, at, equal, machine, found, layers) + optimizer_seconds(module, at, machine)


def least_update_seconds(module: Module, at: LayoutColumns, machine: MachineModel) -> Number:
    """Seconds of the update of the mean rank at least: with a pipeline of its layers alone."""
    per_node, layers = machine.network.per_node, kind_counts(module)

    def of_layers(some: LayoutColumns) -> Number:
        return updated_parameters(replicated_in_layers(module, some, layers, per_node), some)

    of_mean = on_distinct(at, exchange_fields(at), of_layers) * parameter_update_seconds(at, machine) / at.pp
    return np.where(np.asarray(at.pp) > 1, of_mean, optimizer_seconds(module, at, machine))


def once_seconds(
    module: Module, at: LayoutColumns, equal: bool, machine: MachineModel, found: ReplicaExchange, layers: Number
) -> Number:
    """Exposed seconds of what replicas exchange once a step, below ZeRO-3. Under ZeRO-2 gradients may be reduced
    beside each backward.
    """
    forward, backward = passes_beside(module, at, equal, machine, layers)
    uncovered, window = 1.0 / layers, machine.dp_window
    reduced = exposed_part(found.reduce, backward, window, uncovered)
    each = (np.asarray(at.zero) == 2) & (not machine.accounting.holds_gradients)
    gathered = exposed_part(found.gather, forward, machine.updated_window, uncovered)
    once = gathered + reduced * np.where(each, at.micro_batches, 1.0)
    return np.where(np.asarray(at.zero) >= 3, 0.0, once)
