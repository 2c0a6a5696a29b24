"""Seconds of passes at a device's rates, as cost lines over the items of a task: the closed form's own formulas.

Every formula of a layer is linear in the tokens of a rank, except attention, which grows with the pairs of tokens
(compute/machine_model.py), ring communication, which attention hides, and the host's launches, a lower bound for every
layer. So two token counts determine the linear part exactly, and the other three are terms of their own.
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

LINE_TOKENS = float(2**20)  # tokens of an item, the second point of a straight line


def pass_line(module: Module, at: Columns, machine: Machine, places: Places, forward: bool, recompute: Mixed) -> Line:
    """A pass over these layers, each as the mean of the module's; `recompute`: how many layers use which
    recomputation.
    """
    line = Line()
    for how, count in recompute:
        full, parts = recomputed(how)
        each = replace(at, parts=parts)
        line += mean_line(module, each, machine, places, forward) * count
        if full and not forward:
            line += mean_line(module, at, machine, places, True) * count
    return line


def mean_line(module: Module, at: Columns, machine: Machine, places: Places, forward: bool) -> Line:
    """One layer in the mean of all: kinds and windows alternate over the stages."""
    kinds = Counter((kind, module.window_of(index)) for index, kind in enumerate(layer_kinds(module)))
    line = Line()
    for (kind, window), count in sorted(kinds.items(), key=str):
        work = layer_work(module, kind, at, window)
        device = layer_compute_line(module, kind, window, at, machine, forward) + tp_ep_line(
            module, kind, at, machine, places, forward
        )
        host = float(machine.host(work, at.tp))
        launched = replace(device, launches=(Launched(1.0, device, host),))
        line += (launched + cp_line(module, work, at, machine, places, forward)) * (count / module.layers)
    return line


def layer_compute_line(
    module: Module, kind: LayerKind, window: int | None, at: Columns, machine: Machine, forward: bool
) -> Line:
    """Compute of one layer, with what it recomputes in part."""

    def body(work: Work) -> Number:
        own = machine.forward(work, at.dtype) if forward else machine.backward(work, at.dtype)
        return own if forward else own + remade(work, at, machine)

    line = linear_line(lambda tokens: body(layer_work(module, kind, replace(at, seq=tokens), window)))
    for recomputes in (False, True) if recomputes_attention(at, forward) else (False,):
        if "attention" in blocks(kind):
            line += attention_line(module, kind, window, at, machine, forward or recomputes)
        if "cross_attention" in blocks(kind):
            line += cross_attention_line(module, kind, at, machine, forward or recomputes)
    return line


def recomputes_attention(at: Columns, forward: bool) -> bool:
    """Whether this pass recomputes attention."""
    return not forward and "attention" in at.parts


def attention_line(
    module: Module, kind: LayerKind, window: int | None, at: Columns, machine: Machine, forward: bool
) -> Line:
    """Attention of one layer, in pairs of tokens of an item."""
    core = layer_work(module, kind, at, None).attention
    assert core
    per_pair, fill = machine.attention_terms(core, forward)
    ring, causal = float(at.ring), module.causal
    each = float(per_pair * core.heads * core.width) / ring
    scores = float(core.heads) * machine.timing.score_bytes / machine.bandwidth * (1.0 if forward else 2.0) / ring
    launch = Line(const=machine.attention_launch(core))
    if window is not None:
        windowed = (Windowed(each, fill * ring, window, causal), Windowed(scores, 0.0, window, causal))
        return launch + Line(windows=windowed if scores else windowed[:1])
    half = 0.5 if causal else 1.0
    return launch + Line(quad=(each + scores) * half, lin=each * half * fill * ring)


def cross_attention_line(module: Module, kind: LayerKind, at: Columns, machine: Machine, forward: bool) -> Line:
    """Cross attention of one layer: each token attends to as many as are read per token in the mean."""
    core = layer_work(module, kind, at).crossed
    assert core
    per_pair, fill = machine.attention_terms(core, forward)
    each = float(per_pair * core.heads * core.width) * at.reads
    scores = float(core.heads) * machine.timing.score_bytes / machine.bandwidth * (1.0 if forward else 2.0) * at.reads
    return Line(quad=each + scores, lin=each * fill, const=machine.attention_launch(core))


def tp_ep_line(module: Module, kind: LayerKind, at: Columns, machine: Machine, places: Places, forward: bool) -> Line:
    """Exposed communication of one layer's tp and expert ranks."""
    which = 0 if forward else 1

    def waited(tokens: float) -> Number:
        sized = replace(at, seq=tokens)
        return tensor(module, kind, sized, machine, places)[which] + experts(module, kind, sized, machine)[which]

    return exchange(waited)


def cp_line(module: Module, work: Work, at: Columns, machine: Machine, places: Places, forward: bool) -> Line:
    """Communication of the ranks that share an item: Ulysses' all-to-alls, and the ring of keys and values.

    None for a layer without attention.
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
    """Logits and loss, or what an encoder has behind its last layer."""

    def seconds(tokens: float) -> Number:
        work = head_work(module, replace(at, seq=tokens))
        return machine.forward(work, at.dtype) if forward else machine.backward(work, at.dtype)

    return linear_line(seconds)


def gradient_line(module: Module, at: Columns, machine: Machine, layers: float, embedding_head: bool) -> Line:
    """The weight gradients of a backward (W); its input gradients (I) are the rest."""

    def gradients(kind: LayerKind, tokens: float) -> Number:
        return machine.weights(layer_work(module, kind, replace(at, seq=tokens)), at.dtype)

    line = Line()
    for kind, count in sorted(Counter(layer_kinds(module)).items()):
        line += linear_line(partial(gradients, kind)) * (layers * count / module.layers)
    head = linear_line(lambda tokens: machine.weights(head_work(module, replace(at, seq=tokens)), at.dtype))
    return line + head if embedding_head else line


def memory_line(module: Module, at: Columns, part: Part, seconds: Callable[[Work], Number]) -> Line:
    """Seconds that the kernels of a pass spend on memory, from those of a forward: a backward moves twice as much, and
    once more where it recomputes the forward.
    """

    def taken(kind: LayerKind, tokens: float) -> Number:
        return seconds(layer_work(module, kind, replace(at, seq=tokens)))

    times = 1.0 if part.forward else 2.0
    layers, line = times * sum(count for _, count in part.again) + sent_again(part), Line()
    for kind, count in sorted(Counter(layer_kinds(module)).items()):
        line += linear_line(partial(taken, kind)) * (layers * count / module.layers)
    head = linear_line(lambda tokens: seconds(head_work(module, replace(at, seq=tokens))))
    return line + head * times if part.ends else line


def pause_line(at: Columns, machine: Machine) -> Line:
    """The constant of a pass on a stage, divided among the chunks of a rank."""
    return Line(const=machine.timing.micro_batch_ms * MS / float(at.vpp))


def linear_line(seconds: Callable[[float], Number]) -> Line:
    """The line through two token counts."""
    once = float(seconds(0.0))
    return Line(lin=(float(seconds(LINE_TOKENS)) - once) / LINE_TOKENS, const=once)


def exchange(seconds: Callable[[float], Number]) -> Line:
    """The same of exposed communication."""
    line = linear_line(seconds)
    return replace(line, comm_lin=line.lin, comm_const=line.const)
