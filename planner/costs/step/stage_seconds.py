"""Seconds of one micro-batch on one pipeline stage, forward and backward, by cause."""

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np

from planner.costs.compute.layer_work import LayerWork, Matmul, head_work, layer_work
from planner.costs.cost_lines import smooth_max
from planner.costs.layout_columns import LayoutColumns, Number
from planner.costs.machine_model import MachineModel
from planner.costs.network.layer_traffic import layer_traffic
from planner.specs.layers import Module, kind_counts, layer_kinds
from planner.specs.layers.blocks import LayerKind, kind_blocks
from planner.units import MS


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
        return PassSeconds(self.compute * times, self.tp * times, self.cp * times, self.ep * times)


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


NO_SECONDS = MicroBatchSeconds(PassSeconds(), PassSeconds())


def mean_layer_seconds(module: Module, at: LayoutColumns, machine: MachineModel) -> MicroBatchSeconds:
    """Seconds of one layer in the mean of all: kinds and windows alternate over the stages."""
    kinds = Counter((kind, module.window_of(index)) for index, kind in enumerate(layer_kinds(module)))
    total = NO_SECONDS
    for (kind, window), count in sorted(kinds.items(), key=str):
        total += layer_seconds(module, kind, window, at, machine) * (count / module.layers)
    return total


def layer_seconds(
    module: Module, kind: LayerKind, window: int | None, at: LayoutColumns, machine: MachineModel
) -> MicroBatchSeconds:
    """Seconds of one layer, with what backward recomputes of it."""
    work = layer_work(module, kind, at, window)
    core = work.attention
    traffic = layer_traffic(module, kind, at, machine, core)
    if "experts" in kind_blocks(kind) and not at.balanced:
        fullest = 1.0 + machine.timing.imbalance / np.sqrt(local_experts(module, at))
        work = replace(work, matmuls=tuple(with_imbalance(p, fullest) for p in work.matmuls))
    cores = [each for each in (core, work.cross_attention) if each]
    attended, gradients = (sum(machine.attention_seconds(each, forward) for each in cores) for forward in (True, False))
    forward = PassSeconds(machine.forward(work, at.dtype) + attended, traffic.tp[0], traffic.cp[0], traffic.ep[0])
    recomputed = (recompute_seconds(work, at, machine) + (attended if "attention" in at.recomputed_parts else 0.0)) * (
        1.0 - at.full_recompute
    )
    compute = machine.backward(work, at.dtype, backward_products(at)) + gradients + recomputed
    backward = PassSeconds(compute, traffic.tp[1], traffic.cp[1], traffic.ep[1])
    host = machine.host_seconds(work, at.tp)
    forward, backward = bound_by_host(forward, host), bound_by_host(backward, host)
    return MicroBatchSeconds(forward, backward + forward * at.full_recompute)


def bound_by_host(layer_pass: PassSeconds, host: Number) -> PassSeconds:
    """A pass no shorter than the host's launches: the slower of device and host is critical. A ring's sends wait for
    neither.
    """
    device = layer_pass.seconds - layer_pass.cp
    return replace(layer_pass, compute=layer_pass.compute + (smooth_max(device, host) - device))


def backward_products(at: LayoutColumns) -> int:
    """Products that backward computes for each of forward's."""
    return 1 if at.adapters else 2


def local_experts(module: Module, at: LayoutColumns) -> Number:
    """Experts of one rank. Routing is random: the load of n experts together deviates by 1/√n of that of one."""
    moe = module.routed_experts
    return np.maximum(1.0, moe.experts / at.ep) if moe else 1.0


def with_imbalance(product: Matmul, fullest: Number) -> Matmul:
    """The product on the rank whose experts get most tokens."""
    return replace(product, m=product.m * fullest) if product.grouped else product


def recompute_seconds(work: LayerWork, at: LayoutColumns, machine: MachineModel) -> Number:
    """Seconds of what selective recomputation recomputes in one layer, attention aside."""
    seconds: Number = 0.0
    if "norm" in at.recomputed_parts:
        seconds = seconds + 0.4 * machine.memory_seconds(work)  # the share of two norms in the memory traffic
    for product in work.matmuls:
        if product.part in at.recomputed_parts:
            seconds = seconds + machine.matmul(product, at.dtype)
    return seconds


def head_seconds(module: Module, at: LayoutColumns, machine: MachineModel) -> MicroBatchSeconds:
    """Seconds of logits and loss, which the last stage computes on top of its layers."""
    work = head_work(module, at)
    return MicroBatchSeconds(
        PassSeconds(compute=machine.forward(work, at.dtype)),
        PassSeconds(compute=machine.backward(work, at.dtype, backward_products(at))),
    )


@dataclass(frozen=True, slots=True)
class StageSeconds:
    """Seconds of one micro-batch, over all chunks of a rank: on the slowest stage, through all stages, and on a stage
    in the mean.
    """

    slowest: PassSeconds
    all_stages: Number  # seconds
    mean: MicroBatchSeconds


def stage_seconds(module: Module, at: LayoutColumns, machine: MachineModel) -> StageSeconds:
    """Seconds of one micro-batch by stage; layers are divided over the stages, and the last one has the head too."""
    per_layer, last_head = mean_layer_seconds(module, at, machine), head_seconds(module, at, machine)
    pause = machine.timing.micro_batch_ms * MS
    most, last = fullest_and_last(module.layers, at)
    each, head_pass = per_layer.forward + per_layer.backward, last_head.forward + last_head.backward
    constant = PassSeconds(compute=2.0 * pause)
    slowest = larger_pass(each * most + constant, each * last + head_pass + constant)
    through = each.seconds * module.layers + head_pass.seconds + at.pp * constant.seconds
    mean = per_layer * (module.layers / at.pp) + MicroBatchSeconds(
        PassSeconds(compute=pause), PassSeconds(compute=pause)
    )
    return StageSeconds(slowest, through, mean)


def weight_gradient_share(module: Module, at: LayoutColumns, machine: MachineModel) -> Number:
    """The share of weight gradients (W) in both passes of a layer, in the mean; attention has none."""
    seconds: Number = 0.0
    for kind, count in kind_counts(module).items():
        seconds = seconds + machine.weight_gradient_seconds(layer_work(module, kind, at), at.dtype) * (
            count / module.layers
        )
    return seconds / mean_layer_seconds(module, at, machine).seconds


def fullest_and_last(layers: int, at: LayoutColumns) -> tuple[Number, Number]:
    """Layers of the pipeline rank with most of them, the last one aside, and of the last, as plans divide them
    (costs/memory/model_states.py, layers_before).
    """
    chunks = at.pp * at.vpp
    even, ends_even = np.mod(layers, chunks) == 0, np.mod(layers + 2, chunks) == 0
    each, with_ends = layers / at.pp, (layers + 2) / at.pp
    most = np.where(even, each, np.where(ends_even, with_ends - (at.pp <= 2), np.ceil(each)))
    rest = np.where(np.asarray(at.vpp) > 1, each, layers - np.floor(layers * (at.pp - 1.0) / at.pp + 0.5))
    last = np.where(even, each, np.where(ends_even, with_ends - 1.0, rest))
    return np.where(at.pp > 1, most, 0.0), np.where(at.pp > 1, last, layers)


def larger_pass(one: PassSeconds, other: PassSeconds) -> PassSeconds:
    """Element by element."""
    which = one.seconds >= other.seconds
    return PassSeconds(*(np.where(which, getattr(one, n), getattr(other, n)) for n in ("compute", "tp", "cp", "ep")))
