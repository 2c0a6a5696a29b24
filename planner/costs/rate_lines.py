"""Seconds of passes at a device's rates, as cost lines over the items of a task: the closed form's own formulas.

Every formula of a layer is linear in the tokens of a rank, except attention, which grows with the pairs of tokens
(costs/machine_model.py), ring communication, which attention hides, and the host's launches, a lower bound for every
layer. So two token counts determine the linear part exactly, and the other three are terms of their own.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from planner.costs.compute.expert_load import routed_work
from planner.costs.compute.layer_work import LayerWork, head_work, kinds_and_windows, layer_work
from planner.costs.cost_lines import CostLine, LaunchTerm, RingTerm, WindowTerm
from planner.costs.layer_pass import LayerPass, RecomputeCounts, fully_recomputed_layers
from planner.costs.layout_columns import LayoutColumns, Number, recompute_columns
from planner.costs.machine_model import MachineModel
from planner.costs.network.expert_dispatch import expert_seconds
from planner.costs.network.layer_traffic import LayerGroups, ring_traffic, tensor_seconds, ulysses_seconds
from planner.costs.step.stage_seconds import recompute_seconds
from planner.specs.layers import Module, layer_kinds
from planner.specs.layers.blocks import LayerKind, attends, kind_blocks
from planner.units import MS

LINE_TOKENS = float(2**20)  # tokens of an item, the second point of a straight line
TOKEN_COUNTS = np.array([0.0, LINE_TOKENS])


def layers_line(
    module: Module,
    at: LayoutColumns,
    machine: MachineModel,
    places: LayerGroups,
    forward: bool,
    recompute: RecomputeCounts,
) -> CostLine:
    """A pass over these layers, each as the mean of the module's; `recompute`: how many layers use which
    recomputation.
    """
    line = CostLine()
    for how, count in recompute:
        full, parts = recompute_columns(how)
        each = replace(at, recomputed_parts=parts)
        line += mean_layer_line(module, each, machine, places, forward) * count
        if full and not forward:
            line += mean_layer_line(module, at, machine, places, True) * count
    return line


def mean_layer_line(
    module: Module, at: LayoutColumns, machine: MachineModel, places: LayerGroups, forward: bool
) -> CostLine:
    """One layer in the mean of all: kinds and windows alternate over the stages."""
    line = CostLine()
    for kind, window, share in kinds_and_windows(module):
        work = layer_work(module, kind, at, window)
        computed = layer_compute_line(module, kind, window, at, machine, forward)
        exposed, whole = (tp_ep_line(module, kind, at, each, places, forward) for each in (machine, machine.exposing))
        device = computed + exposed + not_hidden_line(whole + exposed * -1.0, computed)
        host = float(machine.host_seconds(work, at.tp, at.dtype))
        launched = replace(device, launches=(LaunchTerm(1.0, device, host),))
        for way in (False, True) if recomputes_attention(at, forward) else (forward,):
            launched += cp_line(module, work, at, machine, places, way)
        line += launched * share
    return line


def not_hidden_line(hidden: CostLine, computed: CostLine) -> CostLine:
    """What compute is too short to hide of communication that runs beside it, by tokens and once."""
    lin, const = max(0.0, hidden.lin - computed.lin), max(0.0, hidden.const - computed.const)
    return CostLine(lin=lin, const=const, comm_lin=lin, comm_const=const)


def layer_compute_line(
    module: Module, kind: LayerKind, window: int | None, at: LayoutColumns, machine: MachineModel, forward: bool
) -> CostLine:
    """Compute of one layer, with what it recomputes in part."""

    def body(work: LayerWork) -> Number:
        own = machine.forward(work, at.dtype) if forward else machine.backward(work, at.dtype)
        return own if forward else own + recompute_seconds(work, at, machine)

    line = linear_line(lambda tokens: body(routed_work(module, kind, replace(at, seq=tokens), machine.timing, window)))
    for recomputes in (False, True) if recomputes_attention(at, forward) else (False,):
        if attends(kind):
            line += attention_line(module, kind, window, at, machine, forward or recomputes)
        if "cross_attention" in kind_blocks(kind):
            line += cross_attention_line(module, kind, at, machine, forward or recomputes)
    return line


def recomputes_attention(at: LayoutColumns, forward: bool) -> bool:
    """Whether this pass recomputes attention."""
    return not forward and "attention" in at.recomputed_parts


def attention_line(
    module: Module, kind: LayerKind, window: int | None, at: LayoutColumns, machine: MachineModel, forward: bool
) -> CostLine:
    """Attention of one layer, in pairs of tokens of an item."""
    core = layer_work(module, kind, at, None).attention
    assert core
    per_pair, fill = machine.attention_terms(core, forward)
    ring, causal = float(at.ring), module.causal
    each = float(per_pair * core.heads * core.width) / ring
    scores = float(core.heads) * machine.score_terms(core, forward) / ring
    launch = CostLine(const=machine.attention_launch(core))
    index = layer_work(module, kind, at, None).index
    if index:
        scored = float(machine.attention_terms(index, forward)[0] * index.heads * index.width)
        launch += CostLine(quad=scored * (0.5 if causal else 1.0), const=machine.attention_launch(index))
    if window is not None:
        windowed = (WindowTerm(each, fill * ring, window, causal), WindowTerm(scores, 0.0, window, causal))
        return launch + CostLine(windows=windowed if scores else windowed[:1])
    half = 0.5 if causal else 1.0
    return launch + CostLine(quad=(each + scores) * half, lin=each * half * fill * ring)


def cross_attention_line(
    module: Module, kind: LayerKind, at: LayoutColumns, machine: MachineModel, forward: bool
) -> CostLine:
    """Cross attention of one layer, in pairs of a token and an output that it attends to."""
    core = layer_work(module, kind, at).cross_attention
    assert core
    per_pair, fill = machine.attention_terms(core, forward)
    each = float(per_pair * core.heads * core.width) * float(at.cross_pairs)
    scores = float(core.heads) * machine.score_terms(core, forward)
    return CostLine(quad=each + scores * float(at.cross_pairs), lin=each * fill, const=machine.attention_launch(core))


def tp_ep_line(
    module: Module, kind: LayerKind, at: LayoutColumns, machine: MachineModel, places: LayerGroups, forward: bool
) -> CostLine:
    """Exposed communication of one layer's tp and expert ranks; where backward recomputes the experts, tokens are
    dispatched once more.
    """
    which = 0 if forward else 1
    dispatched = (0, 1) if not forward and "moe" in at.recomputed_parts else (which,)

    def waited(tokens: Number) -> Number:
        sized = replace(at, seq=tokens)
        experts = expert_seconds(module, kind, sized, machine)
        return tensor_seconds(module, kind, sized, machine, places)[which] + sum(experts[each] for each in dispatched)

    return exchange(waited)


def cp_line(
    module: Module, work: LayerWork, at: LayoutColumns, machine: MachineModel, places: LayerGroups, forward: bool
) -> CostLine:
    """Communication of the ranks that share an item: Ulysses' all-to-alls, and the ring of keys and values.

    None for a layer without attention.
    """
    if work.attention is None:
        return CostLine()
    line = exchange(lambda tokens: ulysses_seconds(module, replace(at, seq=tokens), machine, places))
    if at.ring == 1:
        return line
    sent = ring_traffic(module, at, machine, work.attention, forward, places)
    moved = max(0.0, float(sent.send_seconds - sent.linear))
    return line + CostLine(
        const=float(sent.once), comm_const=float(sent.once), rings=(RingTerm(moved, float(sent.squared)),)
    )


def head_line(module: Module, at: LayoutColumns, machine: MachineModel, forward: bool) -> CostLine:
    """Logits and loss, or what an encoder has behind its last layer."""

    def seconds(tokens: Number) -> Number:
        work = head_work(module, replace(at, seq=tokens))
        return machine.forward(work, at.dtype) if forward else machine.head_backward(module, work, at.dtype)

    return linear_line(seconds)


def weight_gradient_line(
    module: Module, at: LayoutColumns, machine: MachineModel, layers: float, embedding_head: bool
) -> CostLine:
    """The weight gradients of a backward (W); its input gradients (I) are the rest."""

    def gradients(kind: LayerKind, tokens: Number) -> Number:
        work = routed_work(module, kind, replace(at, seq=tokens), machine.timing)
        return machine.weight_gradient_seconds(work, at.dtype)

    line = CostLine()
    for kind, count in sorted(Counter(layer_kinds(module)).items()):
        line += linear_line(partial(gradients, kind)) * (layers * count / module.layers)
    head = linear_line(
        lambda tokens: machine.weight_gradient_seconds(head_work(module, replace(at, seq=tokens)), at.dtype)
    )
    return line + head if embedding_head else line


def memory_traffic_line(
    module: Module, at: LayoutColumns, part: LayerPass, seconds: Callable[[LayerWork], Number]
) -> CostLine:
    """Seconds that the kernels of a pass spend on memory, from those of a forward: a backward moves twice as much, and
    once more where it recomputes the forward.
    """

    def taken(kind: LayerKind, tokens: Number) -> Number:
        return seconds(layer_work(module, kind, replace(at, seq=tokens)))

    times = 1.0 if part.forward else 2.0
    layers, line = times * sum(count for _, count in part.recompute) + fully_recomputed_layers(part), CostLine()
    for kind, count in sorted(Counter(layer_kinds(module)).items()):
        line += linear_line(partial(taken, kind)) * (layers * count / module.layers)
    head = linear_line(lambda tokens: seconds(head_work(module, replace(at, seq=tokens))))
    return line + head * times if part.embedding_head else line


def stage_constant_line(at: LayoutColumns, machine: MachineModel) -> CostLine:
    """The constant of a pass on a stage, divided among the chunks of a rank."""
    return CostLine(const=machine.timing.micro_batch_ms * MS / float(at.vpp))


def linear_line(seconds: Callable[[Number], Number]) -> CostLine:
    """The line through two token counts, asked for at once."""
    once, taken = (float(each) for each in np.broadcast_to(seconds(TOKEN_COUNTS), TOKEN_COUNTS.shape))
    return CostLine(lin=(taken - once) / LINE_TOKENS, const=once)


def exchange(seconds: Callable[[Number], Number]) -> CostLine:
    """The line through two token counts of exposed communication."""
    line = linear_line(seconds)
    return replace(line, comm_lin=line.lin, comm_const=line.const)
