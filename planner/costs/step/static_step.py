"""The closed form of a step: pipelines of equal micro-batches, then data-parallel communication, and the update.

With one chunk of layers on a rank, 1F1B and GPipe take (m − 1)·(slowest stage) + (all stages), forward and backward; v
chunks of interleaving divide warm-up and drain of the pipeline by v (arXiv 2104.04473, section 2.2).

Of each stage's F + I + W in that bubble zero bubble leaves F + I − W, or F + I where there are too few micro-batches to
defer a W of it (plan/schedules/zb_h1.py): a third, or two, where the three take equally long. Attention makes it more,
as it has no weights. ZB-H2 leaves as much of an isolated step; what it saves on top is between steps that overlap.
"""

from dataclasses import dataclass

import numpy as np

from planner.costs.layout_columns import LayoutColumns, Number
from planner.costs.machine_model import MachineModel
from planner.costs.network.layer_traffic import stage_send_seconds
from planner.costs.network.replica_exchange import exposed_dp_seconds, optimizer_seconds
from planner.costs.step.stage_seconds import stage_seconds, weight_gradient_share
from planner.specs.layers import Module
from planner.specs.parallelism import ZERO_BUBBLE
from planner.units import MS


@dataclass(frozen=True, slots=True)
class StepSeconds:
    """Seconds of a step by cause; the parts add up to `seconds`."""

    compute: Number
    tp: Number
    cp: Number
    ep: Number
    pp: Number  # sends between stages
    bubble: Number
    dp: Number  # exposed reductions of gradients and gathers of parameters
    update: Number
    overhead: Number

    @property
    def seconds(self) -> Number:
        parts = (self.compute, self.tp, self.cp, self.ep, self.pp, self.bubble, self.dp, self.update, self.overhead)
        return sum(parts[1:], parts[0])


def static_step_seconds(module: Module, at: LayoutColumns, machine: MachineModel) -> StepSeconds:
    """Seconds of one step under a static layout, by cause."""
    staged = stage_seconds(module, at, machine)
    slowest, through, count = staged.slowest, staged.all_stages, at.micro_batches
    send = 2.0 * stage_send_seconds(module, at, machine)
    sends = np.where(at.pp > 1, exposed_send_seconds(at, send, slowest.seconds, through), 0.0)
    kept = zero_bubble_share(at, weight_gradient_share(module, at, machine)) if at.schedule in ZERO_BUBBLE else 1.0
    bubble = (through - slowest.seconds) / at.vpp * kept
    exposed = exposed_dp_seconds(module, at, machine, (staged.mean.forward.seconds, staged.mean.backward.seconds))
    optimizer = optimizer_seconds(module, at, machine)
    busy = count * slowest.seconds + bubble + sends + exposed + optimizer
    overhead = machine.timing.step_ms * MS + machine.jitter(at.ranks) * busy
    return StepSeconds(
        slowest.compute * count, slowest.tp * count, slowest.cp * count, slowest.ep * count,
        sends, bubble, exposed, optimizer, overhead,
    )  # fmt: skip


def zero_bubble_share(at: LayoutColumns, weights: Number) -> Number:
    """The share of 1F1B's bubble that zero bubble leaves: of pp − 1 stages' F, I and W, less one W each, and less as
    many more as can be deferred. `weights`: the share of W.
    """
    deferred = np.minimum(at.micro_batches, at.pp) - 1.0
    return 1.0 - weights * (1.0 + deferred / np.maximum(1.0, at.pp - 1.0))


def exposed_send_seconds(at: LayoutColumns, send: Number, slowest: Number, through: Number) -> Number:
    """Exposed seconds of sends in a step. `send`: there and back; `slowest` and `through`: seconds of one micro-batch.

    Warm-up and drain of the pipeline wait for its sends: from the first chunk of layers to the last and back. Other
    sends of GPipe and interleaving run during passes. Under 1F1B a micro-batch's return admits the next one but pp, so
    that a stage which is slower than the others by less than its share of a round trip waits for the rest of it.
    """
    pp, chunks = np.asarray(at.pp), at.pp * at.vpp
    hops = send * (chunks - 1.0)
    if at.schedule == "gpipe":
        return hops
    wait = np.maximum(0.0, (through + send * (pp - 1.0)) / pp - slowest)
    later = np.maximum(0.0, at.micro_batches - pp / np.maximum(1.0, pp - 1.0))
    return hops + np.where(chunks > pp, 0.0, wait * later)
