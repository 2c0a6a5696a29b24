"""Whether a static strategy fits: the bytes of each kind on one rank of a stage at its fullest, and how sure it is."""

from dataclasses import dataclass, fields, replace
from math import erf, sqrt

import numpy as np

from planner.costs.columns import Columns, Number
from planner.costs.memory.activations import input_bytes, layer_bytes, split
from planner.costs.memory.flight import in_flight
from planner.costs.memory.states import gathered_bytes, held_layers, states, update_bytes
from planner.specs.accounting import Accounting
from planner.specs.layers import Module, kind_counts
from planner.specs.layers.blocks import LayerKind
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
    def beside_passes(self) -> Number:
        """Allocated while passes run, beside their activations."""
        return self.states + self.gathered + self.workspace

    @property
    def outside(self) -> Number:
        """Of the framework's allocator."""
        return self.buffers + self.context

    @property
    def without_activations(self) -> "Footprint":
        """The same of a rank that works on nothing."""
        return replace(self, activations=0.0, logits=0.0).fragmented(self.fragmentation / self.allocated)

    def beside(self, other: "Footprint") -> "Footprint":
        """Of two modules of one process on a rank: what each takes, and once what the process has."""
        own = {name: getattr(self, name) + getattr(other, name) for name in OWN}
        return replace(self, **own).fragmented(self.fragmentation / self.allocated)

    def fragmented(self, share: Number) -> "Footprint":
        """With so much reserved, over what is allocated, that cannot be used."""
        return replace(self, fragmentation=share * self.allocated)

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
        return self.reserved + self.outside


# Kinds of bytes that are a module's own; the rest are the process's.
OWN = ("weights", "gradients", "optimizer", "gathered", "activations", "logits", "update")


def footprint(module: Module, at: Columns, accounting: Accounting, stage: Number) -> Footprint:
    """One rank of a stage, counted from 0 to pp − 1, at its fullest."""
    state = states(module, at, accounting, stage)
    kept, rebuilt = activation_bytes(module, at, accounting, stage)
    logits = logit_bytes(module, at, accounting, stage)
    parts = Footprint(
        *state,
        gathered=gathered_bytes(module, at, accounting, stage),
        activations=kept + np.maximum(0.0, rebuilt - logits),
        logits=logits,
        update=update_bytes(module, at, accounting, stage),
        workspace=accounting.workspace_gib * GIB,
        fragmentation=0.0,
        buffers=accounting.buffers * buffers(at),
        context=accounting.context_gib * GIB,
    )
    return parts.fragmented(accounting.fragmentation)


def activation_bytes(module: Module, at: Columns, accounting: Accounting, stage: Number) -> tuple[Number, Number]:
    """Kept by all micro-batches in flight; and made again for the backward of one layer, after the logits are gone."""
    kept: Number = 0.0
    rebuilt: Number = 0.0
    for kind, count in held_layers(module, at, stage).items():
        own, again = layer_kept(module, kind, at, accounting)
        kept, rebuilt = kept + count * own, np.maximum(rebuilt, np.where(count > 0, again, 0.0))
    return in_flight(at, stage) * at.tokens * kept, at.tokens * rebuilt


def layer_kept(module: Module, kind: LayerKind, at: Columns, accounting: Accounting) -> tuple[Number, Number]:
    """Of one layer and token: what stays to its backward, and what this makes again with its gathered input."""
    each, only, full = layer_bytes(module, kind, at, accounting), input_bytes(module, at), np.asarray(at.full)
    kept = full * only + (1.0 - full) * each.partly
    again = np.where(full > 0, each.whole - only, each.whole - each.partly)
    return kept, again + np.where(again > 0, gathered_input(module, at), 0.0)


def logit_bytes(module: Module, at: Columns, accounting: Accounting, stage: Number) -> Number:
    """Of micro-batches between their loss and its backward, on the last stage: one, or under GPipe all of them."""
    waiting = at.micro_batches if at.schedule == "gpipe" else 1.0
    return np.where(stage == at.pp - 1, waiting * at.tokens * token_logit_bytes(module, at, accounting), 0.0)


def token_logit_bytes(module: Module, at: Columns, accounting: Accounting) -> Number:
    """Of one token: its logits, and the final norm with its output."""
    if not module.vocabulary:
        return 0.0
    ways = split(at)
    per_logit = accounting.logit_bytes * at.element / 2.0
    normed = 2 * module.hidden * ways.plain * ways.outside + gathered_input(module, at)
    return module.vocabulary * per_logit * ways.inside + normed


def gathered_input(module: Module, at: Columns) -> Number:
    """Bytes per token of a product's input and its gradient, whole where sequence parallelism splits the residual."""
    ways = split(at)
    return np.where(ways.outside < 1.0, 2 * module.hidden * ways.plain, 0.0)


def buffers(at: Columns) -> Number:
    """Of communicators: none on one rank."""
    return np.select([np.asarray(at.ranks) >= 4, np.asarray(at.ranks) >= 2], [GROUP_BUFFERS, PAIR_BUFFERS], 0.0)


def peak(module: Module, at: Columns, accounting: Accounting) -> Footprint:
    """The stage that takes most: one of the first three, which have most in flight, or the last, which has logits. Any
    of them, where layers are unlike each other.
    """
    last = np.asarray(at.pp) - 1
    first = range(int(np.max(at.pp)) if len(kind_counts(module)) > 1 else 3)
    stages = [np.minimum(index, last) for index in first] + [last]
    worst = footprint(module, at, accounting, stages[0])
    for stage in stages[1:]:
        worst = larger(worst, footprint(module, at, accounting, stage))
    return worst


def larger(one: Footprint, other: Footprint) -> Footprint:
    """Of two footprints the one whose total is larger, element by element."""
    which = np.asarray(other.total > one.total)
    parts = {field.name: (getattr(one, field.name), getattr(other, field.name)) for field in fields(Footprint)}
    return Footprint(**{name: np.where(which, second, first) for name, (first, second) in parts.items()})


def probability(taken: Number, device_bytes: Number, spread: Number) -> Number:
    """That a run exceeds a device, where the log of measured over predicted bytes is normal with this deviation."""
    beyond = np.log(np.asarray(taken) / device_bytes) / np.maximum(spread, 1e-9)
    return 0.5 * (1.0 + np.vectorize(erf, otypes=[float])(np.clip(beyond / sqrt(2.0), -6.0, 6.0)))
