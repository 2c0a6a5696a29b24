"""Operators of a recording with the shapes of their inputs, and what each took: of rates of kernels the measurements.

With a device an operator's seconds are those of the kernels that it launched, joined by `External id`; on a CPU its
own, without those of the operators within it. Shapes are recorded with `record_shapes=True`.
"""

from collections.abc import Iterable, Iterator, Sequence
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from planner.errors import InputError
from planner.replay.recording.kineto_events import (
    NO_ARGS,
    NOTHING,
    EventArgs,
    EventDecoder,
    parse_int,
    parse_number,
)
from planner.replay.recording.recorded_names import HOST_COLLECTIVE
from planner.units import US

ELEMENT_BYTES = {
    "double": 8, "long int": 8, "float": 4, "int": 4, "c10::BFloat16": 2, "c10::Half": 2, "bool": 1,
    "unsigned char": 1, "signed char": 1, "c10::Float8_e4m3fn": 1, "c10::Float8_e5m2": 1,
    "Float": 4, "BFloat16": 2, "Half": 2, "Double": 8, "Long": 8, "Int": 4, "Byte": 1, "Char": 1,
}  # fmt: skip
NONE = -2  # an id that no operator has


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


def read_operators(path: Path) -> RecordedWork:
    """Read the operators of the trace at `path`. Raises InputError where none has shapes."""
    spans, kernels, messages = [], dict[int, float](), []
    for event in (event for events in EventDecoder(path).events() for event in events if event.ph == "X"):
        args, category = event.args or NO_ARGS, (event.cat or "").lower()
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
            messages.append(SentMessage(start * US, sum(bytes_of(tensors(args)))))
        elif category == "cpu_op":
            spans.append((str(event.tid), start, -duration, event.name or "", args))
    spans.sort(key=lambda span: span[:3])
    seconds = [kernels.get(parse_int(args.external, NONE), 0.0) for *_, args in spans] if kernels else own_time(spans)
    found = [shaped(name, args, taken * US) for (*_, name, args), taken in zip(spans, seconds, strict=True)]
    if not any(args.dims != NOTHING for *_, args in spans):
        what = "the trace has no shapes of operators"
        raise InputError(what, where=str(path), fix="record with record_shapes=True, as `planner run --record` does")
    return RecordedWork(found, sorted(messages))


def own_time(spans: Sequence[tuple[Any, ...]]) -> list[float]:
    """What each span (thread, start, −duration, …) took without those within it; `spans` in that order."""
    own = [-span[2] for span in spans]
    opened: list[int] = []
    for i, (thread, start, length, *_) in enumerate(spans):
        while opened and (spans[opened[-1]][0] != thread or spans[opened[-1]][1] - spans[opened[-1]][2] <= start):
            opened.pop()
        if opened:
            own[opened[-1]] += length
        opened.append(i)
    return own


def shaped(name: str, args: EventArgs, seconds: float) -> ShapedOperator:
    """An operator from what its event says."""
    inputs = [*tensors(args)]
    sizes, given = bytes_of(inputs), msgspec.json.decode(args.inputs)
    causal = isinstance(given, list) and "True" in given
    dtype = next((dtype for _, dtype in inputs if dtype), "")
    moved = sum(sizes) + max(sizes, default=0)
    return ShapedOperator(name, tuple(shape for shape, _ in inputs), dtype, moved, causal, max(0.0, seconds))


def bytes_of(inputs: Iterable[tuple[tuple[int, ...], str]]) -> list[int]:
    """Bytes of each of some tensors."""
    return [prod(shape) * ELEMENT_BYTES.get(dtype, 4) for shape, dtype in inputs]


def tensors(args: EventArgs) -> Iterator[tuple[tuple[int, ...], str]]:
    """Shape and dtype of each input that is a tensor, or in a list of them."""
    dims, types = msgspec.json.decode(args.dims), msgspec.json.decode(args.types)
    for shape, name in zip(dims, types, strict=False) if isinstance(dims, list) and isinstance(types, list) else ():
        if isinstance(shape, list) and shape and all(isinstance(size, int) for size in shape):
            yield tuple(shape), str(name)
        elif isinstance(shape, list):
            yield from ((tuple(each), "float") for each in shape if isinstance(each, list) and each)
