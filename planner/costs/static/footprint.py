"""Whether a static strategy fits: the bytes of each kind on one rank of a stage at its fullest, and how sure it is."""

from dataclasses import dataclass, fields, replace
from math import erf, sqrt

import numpy as np

from planner.costs.static.activations import SINGLE, input_bytes, layer_bytes, split
from planner.costs.static.flight import in_flight
from planner.costs.static.setup import Number, Setup
from planner.costs.static.states import gathered_bytes, held_layers, states, update_bytes
from planner.specs.accounting import Accounting
from planner.specs.layers import experts_of
from planner.specs.model import Decoder, Module
from planner.units import GIB

# Bytes of NCCL's buffers on one rank of 2 and of 4 or more, as aiconfigurator's tables of systems have them.
PAIR_BUFFERS, GROUP_BUFFERS = 358_612_992.0, 411_041_792.0


@dataclass(frozen=True, slots=True)
class Footprint:
    """Bytes on one rank. The sum of all kinds is no peak: logits and the optimizer's step never meet."""

    weights: Number
    gradients: Number
    optimizer: Number
    gathered: Number  # whole, under ZeRO-3
    activations: Number  # of all micro-batches in flight, and of one layer that is made again
    logits: Number  # and their gradient
    update: Number  # made for the optimizer's step
    workspace: Number
    fragmentation: Number  # reserved by the allocator beside what is allocated
    buffers: Number  # of communicators, and the rest outside of the allocator
    context: Number

    @property
    def states(self) -> Number:
        return self.weights + self.gradients + self.optimizer

    @property
    def allocated(self) -> Number:
        """The framework's own peak: torch.cuda.max_memory_allocated."""
        working = np.maximum(self.gathered + self.activations + self.logits, self.update)
        return self.states + working + self.workspace

    @property
    def reserved(self) -> Number:
        """What the allocator holds: torch.cuda.max_memory_reserved."""
        return self.allocated + self.fragmentation

    @property
    def total(self) -> Number:
        """What the device has lost, as nvidia-smi shows it."""
        return self.reserved + self.buffers + self.context


def footprint(module: Module, setup: Setup, accounting: Accounting, stage: Number) -> Footprint:
    """One rank of a stage, counted from 0 to pp − 1, at its fullest."""
    state = states(module, setup, accounting, stage)
    kept, rebuilt = activation_bytes(module, setup, accounting, stage)
    logits = logit_bytes(module, setup, accounting, stage)
    parts = Footprint(
        *state,
        gathered=gathered_bytes(module, setup, accounting, stage),
        activations=kept + np.maximum(0.0, rebuilt - logits),
        logits=logits,
        update=update_bytes(module, setup, accounting, stage),
        workspace=accounting.workspace_gib * GIB,
        fragmentation=0.0,
        buffers=buffers(setup),
        context=accounting.context_gib * GIB,
    )
    return replace(parts, fragmentation=accounting.fragmentation * parts.allocated)


def activation_bytes(module: Module, setup: Setup, accounting: Accounting, stage: Number) -> tuple[Number, Number]:
    """Kept by all micro-batches in flight; and made again for the backward of one layer, after the logits are gone."""
    flights, tokens, full = in_flight(setup, stage), setup.tokens, np.asarray(setup.full)
    kept: Number = 0.0
    rebuilt: Number = 0.0
    for kind, count in held_layers(module, setup, stage).items():
        each = layer_bytes(module, kind, setup, accounting)
        only = input_bytes(module, setup)
        kept = kept + count * (full * only + (1.0 - full) * each.partly)
        again = np.where(full > 0, each.whole - only, each.whole - each.partly)
        again = again + np.where(again > 0, gathered_input(module, setup), 0.0)
        rebuilt = np.maximum(rebuilt, np.where(count > 0, again, 0.0))
    return flights * tokens * kept, tokens * rebuilt


def logit_bytes(module: Module, setup: Setup, accounting: Accounting, stage: Number) -> Number:
    """Of the one micro-batch whose loss is computed, on the last stage: logits, and the final norm with its output."""
    if not isinstance(module, Decoder):
        return 0.0 * stage
    ways = split(setup)
    per_logit = accounting.logit_bytes * (1.0 if setup.precision != "float32" else SINGLE / 2)
    normed = 2 * module.hidden * ways.plain * ways.outside + gathered_input(module, setup)
    each = module.vocab * per_logit * ways.inside + normed
    return np.where(stage == setup.pp - 1, setup.tokens * each, 0.0)


def gathered_input(module: Module, setup: Setup) -> Number:
    """Bytes per token of a product's input and its gradient, whole where sequence parallelism splits the residual."""
    ways = split(setup)
    return np.where(ways.outside < 1.0, 2 * module.hidden * ways.plain, 0.0)


def buffers(setup: Setup) -> Number:
    """Of communicators: none on one rank."""
    return np.select([np.asarray(setup.ranks) >= 4, np.asarray(setup.ranks) >= 2], [GROUP_BUFFERS, PAIR_BUFFERS], 0.0)


def peak(module: Module, setup: Setup, accounting: Accounting) -> Footprint:
    """The stage that takes most: one of the first three, which have most in flight, or the last, which has logits. Any
    of them, where layers are unlike each other.
    """
    last, moe = np.asarray(setup.pp) - 1, experts_of(module)
    first = range(int(np.max(setup.pp)) if moe and (moe.dense_layers or moe.every > 1) else 3)
    stages = [np.minimum(index, last) for index in first] + [last]
    worst = footprint(module, setup, accounting, stages[0])
    for stage in stages[1:]:
        worst = larger(worst, footprint(module, setup, accounting, stage))
    return worst


def larger(one: Footprint, other: Footprint) -> Footprint:
    """Of two footprints the one whose total is larger, element by element."""
    which = np.asarray(other.total > one.total)
    parts = {field.name: (getattr(one, field.name), getattr(other, field.name)) for field in fields(Footprint)}
    return Footprint(**{name: np.where(which, second, first) for name, (first, second) in parts.items()})


def probability(taken: Footprint, device_bytes: Number, spread: Number) -> Number:
    """That a run exceeds a device, where the log of measured over predicted bytes is normal with this deviation."""
    beyond = np.log(np.asarray(taken.total) / device_bytes) / np.maximum(spread, 1e-9)
    return 0.5 * (1.0 + np.vectorize(erf, otypes=[float])(np.clip(beyond / sqrt(2.0), -6.0, 6.0)))
