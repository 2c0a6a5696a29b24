"""`--fuse launches`: one launch for each run of operations between synchronisations, as with a CUDA graph.

A run is what one thread launches from a wait, or the beginning of a step, to the next one. Its first launch stays; the
host segments of the others take no time, neither the call nor the code before it, since a graph replaces both. Streams
keep their measured order, which earlier launches of other threads could otherwise change. So nothing comes later than
it did; but a step may last longer, if its beginning moves earlier by more than its end.
"""

from collections.abc import Callable, Sequence

from planner.errors import InputError
from planner.replay.graph import Graph
from planner.replay.pace import Work
from planner.replay.whatif.change import Changed, with_pieces, with_work
from planner.replay.wired import awaited


def fuse(text: str) -> Callable[[Sequence[Graph]], Changed]:
    """The change that fuses launches. Raises InputError."""
    if text != "launches":
        raise InputError(f"`{text}` cannot be fused", where="--fuse", fix="--fuse launches")
    return fused


def fused(graphs: Sequence[Graph]) -> Changed:
    """Fuse the launches of every rank."""
    gone = [captured(graph) for graph in graphs]
    if not any(gone):
        raise InputError("the trace has no run of launches", where="--fuse", fix="leave it out")
    changed = [without(graph, pieces) for graph, pieces in zip(graphs, gone, strict=True)]
    count = sum(map(len, gone))
    what = f"{count} launches, with their host time, join the first of their run"
    return Changed(changed, f"{what}; streams keep their measured order", in_order=True)


def without(graph: Graph, gone: set[int]) -> Graph:
    """The graph in which these segments take no time, and what they launch is ready at once."""

    def at_once(_: int, work: Work) -> Work:
        return work._replace(delay=0.0) if work.launch is not None and work.launch.number in gone else work

    return with_work(with_pieces(graph, lambda piece: 0.0 if piece.number in gone else piece.seconds), at_once)


def captured(graph: Graph) -> set[int]:
    """Numbers of the segments that launch something and are not the first of their run."""
    launching = {work.launch.number for work in graph.work if work.launch is not None}
    begins = {step.begin.number for step in graph.steps} | {step.end.number for step in graph.steps}
    gone: set[int] = set()
    thread, running = -1, False
    for piece in graph.pieces:
        if piece.thread != thread or awaited(piece) or piece.number in begins:
            thread, running = piece.thread, False
        if piece.number in launching and not awaited(piece):
            if running:
                gone.add(piece.number)
            running = True
    return gone
