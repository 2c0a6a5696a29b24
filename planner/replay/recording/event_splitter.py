"""Splits the bytes of a trace into whole events chunk by chunk, so that they need not all be in memory as objects.

Everything outside the list of events is kept as it is, with that list left empty, so a JSON decoder reads both parts.
Brackets, commas and quotes are located with numpy; what lies between them is not parsed here.
"""

import re

import numpy as np

KEY = re.compile(rb'"traceEvents"\s*:\s*\[\Z')
NEAR = 64  # bytes before a bracket in which its key is looked for
QUOTE, BACKSLASH, COMMA = ord('"'), ord("\\"), ord(",")
DEPTH_CHANGE = np.zeros(256, dtype=np.int8)  # change of nesting depth by byte
DEPTH_CHANGE[[ord("["), ord("{")]], DEPTH_CHANGE[[ord("]"), ord("}")]] = 1, -1
IS_SEPARATOR = DEPTH_CHANGE != 0
IS_SEPARATOR[COMMA] = True


class EventSplitter:
    """Takes the chunks of a file in order and returns the events that they complete."""

    def __init__(self) -> None:
        self.rest = bytearray()  # everything outside the list of events
        self.pending = bytearray()  # the beginning of an incomplete event
        self.depth, self.list_depth = 0, 0  # current depth; depth of the list of events, 0: outside it
        self.quoted, self.escaped = False, False

    @property
    def inside_events(self) -> bool:
        """Whether the list of events has begun and has not ended."""
        return self.list_depth > 0

    def feed(self, chunk: bytes) -> bytes:
        """Take a chunk; return the bytes of the events that it completes, separated by commas."""
        at, depth, codes = self.marks(chunk)
        found: list[bytes] = []
        place = 0
        while True:
            if not self.list_depth:
                opened = self.opening(chunk, at, depth, codes, place)
                if opened < 0:
                    self.rest += chunk[place:]
                    return b",".join(found)
                place = opened
            body, place = self.body(chunk, at, depth, codes, place)
            if body.strip():
                found.append(bytes(body))
            if place < 0:
                return b",".join(found)

    def marks(self, chunk: bytes) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Positions of brackets and commas outside strings, the depth after each, and their bytes; (marks,) each."""
        data = np.frombuffer(chunk, dtype=np.uint8)
        quotes = np.flatnonzero(data == QUOTE)
        escaped = self.escapes(np.flatnonzero(data == BACKSLASH), len(data))
        if len(escaped):
            quotes = quotes[~np.isin(quotes, escaped)]
        at = np.flatnonzero(IS_SEPARATOR[data])
        at = at[(np.searchsorted(quotes, at) + self.quoted) % 2 == 0]
        codes = data[at]
        depth = self.depth + np.cumsum(DEPTH_CHANGE[codes], dtype=np.int64)
        self.quoted = bool((len(quotes) + self.quoted) % 2)
        self.depth = int(depth[-1]) if len(depth) else self.depth
        return at, depth, codes

    def escapes(self, slashes: np.ndarray, length: int) -> np.ndarray:
        """Positions of escaped bytes: those after a backslash that is itself not escaped."""
        first = np.array([0] if self.escaped else [], dtype=np.int64)
        self.escaped = False
        if not len(slashes):
            return first
        begins = np.concatenate([[True], np.diff(slashes) != 1])
        starts = slashes[begins]
        place = slashes - starts[np.cumsum(begins) - 1]
        if len(first) and starts[0] == 0:  # the previous chunk escapes the first one
            place = place - (slashes < (starts[1] if len(starts) > 1 else length))
        escaping = slashes[place % 2 == 0]
        self.escaped = bool(len(escaping) and escaping[-1] == length - 1)
        return np.concatenate([first, escaping + 1])

    def opening(self, chunk: bytes, at: np.ndarray, depth: np.ndarray, codes: np.ndarray, place: int) -> int:
        """Position after the bracket that opens the list of events; −1: not in this chunk."""
        brackets = (codes == ord("[")) & (depth <= 2) & (at >= place)
        for i in np.flatnonzero(brackets).tolist():
            end = int(at[i]) + 1
            near = bytes(self.rest[-NEAR:]) + chunk[max(place, end - NEAR) : end]
            if depth[i] == 1 or KEY.search(near):
                self.rest += chunk[place:end]
                self.list_depth = int(depth[i])
                return end
        return -1

    def body(self, chunk: bytes, at: np.ndarray, depth: np.ndarray, codes: np.ndarray, place: int) -> tuple[bytes, int]:
        """The complete events from a position on, and the position where the list ends; −1: not in this chunk."""
        first = int(np.searchsorted(at, place))
        ends = np.flatnonzero(depth[first:] < self.list_depth)
        if len(ends):
            end = int(at[first + ends[0]])
            body = bytes(self.pending) + chunk[place:end]
            self.pending.clear()
            self.list_depth = 0
            return body, end
        commas = np.flatnonzero((codes[first:] == COMMA) & (depth[first:] == self.list_depth))
        if not len(commas):
            self.pending += chunk[place:]
            return b"", -1
        comma = int(at[first + commas[-1]])
        body = bytes(self.pending) + chunk[place:comma]
        self.pending = bytearray(chunk[comma + 1 :])
        return body, -1
