"""The closed form of a step: pipelines of equal micro-batches, then data-parallel communication, and the update.

With one chunk of layers on a rank, 1F1B and GPipe take (m − 1)·(slowest stage) + (all stages), forward and backward; v
chunks of interleaving divide warm-up and drain of the pipeline by v (arXiv 2104.04473, section 2.2).

Of each stage's F + I + W in that bubble zero bubble leaves F + I − W, or F + I where there are too few micro-batches to
defer a W of it (plan/schedules/zb_h1.py): a third, or two, where the three take equally long. Attention makes it more,
as it has no weights. ZB-H2 leaves as much of an isolated step; what it saves on top is between steps that overlap.

Where encoders feed a module, each micro-batch waits for its encoders' outputs, and they for its gradients: passes over
the items of a micro-batch lengthen the first stage, where the encoder is on its ranks, or are a stage before it, where
it has ranks of its own. Its gradients and weights are exchanged, and updated, once a step.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner.costs.distinct_columns import on_distinct
from planner.costs.layout_columns import LayoutColumns, Number
from planner.costs.machine_model import MachineModel
from planner.costs.network.layer_traffic import StageSends, stage_sends
from planner.costs.network.mesh_groups import faster_dims, group_fields, pp_is_slowest
from planner.costs.network.replica_exchange import exposed_dp_seconds, optimizer_seconds
from planner.costs.step.stage_seconds import (
    NOTHING_READ,
    EncoderSeconds,
    MicroBatchSeconds,
    PassSeconds,
    head_seconds,
    mean_layer_seconds,
    stage_seconds,
    weight_gradient_share,
)
from planner.plan.gradient_flow import GradientFlow
from planner.specs.layers import Module
from planner.specs.parallelism import ZERO_BUBBLE
from planner.units import MS

SEND_FIELDS = ("ranks", "pp", "seq", "micro_batch", "tp", "cp", "sequence_parallel")


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


def static_step_seconds(
    module: Module,
    at: LayoutColumns,
    machine: MachineModel,
    by_cause: bool = True,
    encoders: EncoderSeconds = NOTHING_READ,
) -> StepSeconds:
    """Seconds of one step under a static layout, by cause; or with what passes exchange under `compute`. `encoders`:
    what each micro-batch waits for, with all of it under `compute`.
    """
    staged = stage_seconds(module, at, machine, by_cause, encoders)
    slowest, through, count = staged.slowest, staged.all_stages, at.micro_batches
    each_way = on_distinct(at, send_fields(at), lambda some: stage_sends(module, some, machine))
    sends = np.where(at.pp > 1, exposed_send_seconds(at, each_way, slowest.seconds, through), 0.0)
    kept = zero_bubble_share(at, weight_gradient_share(module, at, machine)) if at.schedule in ZERO_BUBBLE else 1.0
    bubble = (through - slowest.seconds) / at.vpp * kept
    exposed = exposed_dp_seconds(module, at, machine, (staged.first.forward.seconds, staged.first.backward.seconds))
    optimizer = optimizer_seconds(module, at, machine)
    busy = count * slowest.seconds + bubble + sends + exposed + optimizer
    overhead = machine.timing.step_ms * MS + machine.jitter(at.ranks) * busy
    return StepSeconds(
        slowest.compute * count, slowest.tp * count, slowest.cp * count, slowest.ep * count,
        sends, bubble, exposed, optimizer, overhead,
    )  # fmt: skip


def zero_bubble_share(at: LayoutColumns, weights: Number) -> Number:
    """The share of 1F1B's bubble that zero bubble leaves: of pp − 1 stages' F, I and W, less one W each, and less as
    many more as can be deferred: none of it where W, of few tokens, takes more than half. `weights`: the share of W.
    """
    deferred = np.minimum(at.micro_batches, at.pp) - 1.0
    return np.maximum(0.0, 1.0 - weights * (1.0 + deferred / np.maximum(1.0, at.pp - 1.0)))


def send_fields(at: LayoutColumns) -> tuple[str, ...]:
    """What the sends of a pipeline depend on."""
    return SEND_FIELDS if pp_is_slowest(at) else group_fields(at, SEND_FIELDS, faster_dims(at, "pp"))


def exposed_send_seconds(at: LayoutColumns, each_way: StageSends, slowest: Number, through: Number) -> Number:
    """Exposed seconds of sends in a step; `slowest` and `through`: seconds of one micro-batch.

    Warm-up and drain of the pipeline wait for its sends: from the first chunk of layers to the last and back. Other
    sends of GPipe and interleaving run during passes. Under 1F1B a micro-batch's return admits the next one but pp, so
    that a stage which is slower than the others by less than its share of a round trip waits for the rest of it.
    """
    pp, vpp = np.asarray(at.pp), np.asarray(at.vpp)
    hops = 2.0 * (vpp * each_way.through + (vpp - 1.0) * each_way.back)
    if at.schedule == "gpipe":
        return hops
    wait = np.maximum(0.0, (through + 2.0 * each_way.through) / pp - slowest)
    later = np.maximum(0.0, at.micro_batches - pp / np.maximum(1.0, pp - 1.0))
    return hops + np.where(vpp > 1, 0.0, wait * later)


@dataclass(frozen=True, slots=True)
class FeedingEncoder:
    """An encoder on one stage, whose sequences are the items of the micro-batches that it feeds."""

    module: Module
    at: LayoutColumns  # as many micro-batches as its reader has
    flow: GradientFlow
    apart: bool = False  # on ranks of its own


def fed_step_seconds(
    module: Module, at: LayoutColumns, encoders: Sequence[FeedingEncoder], machine: MachineModel
) -> Number:
    """Seconds of one step of a module and the encoders that feed it."""
    first_stage: Number = 0.0
    apart: Number = 0.0
    once: Number = 0.0
    for each in encoders:
        seconds = encoder_passes(each, machine).seconds
        first_stage, apart = (first_stage, apart + seconds) if each.apart else (first_stage + seconds, apart)
        step = static_step_seconds(each.module, each.at, machine)
        once = once + step.dp + step.update
    reader = static_step_seconds(module, at, machine, encoders=EncoderSeconds(first_stage, apart))
    return reader.seconds + once * (1.0 + machine.jitter(at.ranks))


def encoder_passes(encoder: FeedingEncoder, machine: MachineModel) -> MicroBatchSeconds:
    """Both passes over one micro-batch's items; of what is frozen and reads nothing trained, the forward alone."""
    pause = PassSeconds(compute=machine.timing.micro_batch_ms * MS)
    layers = mean_layer_seconds(encoder.module, encoder.at, machine) * encoder.module.layers
    ends = head_seconds(encoder.module, encoder.at, machine)
    backward = layers.backward * float(encoder.flow.through_layers) + (ends.backward + pause) * float(
        encoder.flow.has_backward()
    )
    return MicroBatchSeconds(layers.forward + ends.forward + pause, backward)
