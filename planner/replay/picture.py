"""A replay as a Chrome trace, the measured timeline beside the replayed one: two processes for each rank.

Names come from traces of others, and go through json; times are in microseconds from the first capture's beginning.
"""

from collections.abc import Iterator
from typing import Any

from planner.replay.collectives import offsets, rank_of
from planner.replay.replayed import Replay
from planner.replay.stacks import stacks
from planner.units import US

Record = dict[str, Any]


def to_chrome(replay: Replay) -> Record:
    """One JSON object, which ui.perfetto.dev opens."""
    records = [record for g in range(len(replay.graphs)) for record in of_rank(replay, g)]
    return {"traceEvents": records, "displayTimeUnit": "ms", "otherData": {"planner": "measured and replayed"}}


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
        if piece.seconds > 0:
            end = replay.piece_end(g, piece.number)
            for side, until in enumerate((piece.end + begin, end)):
                yield span(2 * g + side, piece.thread, within.operator, until - piece.seconds, until)
    starts, ends = (each.tolist() for each in replay.op_times(g))
    for i, op in enumerate(graph.trace.ops):
        yield span(2 * g, threads + op.stream, op.name, op.start + begin, op.end + begin)
        yield span(2 * g + 1, threads + op.stream, op.name, starts[i], ends[i])


def span(process: int, thread: int, name: str, start: float, end: float) -> Record:
    begin, stop = round(start / US, 3), round(end / US, 3)
    return {"ph": "X", "name": name, "pid": process, "tid": thread, "ts": begin, "dur": round(stop - begin, 3)}
