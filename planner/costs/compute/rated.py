"""Seconds of passes at a device's rates, as lines over the items of a task: the closed form's own formulas.

Every formula of a layer is a straight line in the tokens of a rank, but for attention, which grows with the pairs of
tokens (compute/machine.py), a ring, which it hides, and the host, which no layer outruns. So two token counts tell the
line exactly, and those three stand beside it.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from planner.costs.columns import Columns, Number, recomputed
from planner.costs.compute.lines import Launched, Line, Ring, Windowed
from planner.costs.compute.machine import Machine
from planner.costs.compute.work import Work, head_work, layer_work
from planner.costs.network.traffic import Places, experts, ring, tensor, ulysses
from planner.costs.part import Mixed, Part, sent_again
from planner.costs.step.stage import remade
from planner.specs.layers import Module, layer_kinds
from planner.specs.layers.blocks import LayerKind, blocks
from planner.units import MS

FAR = float(2**20)  # tokens of an item at which a straight line is read off


def pass_line(module: Module, at: Columns, machine: Machine, places: Places, forward: bool, again: Mixed) -> Line:
    """All these layers, each as the mean of the module's; `again`: how many of them make what again in backward."""
    line = Line()
    for how, count in again:
        full, parts = recomputed(how)
        each = replace(at, parts=parts)
        line += mean_line(module, each, machine, places, forward) * count
        if full and not forward:
            line += mean_line(module, at, machine, places, True) * count
    return line


def mean_line(module: Module, at: Columns, machine: Machine, places: Places, forward: bool) -> Line:
    """A layer in the mean of all: kinds and windows alternate over the stages."""
    kinds = Counter((kind, module.window_of(index)) for index, kind in enumerate(layer_kinds(module)))
    line = Line()
    for (kind, window), count in sorted(kinds.items(), key=str):
        work = layer_work(module, kind, at, window)
        device = device_line(module, kind, window, at, machine, forward) + waits_line(
            module, kind, at, machine, places, forward
        )
        host = float(machine.host(work, at.tp))
        launched = replace(device, launches=(Launched(1.0, device, host),))
        line += (launched + around_line(module, work, at, machine, places, forward)) * (count / module.layers)
    return line


def device_line(
    module: Module, kind: LayerKind, window: int | None, at: Columns, machine: Machine, forward: bool
) -> Line:
    """What one layer computes, with what it makes again in part."""

    def body(work: Work) -> Number:
        own = machine.forward(work, at.dtype) if forward else machine.backward(work, at.dtype)
        return own if forward else own + remade(work, at, machine)

    line = straight(lambda tokens: body(layer_work(module, kind, replace(at, seq=tokens), window)))
    for again in (False, True) if again_attended(at, forward) else (False,):
        if "attention" in blocks(kind):
            line += attention_line(module, kind, window, at, machine, forward or again)
        if "cross_attention" in blocks(kind):
            line += crossed_line(module, kind, at, machine, forward or again)
    return line


def again_attended(at: Columns, forward: bool) -> bool:
    return not forward and "attention" in at.parts


def attention_line(
    module: Module, kind: LayerKind, window: int | None, at: Columns, machine: Machine, forward: bool
) -> Line:
    """One layer's, in pairs of tokens of an item."""
    core = layer_work(module, kind, at, None).attention
    assert core
    per_pair, fill = machine.attention_terms(core, forward)
    ring, causal = float(at.ring), module.causal
    each = float(per_pair * core.heads * core.width) / ring
    scores = float(core.heads) * machine.timing.score_bytes / machine.bandwidth * (1.0 if forward else 2.0) / ring
    launch = Line(const=machine.attention_launch(core))
    if window is not None:
        seen = (Windowed(each, fill * ring, window, causal), Windowed(scores, 0.0, window, causal))
        return launch + Line(windows=seen if scores else seen[:1])
    half = 0.5 if causal else 1.0
    return launch + Line(quad=(each + scores) * half, lin=each * half * fill * ring)


