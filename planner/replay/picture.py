"""A replay as a Chrome trace, the measured timeline beside the replayed one: two processes for each rank.

Names come from traces of others, and go through json; times are in microseconds from the first capture's beginning.
"""

import gzip
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from planner.files.whole import whole
from planner.replay.collectives import offsets, rank_of
from planner.replay.replayed import Replay
from planner.replay.stacks import stacks
from planner.units import US

Record = dict[str, Any]


AT_ONCE = 10_000  # records that are in memory


def write_chrome(path: Path, replay: Replay) -> None:
    """One JSON object, which ui.perfetto.dev opens; gzipped when the name ends in .gz. Whole or not at all."""
    with whole(path) as out:
        if path.suffix == ".gz":
            with gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=out, mtime=0) as packed:
                packed.writelines(chrome(replay))
        else:
            out.writelines(chrome(replay))


def chrome(replay: Replay) -> Iterator[bytes]:
    """The bytes of that object, bit by bit."""
    records = (record for g in range(len(replay.graphs)) for record in of_rank(replay, g))
    yield b'{"displayTimeUnit": "ms", "otherData": {"planner": "measured and replayed"}, "traceEvents": [\n'
    before = b""
    for some in batches(records):
        yield before + b",\n".join(map(msgspec.json.encode, some))
        before = b",\n"
    yield b"\n]}\n"


def batches(records: Iterable[Record]) -> Iterator[list[Record]]:
    left = iter(records)
    while some := [*islice(left, AT_ONCE)]:
        yield some


def of_rank(replay: Replay, g: int) -> Iterator[Record]:
    graph = replay.graphs[g]
    begin = offsets(replay.graphs)[0][g] if len(replay.graphs) > 1 else 0.0
    threads = len(graph.trace.threads)
    for side, label in enumerate(("measured", "replayed")):
        rank = rank_of(replay.graphs, g)
        yield {"ph": "M", "name": "process_name", "pid": 2 * g + side, "args": {"name": f"rank {rank} {label}"}}
        for number, name in enumerate((*graph.trace.threads, *graph.trace.streams)):
            yield {"ph": "M", "name": "thread_name", "pid": 2 * g + side, "tid": number, "args": {"name": name}}
    moments = [(piece.thread, piece.end - piece.seconds / 2) for piece in graph.pieces]
    for piece, within in zip(graph.pieces, stacks(graph.trace.host, moments), strict=True):
        lasts = piece.seconds + piece.unseen
        if lasts > 0:
            end = replay.piece_end(g, piece.number)
            for side, until in enumerate((piece.end + begin, end)):
                yield span(2 * g + side, piece.thread, within.operator, until - lasts, until)
    starts, ends = (each.tolist() for each in replay.op_times(g))
    for i, op in enumerate(graph.trace.ops):
        yield span(2 * g, threads + op.stream, op.name, op.start + begin, op.end + begin)
        yield span(2 * g + 1, threads + op.stream, op.name, starts[i], ends[i])


def span(process: int, thread: int, name: str, start: float, end: float) -> Record:
    begin, stop = round(start / US, 3), round(end / US, 3)
    return {"ph": "X", "name": name, "pid": process, "tid": thread, "ts": begin, "dur": round(stop - begin, 3)}
