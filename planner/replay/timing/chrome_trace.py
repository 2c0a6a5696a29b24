"""Writes a replay as a Chrome trace with the measured and the replayed timeline: two processes for each rank.

Names come from recorded traces and are escaped as JSON; times are microseconds since the first capture began.
"""

import gzip
from collections.abc import Iterator, Sequence
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import msgspec

from planner.files import atomic_write
from planner.replay.recording.recorded_trace import enclosing_spans
from planner.replay.timing.critical_path import PathLink
from planner.replay.timing.matched_collectives import rank_of_graph
from planner.replay.timing.timed_replay import Replay
from planner.units import US

Record = dict[str, Any]


def write_chrome_trace(path: Path, replay: Replay, links: Sequence[PathLink] = ()) -> None:
    """Write one JSON object for ui.perfetto.dev atomically, gzipped when the name ends in .gz.

    `links`: the critical path, drawn as arrows of the replayed timeline.
    """
    with atomic_write(path) as out:
        if path.suffix == ".gz":
            with gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=out, mtime=0) as packed:
                packed.writelines(chrome_trace_bytes(replay, links))
        else:
            out.writelines(chrome_trace_bytes(replay, links))


def chrome_trace_bytes(replay: Replay, links: Sequence[PathLink]) -> Iterator[bytes]:
    """The bytes of that object in parts."""
    ranks = (record for g in range(len(replay.graphs)) for record in rank_records(replay, g))
    records = chain(ranks, path_arrows(replay, links))
    yield b'{"displayTimeUnit": "ms", "otherData": {"planner": "measured and replayed"}, "traceEvents": [\n'
    for number, record in enumerate(records):
        yield b",\n" * (number > 0) + msgspec.json.encode(record)
    yield b"\n]}\n"


def rank_records(replay: Replay, g: int) -> Iterator[Record]:
    """All records of one rank: process and thread names, host segments, device operations."""
    graph = replay.graphs[g]
    begin = replay.matched.begins[g]
    threads = len(graph.trace.threads)
    for side, label in enumerate(("measured", "replayed")):
        rank = rank_of_graph(replay.graphs, g)
        yield {"ph": "M", "name": "process_name", "pid": 2 * g + side, "args": {"name": f"rank {rank} {label}"}}
        for number, name in enumerate((*graph.trace.threads, *graph.trace.streams)):
            yield {"ph": "M", "name": "thread_name", "pid": 2 * g + side, "tid": number, "args": {"name": name}}
    moments = [(segment.thread, segment.end - segment.seconds / 2) for segment in graph.segments]
    for segment, within in zip(graph.segments, enclosing_spans(graph.trace.host, moments), strict=True):
        duration = segment.seconds + segment.unseen
        if duration > 0:
            end = replay.segment_end(g, segment.number)
            for side, until in enumerate((segment.end + begin, end)):
                yield complete_event(2 * g + side, segment.thread, within.operator, until - duration, until)
    starts, ends = (each.tolist() for each in replay.op_times(g))
    for i, op in enumerate(graph.trace.ops):
        yield complete_event(2 * g, threads + op.stream, op.name, op.start + begin, op.end + begin)
        yield complete_event(2 * g + 1, threads + op.stream, op.name, starts[i], ends[i])


def path_arrows(replay: Replay, links: Sequence[PathLink]) -> Iterator[Record]:
    """Arrows from each activity of the critical path to the next where that is on another thread or stream."""
    lanes = {}
    for g, graph in enumerate(replay.graphs):
        for number, name in enumerate((*graph.trace.threads, *graph.trace.streams)):
            lanes[rank_of_graph(replay.graphs, g), name] = {"pid": 2 * g + 1, "tid": number}
    drawn = [link for link in links if (link.rank, link.lane) in lanes]
    for number, (one, other) in enumerate(pairwise(drawn)):
        if one[:2] != other[:2]:
            for kind, link in (("s", one), ("f", other)):
                middle = round((link.start + link.end) / 2 / US, 3)
                where = lanes[link.rank, link.lane]
                yield {
                    "ph": kind,
                    "cat": "path",
                    "name": "critical path",
                    "id": number,
                    "ts": middle,
                    "bp": "e",
                    **where,
                }


def complete_event(process: int, thread: int, name: str, start: float, end: float) -> Record:
    """A complete event; times in seconds."""
    begin, stop = round(start / US, 3), round(end / US, 3)
    return {"ph": "X", "name": name, "pid": process, "tid": thread, "ts": begin, "dur": round(stop - begin, 3)}
