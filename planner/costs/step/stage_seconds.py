"""Seconds of one micro-batch on one pipeline stage, forward and backward, by cause."""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from planner.costs.compute.expert_load import routed_work
from planner.costs.compute.layer_work import LayerWork, head_work, kinds_and_windows
from planner.costs.cost_lines import smooth_max
from planner.costs.distinct_columns import LAYER_FIELDS, on_distinct
from planner.costs.layout_columns import NON_NUMERIC_FIELDS, LayoutColumns, Number
from planner.costs.machine_model import MachineModel
from planner.costs.memory.model_states import first_stage_layers, layers_by_rank
from planner.costs.network.layer_traffic import layer_traffic
from planner.costs.network.mesh_groups import group_fields, layer_group_dims
from planner.specs.layers import Module, kind_counts
from planner.specs.layers.blocks import LayerKind
from planner.units import MS

ITEM_FIELDS = ("cross_reads", "cross_pairs", "readers", "load_spreads")  # that layouts do not differ in
Loads = tuple[float, ...]  # seconds of items, in their order


@dataclass(frozen=True, slots=True)
class PassSeconds:
    """Seconds of one pass, by cause; `compute` includes what is recomputed in it."""

    compute: Number = 0.0
    tp: Number = 0.0
    cp: Number = 0.0
    ep: Number = 0.0

    @property
    def seconds(self) -> Number:
        return self.compute + self.tp + self.cp + self.ep

    def __add__(self, other: "PassSeconds") -> "PassSeconds":
        return PassSeconds(self.compute + other.compute, self.tp + other.tp, self.cp + other.cp, self.ep + other.ep)

    def __mul__(self, times: Number) -> "PassSeconds":
        return PassSeconds(*(scaled(part, times) for part in (self.compute, self.tp, self.cp, self.ep)))

    @property
    def together(self) -> "PassSeconds":
        """All of it under one cause: arithmetic on many layouts that needs no causes is quicker."""
        return PassSeconds(self.seconds)


def scaled(part: Number, times: Number) -> Number:
    """Seconds of a cause, `times` over; of one that there is not, none, and no columns of zeros."""
    return part if not np.ndim(part) and part == 0.0 else part * times


@dataclass(frozen=True, slots=True)
class MicroBatchSeconds:
    """Seconds of forward and backward of one micro-batch."""

    forward: PassSeconds
    backward: PassSeconds

    @property
    def seconds(self) -> Number:
        return self.forward.seconds + self.backward.seconds

    def __add__(self, other: "MicroBatchSeconds") -> "MicroBatchSeconds":
        return MicroBatchSeconds(self.forward + other.forward, self.backward + other.backward)

    def __mul__(self, times: Number) -> "MicroBatchSeconds":
        return MicroBatchSeconds(self.forward * times, self.backward * times)


class LayerPasses(NamedTuple):
    """Passes of one layer: forward, backward with what it recomputes in part, and backward that recomputes nothing."""

    forward: PassSeconds
    partial: PassSeconds
    backward: PassSeconds


def mean_layer_seconds(
    module: Module, at: LayoutColumns, machine: MachineModel, by_cause: bool = True
) -> MicroBatchSeconds:
    """Seconds of one layer in the mean of all, of which a share is recomputed in full, and the others in part."""
    names = group_fields(at, LAYER_FIELDS, layer_group_dims(at, module.routed_experts is not None))
    each = on_distinct(at, names, distinct_layer_passes, module, machine, by_cause)
    full = at.full_recompute
    return MicroBatchSeconds(each.forward, each.partial * (1.0 - full) + (each.backward + each.forward) * full)


def distinct_layer_passes(at: LayoutColumns, module: Module, machine: MachineModel, by_cause: bool) -> LayerPasses:
    """Passes of one layer of layouts that all differ in its fields, by cause or all under one."""
    found = mean_layer_passes(module, at, machine)
    return found if by_cause else LayerPasses(*(each.together for each in found))


def mean_layer_passes(module: Module, at: LayoutColumns, machine: MachineModel) -> LayerPasses:
    """Passes of one layer in the mean of all: kinds and windows alternate over the stages."""
    total = LayerPasses(PassSeconds(), PassSeconds(), PassSeconds())
    for kind, window, share in kinds_and_windows(module):
        own = layer_passes(module, kind, window, at, machine)
        total = LayerPasses(*(one + other * share for one, other in zip(total, own, strict=True)))
    return total


