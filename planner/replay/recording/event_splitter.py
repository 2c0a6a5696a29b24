"""Splits the bytes of a trace into whole events chunk by chunk, so that they need not all be in memory as objects.

Everything outside the list of events is kept as it is, with that list left empty, so a JSON decoder reads both parts.
Events are cut where the last one of a chunk seems to end. If what lies before is no list, that place is in a text, in
an event or behind the list; then brackets, commas and quotes are located, to find where events do end.
"""

import re
from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec
import numpy as np

KEY = re.compile(rb'"traceEvents"\s*:\s*\[\Z')
NEAR = 64  # bytes before a bracket in which its key is looked for
DEPTH_CHANGE = np.zeros(256, dtype=np.int8)  # change of nesting depth by byte
DEPTH_CHANGE[[*b"[{"]], DEPTH_CHANGE[[*b"]}"]] = 1, -1
IS_SEPARATOR = DEPTH_CHANGE != 0
IS_SEPARATOR[ord(",")] = True
Event = TypeVar("Event")


class EventSplitter(Generic[Event]):
    """Takes the chunks of a file in order and decodes the events that they complete."""

    def __init__(self, decode: Callable[[bytes], list[Event]]) -> None:
        self.decode = decode
        self.rest = b""  # everything outside the list of events
        self.pending = b""  # the beginning of an incomplete event
        self.inside_events, self.ended = False, False

    def feed(self, chunk: bytes) -> list[Event]:
        """Take a chunk; return the events that it completes. Raises msgspec.DecodeError."""
        if self.ended:
            self.rest += chunk
            return []
        data = self.pending + chunk
        if not self.inside_events:
            data = self.rest + chunk
            begin = list_begin(data)
            self.rest = data[:begin]
            if not begin:
                self.rest = data
                return []
            data, self.inside_events = data[begin:], True
        cut = data.rfind(b"},") + 1
        try:
            found = self.decode(b"[" + data[:cut] + b"]")
        except msgspec.DecodeError:
            return self.exactly(data)
        self.pending = data[cut + 1 :] if cut else data
        return found

    def finish(self) -> list[Event]:
        """The events that are left when all chunks were fed. Raises msgspec.DecodeError."""
        return self.exactly(self.pending) if self.inside_events else []

    def exactly(self, data: bytes) -> list[Event]:
        """Events up to the last that is whole, or to the end of the list."""
        at, depth = separators(data)
        over = np.flatnonzero(depth < 0)
        if len(over):
            cut = int(at[over[0]])
            self.rest, self.pending = self.rest + data[cut:], b""
            self.ended, self.inside_events = True, False
        else:
            between = at[(depth == 0) & (np.frombuffer(data, dtype=np.uint8)[at] == ord(","))]
            cut = int(between[-1]) if len(between) else 0
            self.pending = data[cut + 1 :] if cut else data
        return self.decode(b"[" + data[:cut] + b"]")


def separators(data: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Positions of brackets and commas outside texts, and the depth after each; (separators,) each."""
    codes = np.frombuffer(data, dtype=np.uint8)
    quotes, slashes = np.flatnonzero(codes == ord('"')), np.flatnonzero(codes == ord("\\"))
    if len(slashes):  # of those next to each other every second one is escaped by the one before
        begins = np.concatenate([[True], np.diff(slashes) != 1])
        place = slashes - slashes[begins][np.cumsum(begins) - 1]
        quotes = quotes[~np.isin(quotes, slashes[place % 2 == 0] + 1)]
    at = np.flatnonzero(IS_SEPARATOR[codes])
    at = at[np.searchsorted(quotes, at) % 2 == 0]
    return at, np.cumsum(DEPTH_CHANGE[codes[at]], dtype=np.int64)


def list_begin(data: bytes) -> int:
    """Position after the bracket that opens the list of events; 0: there is none."""
    at, depth = separators(data)
    opened = (np.frombuffer(data, dtype=np.uint8)[at] == ord("[")) & (depth <= 2)
    ends = zip((at[opened] + 1).tolist(), depth[opened].tolist(), strict=True)
    return next((end for end, deep in ends if deep == 1 or KEY.search(data[max(0, end - NEAR) : end])), 0)