def crossed_line(module: Module, kind: LayerKind, at: Columns, machine: Machine, forward: bool) -> Line:
    """One layer's cross attention, in pairs of a token and one that is read: as many for each as in the mean."""
    core = layer_work(module, kind, at).crossed
    assert core
    per_pair, fill = machine.attention_terms(core, forward)
    each = float(per_pair * core.heads * core.width) * at.reads
    scores = float(core.heads) * machine.timing.score_bytes / machine.bandwidth * (1.0 if forward else 2.0) * at.reads
    return Line(quad=each + scores, lin=each * fill, const=machine.attention_launch(core))


def waits_line(module: Module, kind: LayerKind, at: Columns, machine: Machine, places: Places, forward: bool) -> Line:
    """What one layer's ranks of tp and of experts wait for each other."""
    which = 0 if forward else 1

    def waited(tokens: float) -> Number:
        some = replace(at, seq=tokens)
        return tensor(module, kind, some, machine, places)[which] + experts(module, kind, some, machine)[which]

    return exchange(waited)


def around_line(module: Module, work: Work, at: Columns, machine: Machine, places: Places, forward: bool) -> Line:
    """What the ranks that share out an item send each other: heads for tokens, keys and values around a ring.

    Of a layer without attention, nothing.
    """
    if work.attention is None:
        return Line()
    line = exchange(lambda tokens: ulysses(module, replace(at, seq=tokens), machine, places))
    if at.ring == 1:
        return line
    sent = ring(module, at, machine, work.attention, forward, places)
    moved = max(0.0, float(sent.moved - sent.linear))
    return line + Line(const=float(sent.once), comm_const=float(sent.once), rings=(Ring(moved, float(sent.squared)),))


def head_line(module: Module, at: Columns, machine: Machine, forward: bool) -> Line:
    """What stands behind the last layer."""

    def seconds(tokens: float) -> Number:
        work = head_work(module, replace(at, seq=tokens))
        return machine.forward(work, at.dtype) if forward else machine.backward(work, at.dtype)

    return straight(seconds)


def gradient_line(module: Module, at: Columns, machine: Machine, layers: float, ends: bool) -> Line:
    """What of a backward makes gradients of weights (W); the rest (I) makes those of inputs, and waits for others."""

    def made(kind: LayerKind, tokens: float) -> Number:
        return machine.weights(layer_work(module, kind, replace(at, seq=tokens)), at.dtype)

    line = Line()
    for kind, count in sorted(Counter(layer_kinds(module)).items()):
        line += straight(partial(made, kind)) * (layers * count / module.layers)
    behind = straight(lambda tokens: machine.weights(head_work(module, replace(at, seq=tokens)), at.dtype))
    return line + behind if ends else line


def memory_line(module: Module, at: Columns, part: Part, seconds: Callable[[Work], Number]) -> Line:
    """Of a pass, what its kernels take of memory, by what those of a forward do: a backward goes over it twice, and
    once more where it makes the forward again.
    """

    def taken(kind: LayerKind, tokens: float) -> Number:
        return seconds(layer_work(module, kind, replace(at, seq=tokens)))

    times = 1.0 if part.forward else 2.0
    layers, line = times * sum(count for _, count in part.again) + sent_again(part), Line()
    for kind, count in sorted(Counter(layer_kinds(module)).items()):
        line += straight(partial(taken, kind)) * (layers * count / module.layers)
    behind = straight(lambda tokens: seconds(head_work(module, replace(at, seq=tokens))))
    return line + behind * times if part.ends else line


def pause_line(at: Columns, machine: Machine) -> Line:
    """What a pass on a stage takes however small it is; of all chunks of a rank together."""
    return Line(const=machine.timing.micro_batch_ms * MS / float(at.vpp))


def straight(seconds: Callable[[float], Number]) -> Line:
    """The line through two token counts."""
    once = float(seconds(0.0))
    return Line(lin=(float(seconds(FAR)) - once) / FAR, const=once)


def exchange(seconds: Callable[[float], Number]) -> Line:
    """The same of what ranks wait for."""
    line = straight(seconds)
    return replace(line, comm_lin=line.lin, comm_const=line.const)