def layer_passes(
    module: Module, kind: LayerKind, window: int | None, at: LayoutColumns, machine: MachineModel
) -> LayerPasses:
    """Passes of one layer."""
    work = routed_work(module, kind, at, machine.timing, window)
    core = work.attention
    traffic = layer_traffic(module, kind, at, machine, core)
    cores = [each for each in (core, work.cross_attention, work.index) if each]
    attended, gradients = (sum(machine.attention_seconds(each, forward) for each in cores) for forward in (True, False))
    computed = machine.forward(work, at.dtype) + attended, machine.backward(work, at.dtype) + gradients
    whole = layer_traffic(module, kind, at, machine.exposing, None)
    forward, backward = (
        PassSeconds(seconds, tp + not_hidden(both - tp - ep, seconds), cp, ep)
        for seconds, tp, cp, ep, both in zip(
            computed, traffic.tp, traffic.cp, traffic.ep, map(sum, zip(whole.tp, whole.ep, strict=True)), strict=True
        )
    )
    recomputed = recompute_seconds(work, at, machine) + (attended if "attention" in at.recomputed_parts else 0.0)
    host = machine.host_seconds(work, at.tp, at.dtype)
    plain = bound_by_host(backward, host)
    # Recomputed attention exchanges its shards once more, and experts are sent their tokens once more.
    shared, dispatched = (
        exchanged[0] if part in at.recomputed_parts else 0.0
        for part, exchanged in (("attention", traffic.cp), ("moe", traffic.ep))
    )
    repeated = PassSeconds(recomputed, cp=shared, ep=dispatched)
    again = bound_by_host(backward + repeated, host) if at.recomputed_parts else plain
    return LayerPasses(bound_by_host(forward, host), again, plain)


def not_hidden(hidden: Number, computed: Number) -> Number:
    """Seconds that compute is too short to hide of communication that runs beside it."""
    return np.maximum(0.0, hidden - computed)


def bound_by_host(layer_pass: PassSeconds, host: Number) -> PassSeconds:
    """A pass no shorter than the host's launches: the slower of device and host is critical. A ring's sends wait for
    neither.
    """
    device = layer_pass.seconds - layer_pass.cp
    return replace(layer_pass, compute=layer_pass.compute + (smooth_max(device, host) - device))


def recompute_seconds(work: LayerWork, at: LayoutColumns, machine: MachineModel) -> Number:
    """Seconds of the parts that one layer recomputes, attention aside."""
    seconds: Number = 0.0
    if "norm" in at.recomputed_parts:
        seconds = seconds + 0.4 * machine.memory_seconds(work, at.dtype)  # the share of two norms in the memory traffic
    for product in work.matmuls:
        if product.part in at.recomputed_parts:
            seconds = seconds + machine.matmul(product, at.dtype)
    return seconds


def head_seconds(module: Module, at: LayoutColumns, machine: MachineModel) -> MicroBatchSeconds:
    """Seconds of logits and loss, which the last stage computes on top of its layers."""
    work = head_work(module, at)
    return MicroBatchSeconds(
        PassSeconds(compute=machine.forward(work, at.dtype)),
        PassSeconds(compute=machine.head_backward(module, work, at.dtype)),
    )


class EncoderSeconds(NamedTuple):
    """Seconds of both passes over what a micro-batch reads of encoders: on the ranks of its first stage, and on others,
    before it.
    """

    first_stage: Number = 0.0
    apart: Number = 0.0


NOTHING_READ = EncoderSeconds()


@dataclass(frozen=True, slots=True)
class StageSeconds:
    """Seconds of one micro-batch, over all chunks of a rank: on the slowest stage, on the fullest but the last and on
    the last, through all stages, and on the first, or one in the mean where they are as even as they can be.
    """

    slowest: PassSeconds
    fullest: Number  # seconds
    last: Number  # seconds
    all_stages: Number  # seconds
    first: MicroBatchSeconds

    def behind(self, encoders: EncoderSeconds, at: LayoutColumns) -> "StageSeconds":
        """The stages where encoders' passes come before the first one's, or are a stage of other ranks."""
        first = np.where(np.asarray(at.pp) > 1, self.fullest, self.last) + encoders.first_stage
        busiest = PassSeconds(compute=np.maximum(first, encoders.apart))
        through = self.all_stages + encoders.first_stage + encoders.apart
        return replace(self, slowest=larger_pass(self.slowest, busiest), all_stages=through)


def stage_seconds(
    module: Module,
    at: LayoutColumns,
    machine: MachineModel,
    by_cause: bool = True,
    encoders: EncoderSeconds = NOTHING_READ,
) -> StageSeconds:
    """Seconds of one micro-batch by stage; layers are divided over the stages, the first one computes what it reads
    too, and the last one has the head.
    """
    per_layer = mean_layer_seconds(module, at, machine, by_cause)
    last_head = on_distinct(at, LAYER_FIELDS, lambda some: head_seconds(module, some, machine))
    pause = machine.timing.micro_batch_ms * MS
    most, last = fullest_and_last(module.layers, at)
    each, head_pass = per_layer.forward + per_layer.backward, last_head.forward + last_head.backward
    constant = PassSeconds(compute=2.0 * pause)
    fullest, end = each * most + constant, each * last + head_pass + constant
    through = each.seconds * module.layers + head_pass.seconds + at.pp * constant.seconds
    if at.cuts and at.schedule == "1f1b":
        through = through_uneven_stages(per_layer, last_head, pause, at)
    first = per_layer * first_stage_layers(module.layers, at) + MicroBatchSeconds(
        PassSeconds(compute=pause), PassSeconds(compute=pause)
    )
    staged = StageSeconds(larger_pass(fullest, end), fullest.seconds, end.seconds, through, first)
    return staged if encoders is NOTHING_READ else staged.behind(encoders, at)


