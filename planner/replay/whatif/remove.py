"""`--remove inter-stream`, `--remove 7:84`: leaves out a kind of dependency, or the waits of one stream for another."""

import re
from collections.abc import Callable, Sequence

from planner.errors import InputError
from planner.replay.graph import Graph
from planner.replay.pace import Work
from planner.replay.pieces import KINDS
from planner.replay.whatif.change import Changed, with_work

PAIR = re.compile(r"(?:stream )?(\d+):(?:stream )?(\d+)")


def remove(text: str) -> Callable[[Sequence[Graph]], Changed]:
    """A change that leaves out dependencies. Raises InputError."""
    kind = next((kind for kind in KINDS if kind == text), None)
    if kind:
        return lambda graphs: Changed(list(graphs), f"nothing waits for `{kind}`", (kind,))
    found = PAIR.fullmatch(text)
    if not found:
        fix = f"one of {', '.join(KINDS)}; or two streams as 7:84"
        raise InputError(f"`{text}` cannot be removed", where="--remove", fix=fix)
    return lambda graphs: without_pair(graphs, f"stream {found.group(1)}", f"stream {found.group(2)}")


def without_pair(graphs: Sequence[Graph], waits: str, awaited: str) -> Changed:
    """Leave out the waits of one stream for another. Raises InputError."""
    count, changed = 0, []
    for graph in graphs:

        def without_wait(i: int, work: Work, graph: Graph = graph) -> Work:
            nonlocal count
            ops, streams = graph.trace.ops, graph.trace.streams
            if streams[ops[i].stream] != waits:
                return work
            remaining = tuple(op for op in work.awaits if streams[ops[op].stream] != awaited)
            count += len(work.awaits) - len(remaining)
            return work._replace(awaits=remaining)

        changed.append(with_work(graph, without_wait))
    if not count:
        raise InputError(f"{waits} never waits for {awaited}", where="--remove", fix="another pair")
    return Changed(changed, f"{count} times {waits} does not wait for {awaited}")
