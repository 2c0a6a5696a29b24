"""What-ifs with fewer dependencies. `--remove inter-stream`, `--remove 7:84`: a kind of dependency, or the waits of one
stream for another, are left out.

`--fuse launches`: one launch for each run of operations between synchronisations, as with a CUDA graph. A run is what
one thread launches from a wait, or the beginning of a step, to the next one. Its first launch stays; the host segments
of the others take no time, neither the call nor the code before it, since a graph replaces both. Streams keep their
measured order, which earlier launches of other threads could otherwise change. So nothing comes later than it did; but
a step may last longer, if its beginning moves earlier by more than its end.
"""

import re
from collections.abc import Callable, Sequence

from planner.errors import InputError
from planner.replay.dependencies.execution_graph import ExecutionGraph
from planner.replay.dependencies.host_segments import DEPENDENCY_KINDS
from planner.replay.dependencies.op_timing import OpTiming
from planner.replay.timing.graph_activities import waits_for_anything
from planner.replay.whatif.graph_change import ChangedGraphs, with_op_timings, with_segment_seconds

PAIR = re.compile(r"(?:stream )?(\d+):(?:stream )?(\d+)")


def remove_dependency(text: str) -> Callable[[Sequence[ExecutionGraph]], ChangedGraphs]:
    """A change that leaves out dependencies. Raises InputError."""
    kind = next((kind for kind in DEPENDENCY_KINDS if kind == text), None)
    if kind:
        return lambda graphs: ChangedGraphs(list(graphs), f"nothing waits for `{kind}`", (kind,))
    found = PAIR.fullmatch(text)
    if not found:
        fix = f"one of {', '.join(DEPENDENCY_KINDS)}; or two streams as 7:84"
        raise InputError(f"`{text}` cannot be removed", where="--remove", fix=fix)
    return lambda graphs: remove_stream_pair(graphs, f"stream {found.group(1)}", f"stream {found.group(2)}")


def remove_stream_pair(graphs: Sequence[ExecutionGraph], waits: str, awaited: str) -> ChangedGraphs:
    """Leave out the waits of one stream for another. Raises InputError."""
    count, changed = 0, []
    for graph in graphs:

        def without_wait(i: int, work: OpTiming, graph: ExecutionGraph = graph) -> OpTiming:
            nonlocal count
            ops, streams = graph.trace.ops, graph.trace.streams
            if streams[ops[i].stream] != waits:
                return work
            remaining = tuple(op for op in work.awaits if streams[ops[op].stream] != awaited)
            count += len(work.awaits) - len(remaining)
            return work._replace(awaits=remaining)

        changed.append(with_op_timings(graph, without_wait))
    if not count:
        raise InputError(f"{waits} never waits for {awaited}", where="--remove", fix="another pair")
    return ChangedGraphs(changed, f"{count} times {waits} does not wait for {awaited}")


def fuse_launches(text: str) -> Callable[[Sequence[ExecutionGraph]], ChangedGraphs]:
    """The change that fuses launches. Raises InputError."""
    if text != "launches":
        raise InputError(f"`{text}` cannot be fused", where="--fuse", fix="--fuse launches")
    return fuse_all_graphs


def fuse_all_graphs(graphs: Sequence[ExecutionGraph]) -> ChangedGraphs:
    """Fuse the launches of every rank."""
    gone = [launches_to_drop(graph) for graph in graphs]
    if not any(gone):
        raise InputError("the trace has no run of launches", where="--fuse", fix="leave it out")
    changed = [drop_launches(graph, pieces) for graph, pieces in zip(graphs, gone, strict=True)]
    count = sum(map(len, gone))
    what = f"{count} launches, with their host time, join the first of their run"
    return ChangedGraphs(changed, f"{what}; streams keep their measured order", in_order=True)


def drop_launches(graph: ExecutionGraph, gone: set[int]) -> ExecutionGraph:
    """The graph in which these segments take no time, and what they launch is ready at once."""

    def at_once(_: int, work: OpTiming) -> OpTiming:
        return work._replace(delay=0.0) if work.launch is not None and work.launch.number in gone else work

    return with_op_timings(
        with_segment_seconds(graph, lambda piece: 0.0 if piece.number in gone else piece.seconds), at_once
    )


def launches_to_drop(graph: ExecutionGraph) -> set[int]:
    """Numbers of the segments that launch something and are not the first of their run."""
    launching = {work.launch.number for work in graph.op_timings if work.launch is not None}
    begins = {edge.segment.number for step in graph.steps for edge in (step.begin, step.end)}
    gone: set[int] = set()
    thread, running = -1, False
    for piece in graph.segments:
        if piece.thread != thread or waits_for_anything(piece) or piece.number in begins:
            thread, running = piece.thread, False
        if piece.number in launching and not waits_for_anything(piece):
            if running:
                gone.add(piece.number)
            running = True
    return gone
