"""The closed form of a step of a module that encoders feed.

Each micro-batch waits for its encoders' outputs, and they for its gradients: passes over the items of a micro-batch
lengthen the first stage, where the encoder is on its ranks, or are a stage before it, where it has ranks of its own.
Its gradients and weights are exchanged, and updated, once a step.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from planner.costs.layout_columns import LayoutColumns, Number
from planner.costs.machine_model import MachineModel
from planner.costs.step.stage_seconds import (
    EncoderSeconds,
    MicroBatchSeconds,
    PassSeconds,
    head_seconds,
    mean_layer_seconds,
)
from planner.costs.step.static_step import static_step_seconds
from planner.plan.gradient_flow import GradientFlow
from planner.specs.layers import Module
from planner.units import MS


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
