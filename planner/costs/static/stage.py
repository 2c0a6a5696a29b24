"""Seconds of one micro-batch on one pipeline stage, forward and backward, by what they go to."""

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np

from planner.costs.static.machine import Machine
from planner.costs.static.setup import Number, Setup
from planner.costs.static.traffic import layer_traffic
from planner.costs.static.work import Attention, Matmul, Work, head_work, layer_work
from planner.specs.layers import LayerKind, experts_of, layer_kinds, windowed
from planner.specs.model import Module
from planner.units import MS


@dataclass(frozen=True, slots=True)
class Pass:
    """Seconds of one pass, by cause; `compute` has what is recomputed in it."""

    compute: Number = 0.0
    tp: Number = 0.0
    cp: Number = 0.0
    ep: Number = 0.0

    @property
    def seconds(self) -> Number:
        return self.compute + self.tp + self.cp + self.ep

    def __add__(self, other: "Pass") -> "Pass":
        return Pass(self.compute + other.compute, self.tp + other.tp, self.cp + other.cp, self.ep + other.ep)

    def __mul__(self, times: Number) -> "Pass":
        return Pass(self.compute * times, self.tp * times, self.cp * times, self.ep * times)


@dataclass(frozen=True, slots=True)
class Passes:
    """Forward and backward of one micro-batch."""

    forward: Pass
    backward: Pass

    @property
    def seconds(self) -> Number:
        return self.forward.seconds + self.backward.seconds

    def __add__(self, other: "Passes") -> "Passes":
        return Passes(self.forward + other.forward, self.backward + other.backward)

    def __mul__(self, times: Number) -> "Passes":
        return Passes(self.forward * times, self.backward * times)


NOTHING = Passes(Pass(), Pass())


def mean_layer(module: Module, setup: Setup, machine: Machine) -> Passes:
    """The mean of all layers: kinds and windows alternate over the stages."""
    kinds = Counter((kind, windowed(module, index)) for index, kind in enumerate(layer_kinds(module)))
    total = NOTHING
    for (kind, window), count in sorted(kinds.items(), key=str):
        total += layer(module, kind, window, setup, machine) * (count / module.layers)
    return total


def layer(module: Module, kind: LayerKind, window: int | None, setup: Setup, machine: Machine) -> Passes:
    """One layer, with what of it is computed again in backward."""
    work = layer_work(module, kind, setup, window)
    core = work.attention
    assert core
    hidden = machine.attention(core, True), machine.attention(core, False)
    traffic = layer_traffic(module, kind, setup, machine, hidden)
    if kind == "moe" and not setup.balanced:
        fullest = 1.0 + machine.timing.imbalance / np.sqrt(local_experts(module, setup))
        work = replace(work, matmuls=tuple(unbalanced(p, fullest) for p in work.matmuls))
    forward = Pass(machine.forward(work, setup.precision), traffic.tp[0], traffic.cp[0], traffic.ep[0])
    again = recomputed(work, core, setup, machine) * (1.0 - setup.full)
    compute = machine.backward(work, setup.precision, trained(setup)) + again
    backward = Pass(compute, traffic.tp[1], traffic.cp[1], traffic.ep[1])
    host = machine.host(work, setup.tp)
    forward, backward = launched(forward, host), launched(backward, host)
    return Passes(forward, backward + forward * setup.full)


def launched(done: Pass, host: Number) -> Pass:
    """No sooner than the host has launched it: of device and host, the slower one sets the pace. Where they are about
    as quick, each waits for the other now and then: a maximum with a round corner, 2^¼ − 1 above it at the most.
    """
    seconds = done.seconds
    there, here = seconds * seconds, host * host
    both = np.sqrt(np.sqrt(there * there + here * here))  # powers of arrays are slow
    return replace(done, compute=done.compute + (both - seconds))


def trained(setup: Setup) -> int:
    """Products that backward computes for one of forward's."""
    return 1 if setup.adapters else 2


def local_experts(module: Module, setup: Setup) -> Number:
    """Of one rank. Choices of experts differ by chance: n of them together are off their mean by 1/√n of one alone."""
    moe = experts_of(module)
    return np.maximum(1.0, moe.experts / setup.ep) if moe else 1.0


def unbalanced(product: Matmul, fullest: Number) -> Matmul:
    """Of the rank whose experts have most tokens."""
    return replace(product, m=product.m * fullest) if product.grouped else product


def recomputed(work: Work, core: Attention, setup: Setup, machine: Machine) -> Number:
    """Seconds of what selective recomputation makes again in one layer."""
    seconds: Number = 0.0
    if "attention" in setup.again:
        seconds = seconds + machine.attention(core, True) + machine.scores(core)
    if "norm" in setup.again:
        seconds = seconds + 0.4 * machine.moved(work)  # two norms of the passes over memory
    mlp = [p for p in work.matmuls if p.grouped] if "moe" in setup.again else []
    if "mlp" in setup.again:
        mlp += [p for p in work.matmuls[-2:] if not p.grouped]
    for product in mlp:
        seconds = seconds + machine.matmul(product, setup.precision)
    return seconds


def head(module: Module, setup: Setup, machine: Machine) -> Passes:
    """What the last stage computes beside its layers: logits and loss."""
    work = head_work(module, setup)
    return Passes(
        Pass(compute=machine.forward(work, setup.precision)),
        Pass(compute=machine.backward(work, setup.precision, trained(setup))),
    )


@dataclass(frozen=True, slots=True)
class Stages:
    """One micro-batch on the first stage, on one between, and on the last; of all chunks of a rank together."""

    first: Passes
    middle: Passes
    last: Passes


def stages(module: Module, setup: Setup, machine: Machine) -> Stages:
    """Layers shared out over the stages: where they do not come out even, embedding and head may stand for one each."""
    each, outer = layers_of(module.layers, setup)
    per_layer, behind = mean_layer(module, setup, machine), head(module, setup, machine)
    pause = machine.timing.micro_batch_ms * MS
    constant = Passes(Pass(compute=pause), Pass(compute=pause))
    return Stages(per_layer * outer + constant, per_layer * each + constant, per_layer * outer + behind + constant)


def layers_of(layers: int, setup: Setup) -> tuple[Number, Number]:
    """Layers on a middle stage, and on the first and the last one."""
    chunks = setup.pp * setup.vpp
    even, ends = np.mod(layers, chunks) == 0, np.mod(layers + 2, chunks) == 0
    fullest = np.where(setup.vpp > 1, layers / setup.pp, np.ceil(layers / setup.pp))
    each = np.where(even, layers / setup.pp, np.where(ends & (setup.pp > 1), (layers + 2) / setup.pp, fullest))
    return each, np.where(ends & ~even & (setup.pp > 1), each - 1.0, each)
