"""Laws of edges between modules: what is read has the right width, has room in its readers, and is in the same step."""

from collections.abc import Iterator

from planner.plan.legal.violation import Violation
from planner.plan.plan_file import Edge, Plan, Step, assignments
from planner.plan.tokens.encoder_outputs import fed_spans, fed_tokens
from planner.specs.layers import Module, kind_counts
from planner.specs.layers.blocks import kind_blocks, only_reads
from planner.specs.model import ModelEdge, no_outputs, reference_fault, trained_reference


def feed_laws(plan: Plan) -> Iterator[Violation]:
    """Outputs have the width that readers expect, an item has room for all that it reads, each encoder is read."""
    yield from unread_module_laws(plan)
    for at, edge in enumerate(plan.edges):
        yield from (Violation(f"edges[{at}]", *fault) for fault in width_laws(plan, edge))
        yield from (Violation(f"edges[{at}]", *fault) for fault in reshard_laws(plan, edge))
    yield from cross_attention_laws(plan)
    for (module, item), tokens in fed_tokens(plan).items():
        size = plan.uses.tokens(module, item)
        if tokens > size:
            message = f"item {item} of `{module}` has {size} tokens, and {tokens} outputs of encoders stand for them"
            yield Violation("uses.feeds", message, "count them into its tokens, or feed another item")
    for number, step in enumerate(plan.steps):
        yield from (Violation(f"steps[{number}]", *fault) for fault in same_step_laws(plan, step))


def same_step_laws(plan: Plan, step: Step) -> Iterator[tuple[str, str]]:
    """An encoder item and its readers are in the same step."""
    fed = fed_spans(plan)
    assigned = {
        (a.module, item)
        for micro_batch in step.micro_batches
        for a in assignments(plan, micro_batch)
        for item in a.items
    }
    for module, item in sorted(assigned & fed.keys()):
        for target, read in (span.target for span in fed[module, item] if span.target not in assigned):
            message = f"item {item} of `{module}` feeds item {read} of `{target}`, which is in another step"
            yield message, "put both in one step"


def cross_attention_laws(plan: Plan) -> Iterator[Violation]:
    """Each item of a module reads some outputs, where a layer has attention and cross attention: in layers of cross
    attention alone, the tokens of an item that reads nothing stay as they are.
    """
    read = fed_tokens(plan, "cross_attention")
    for name in plan.layouts:
        kinds = kind_counts(plan.uses.models[name])
        if not any("cross_attention" in kind_blocks(kind) and not only_reads(kind) for kind in kinds):
            continue
        unfed = next((item for item in sorted(plan.uses.items[name]) if (name, item) not in read), None)
        if unfed is not None:
            message = f"cross attention of `{name}` has nothing to read for item {unfed}"
            fix = "feed it an item of an encoder, over an edge by: cross_attention"
            yield Violation("uses.feeds", message, fix)


def reshard_laws(plan: Plan, edge: Edge) -> Iterator[tuple[str, str]]:
    """`reshard` states what follows from the readers' groups."""
    micro_batches = (micro_batch for step in plan.steps for micro_batch in step.micro_batches)
    reading = {
        a.group for micro_batch in micro_batches for a in assignments(plan, micro_batch) if a.module == edge.target
    }
    layout = plan.layouts[edge.target]
    rings = sorted(name for name in reading if plan.groups[name].resolved_split(layout).ring > 1)
    if rings and edge.reshard == "contiguous":
        yield f"group {rings[0]} of `{edge.target}` is a ring, and reads in zig-zag", "reshard: zigzag"
    elif reading and not rings and edge.reshard == "zigzag":
        yield f"no group of `{edge.target}` is a ring that reads in zig-zag", "reshard: contiguous"


def width_laws(plan: Plan, edge: Edge) -> Iterator[tuple[str, str]]:
    """Outputs are as wide as the reader's hidden size, or as its cross attention expects."""
    source, reader = plan.uses.models[edge.source], plan.uses.models[edge.target]
    out, hidden = source.feature_width, reader.hidden
    if edge.by == "log_probabilities":
        yield from reference_laws(edge, source, reader)
    elif not out:
        yield no_outputs(edge.source, edge.target), "let an encoder feed it"
    elif edge.by == "cross_attention":
        if not reader.cross_attention_width:
            yield f"`{edge.target}` has no cross attention", f"set its cross to {out}, or by: tokens"
        elif out != reader.cross_attention_width:
            message = f"outputs of `{edge.source}` are {out} wide, cross attention of `{edge.target}` reads"
            yield f"{message} {reader.cross_attention_width}", f"set cross to {out}"
    elif out != hidden:
        message = f"outputs of `{edge.source}` are {out} wide, the tokens of `{edge.target}` {hidden}"
        yield message, f"set out to {hidden}"


def reference_laws(edge: Edge, source: Module, reader: Module) -> Iterator[tuple[str, str]]:
    """Log-probabilities are of the same words, and of a frozen module: they are constants of the loss."""
    fault = reference_fault(ModelEdge(source=edge.source, target=edge.target, by=edge.by), source, reader)
    if fault:
        message, _, fix = fault.partition(" | ")
        yield message, fix
    elif source.trained != "none":
        yield trained_reference(edge.source), "trained: none in uses.models"


def unread_module_laws(plan: Plan) -> Iterator[Violation]:
    """In a plan of several modules, some module reads the outputs of each encoder, or a task's loss does."""
    if plan.uses.tasks:
        return
    sources = {edge.source for edge in plan.edges}
    for name in plan.layouts if len(plan.layouts) > 1 else ():
        if name not in sources and plan.uses.models[name].feature_width:
            fix = f"add an edge from it, or remove layouts.{name}"
            yield Violation(f"layouts.{name}", f"no module reads the outputs of `{name}`", fix)
