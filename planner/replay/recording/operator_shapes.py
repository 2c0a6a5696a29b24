"""Operators of a recording with the shapes of their inputs, and what each took: of rates of kernels the measurements.

With a device an operator's seconds are those of the kernels that it launched, joined by `External id`; on a CPU its
own, without those of the operators within it. Shapes are recorded with `record_shapes=True`.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from planner.errors import InputError
from planner.replay.recording.kineto_events import EventDecoder, NumberOrText, parse_int, parse_number
from planner.replay.recording.recorded_names import HOST_COLLECTIVE
from planner.units import US

ELEMENT_BYTES = {
    "double": 8, "long int": 8, "float": 4, "int": 4, "c10::BFloat16": 2, "c10::Half": 2, "bool": 1,
    "unsigned char": 1, "signed char": 1, "c10::Float8_e4m3fn": 1, "c10::Float8_e5m2": 1,
    "Float": 4, "BFloat16": 2, "Half": 2, "Double": 8, "Long": 8, "Int": 4, "Byte": 1, "Char": 1,
}  # fmt: skip


class ShapedArgs(msgspec.Struct, gc=False):
    """The `args` of an event that say what it worked on."""

    dims: Any = msgspec.field(default=None, name="Input Dims")
    types: Any = msgspec.field(default=None, name="Input type")
    inputs: Any = msgspec.field(default=None, name="Concrete Inputs")
    external: NumberOrText = msgspec.field(default=None, name="External id")
    elements: NumberOrText = msgspec.field(default=None, name="In msg nelems")
    dtype: Any = None


class ShapedEvent(msgspec.Struct, gc=False):
    """One event of a Chrome trace, with the shapes of its inputs."""

    ph: str = ""
    cat: str | None = None
    name: str | None = None
    tid: NumberOrText = None
    ts: NumberOrText = None
    dur: NumberOrText = None
    args: ShapedArgs | None = None


class ShapedOperator(NamedTuple):
    """An operator."""

    name: str
    shapes: tuple[tuple[int, ...], ...]  # of its inputs that are tensors
    dtype: str  # of the first
    moved: int  # bytes of its inputs, and of an output as large as the largest
    causal: bool  # whether a flag says so, of attention
    seconds: float


class SentMessage(NamedTuple):
    """What one rank gives to a collective."""

    start: float  # seconds, as the trace has them
    moved: int  # bytes


class RecordedWork(NamedTuple):
    """The operators of one trace, and its messages in the order of their start."""

    operators: list[ShapedOperator]
    messages: list[SentMessage]
    on_device: bool


def read_operators(path: Path) -> RecordedWork:
    """Read the operators of the trace at `path`. Raises InputError where none has shapes."""
    spans, kernels, messages = [], dict[int, float](), []
    for event in spans_of(path):
        args, category = event.args or ShapedArgs(), (event.cat or "").lower()
        start, duration = parse_number(event.ts), parse_number(event.dur)
        if start is None or duration is None:
            continue
        if category == "kernel":
            external = parse_int(args.external)
            kernels[external] = kernels.get(external, 0.0) + duration
            if args.elements is not None:
                size = ELEMENT_BYTES.get(str(args.dtype), 1)
                messages.append(SentMessage(start * US, parse_int(args.elements, 0) * size))
        elif (event.name or "").startswith(HOST_COLLECTIVE):
            messages.append(SentMessage(start * US, sum(input_sizes(args)[0])))
        elif category == "cpu_op":
            spans.append((str(event.tid), start, -duration, event))
    on_device = bool(kernels)
    if not any(event.args and event.args.dims for *_, event in spans):
        what = "the trace has no shapes of operators"
        raise InputError(what, where=str(path), fix="record with record_shapes=True, as `planner run --record` does")
    seconds = None if not on_device else {number: taken for number, taken in kernels.items() if number >= 0}
    return RecordedWork([*operators(spans, seconds)], sorted(messages), on_device)


def spans_of(path: Path) -> Iterator[ShapedEvent]:
    """Complete events of a trace. Raises InputError."""
    for events in EventDecoder(path, ShapedEvent).events():
        yield from (event for event in events if event.ph == "X")


def operators(spans: list[Any], on_device: dict[int, float] | None) -> Iterator[ShapedOperator]:
    """Operators from their spans (thread, start, −duration, event), with what they took by themselves; `on_device`:
    seconds of kernels by the id of the operator that launched them.
    """
    spans.sort(key=lambda span: span[:3])
    own = [-span[2] for span in spans]
    opened: list[int] = []
    for i, (thread, start, length, _) in enumerate(spans):
        while opened and (spans[opened[-1]][0] != thread or spans[opened[-1]][1] - spans[opened[-1]][2] <= start):
            opened.pop()
        if opened:
            own[opened[-1]] += length
        opened.append(i)
    for (*_, event), seconds in zip(spans, own, strict=True):
        args = event.args or ShapedArgs()
        taken = seconds if on_device is None else on_device.get(parse_int(args.external), 0.0)
        sizes, shapes, dtype = input_sizes(args)
        moved = sum(sizes) + max(sizes, default=0)
        causal = isinstance(args.inputs, list) and "True" in args.inputs
        yield ShapedOperator(event.name or "", shapes, dtype, moved, causal, max(0.0, taken) * US)


def input_sizes(args: ShapedArgs) -> tuple[list[int], tuple[tuple[int, ...], ...], str]:
    """Bytes and shape of each input, and the dtype of the first."""
    shapes, sizes, dtype = [], [], ""
    for dims, name in tensors(args.dims, args.types):
        count = 1
        for size in dims:
            count *= size
        shapes.append(dims)
        sizes.append(count * ELEMENT_BYTES.get(name, 4))
        dtype = dtype or name
    return sizes, tuple(shapes), dtype


def tensors(dims: Any, types: Any) -> Iterator[tuple[tuple[int, ...], str]]:
    """Shape and dtype of each input that is a tensor, or in a list of them."""
    for shape, name in zip(dims, types, strict=False) if isinstance(dims, list) and isinstance(types, list) else ():
        if isinstance(shape, list) and shape and all(isinstance(size, int) for size in shape):
            yield tuple(shape), str(name)
        elif isinstance(shape, list):
            yield from ((tuple(each), "float") for each in shape if isinstance(each, list) and each)
