"""`--remove inter-stream`, `--remove 7:84`: leaves out a kind of dependency, or the waits of one stream for another."""

import re
from collections.abc import Callable, Sequence

from planner.errors import InputError
from planner.replay.dependencies.execution_graph import ExecutionGraph
from planner.replay.dependencies.host_segments import DEPENDENCY_KINDS
from planner.replay.dependencies.op_timing import OpTiming
from planner.replay.whatif.graph_change import ChangedGraphs, with_op_timings

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