def through_uneven_stages(layer: MicroBatchSeconds, head: MicroBatchSeconds, pause: float, at: LayoutColumns) -> Number:
    """Seconds that a 1F1B step of m micro-batches takes over m − 1 times its slowest stage, of stages that are said.

    Stage s waits for the passes of a micro-batch in front of it, and for those behind it as far as they take longer
    than the forwards of its warm-up, of min(p − 1 − s, m − 1) further micro-batches: no step is shorter than
    Σ_{i<s} t_i + m·t_s + max(0, Σ_{i>s} t_i − warm-up·f_s), of forwards f and both passes t. Of even stages it is the
    sum of all.
    """
    counts = layers_by_rank(at)
    forward = np.array([layer.forward.seconds * count + pause for count in counts])
    both = forward + np.array([layer.backward.seconds * count + pause for count in counts])
    forward[-1], both[-1] = forward[-1] + head.forward.seconds, both[-1] + head.seconds
    later = np.arange(len(counts))[::-1].reshape(-1, *(1,) * (both.ndim - 1))
    hidden = np.minimum(later, at.micro_batches - 1.0) * forward
    before = np.cumsum(both, axis=0) - both
    behind = np.sum(both, axis=0) - before - both
    ends = before + at.micro_batches * both + np.maximum(0.0, behind - hidden)
    return np.max(ends, axis=0) - (at.micro_batches - 1.0) * np.max(both, axis=0)


@lru_cache(maxsize=1024)  # hundreds of spaces of one module are screened, and each screen asks twice
def item_seconds(module: Module, one: LayoutColumns, machine: MachineModel, sizes: tuple[int, ...]) -> Loads:
    """Seconds of both passes that items of these tokens add to a micro-batch each, on one rank (`one_rank`) for all of
    a replica: without what a micro-batch takes however few its tokens.
    """
    each, least = (replace(one, seq=tokens, alike={}) for tokens in (np.array(sizes, dtype=float), np.ones(1)))
    device = machine.without_launches
    found = stage_seconds(module, each, device).all_stages - stage_seconds(module, least, device).all_stages
    return tuple(found.tolist())


def one_rank(at: LayoutColumns) -> LayoutColumns:
    """One rank with a micro-batch of one sequence, and all else of layouts that the work of an item depends on."""
    kept = {name: getattr(at, name) for name in (*NON_NUMERIC_FIELDS, *ITEM_FIELDS) if name not in ("alike", "cuts")}
    return LayoutColumns(**kept, ranks=1.0, seq=1.0, batch=1.0)


def weight_gradient_share(module: Module, at: LayoutColumns, machine: MachineModel) -> Number:
    """The share of weight gradients (W) in both passes of a layer, in the mean; attention has none."""
    seconds: Number = 0.0
    for kind, count in kind_counts(module).items():
        seconds = seconds + machine.weight_gradient_seconds(routed_work(module, kind, at, machine.timing), at.dtype) * (
            count / module.layers
        )
    return seconds / mean_layer_seconds(module, at, machine).seconds


def fullest_and_last(layers: int, at: LayoutColumns) -> tuple[Number, Number]:
    """Layers of the pipeline rank with most of them, the last one aside, and of the last, as plans divide them
    (costs/memory/model_states.py, layers_before).
    """
    if at.cuts:
        *others, last = layers_by_rank(at)
        return max(others), last
    chunks = at.pp * at.vpp
    even, ends_even = np.mod(layers, chunks) == 0, np.mod(layers + 2, chunks) == 0
    each, with_ends = layers / at.pp, (layers + 2) / at.pp
    most = np.where(even, each, np.where(ends_even, with_ends - (at.pp <= 2), np.ceil(each)))
    rest = np.where(np.asarray(at.vpp) > 1, each, layers - np.floor(layers * (at.pp - 1.0) / at.pp + 0.5))
    last = np.where(even, each, np.where(ends_even, with_ends - 1.0, rest))
    return np.where(at.pp > 1, most, 0.0), np.where(at.pp > 1, last, layers)


def larger_pass(one: PassSeconds, other: PassSeconds) -> PassSeconds:
    """The longer of two passes, element by element."""
    which = one.seconds >= other.seconds
    parts = ((getattr(one, name), getattr(other, name)) for name in ("compute", "tp", "cp", "ep"))
    return PassSeconds(*(np.where(which, *pair) if any(map(np.ndim, pair)) or any(pair) else 0.0 for pair in parts))
