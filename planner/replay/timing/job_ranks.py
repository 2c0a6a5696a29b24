"""Checks that traces are of different ranks of one job, and assigns ranks where traces do not record them."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from planner.errors import InputError
from planner.replay.dependencies.execution_graph import ExecutionGraph
from planner.replay.recording.recorded_names import is_communication, kernel_class
from planner.replay.recording.recorded_trace import RecordedTrace


def require_one_job(graphs: Sequence[ExecutionGraph]) -> tuple[list[ExecutionGraph], list[str]]:
    """The graphs in the order of their ranks, each with a rank; and notes. Raises InputError."""
    require_distinct([graph.trace for graph in graphs])
    sizes = sorted({graph.trace.world_size for graph in graphs if graph.trace.world_size is not None})
    if len(sizes) > 1:
        listed = ", ".join(map(str, sizes))
        raise InputError(f"the traces are of jobs of {listed} ranks", where="TRACE", fix="give those of one job")
    unnumbered = [graph for graph in graphs if graph.trace.rank is None]
    numbered = assign_ranks(graphs)
    notes = missing_rank_notes([graph.trace for graph in numbered], len(unnumbered))
    return numbered, [*notes, *mixed_rank_notes([graph.trace for graph in numbered])]


def require_distinct(traces: Sequence[RecordedTrace]) -> None:
    """Raises InputError when two traces are the same capture, or of the same rank."""
    for i, trace in enumerate(traces):
        for other in traces[:i]:
            if same_capture(trace, other):
                what = f"{other.source} and {trace.source} hold the same trace"
                raise InputError(what, where="TRACE", fix="give each rank's once")
            if trace.rank is not None and trace.rank == other.rank:
                raise InputError(f"two traces are of rank {trace.rank}", where="TRACE", fix="give each rank's once")


def same_capture(one: RecordedTrace, other: RecordedTrace) -> bool:
    """Whether two traces are the same capture: of no two ranks or hosts, with all times equal."""
    if one.rank != other.rank or one.host_name != other.host_name:
        return False
    return one.base == other.base and one.ops == other.ops and np.array_equal(one.host.start, other.host.start)


def assign_ranks(graphs: Sequence[ExecutionGraph]) -> list[ExecutionGraph]:
    """Graphs sorted by rank; those without one get the lowest free ranks, in the order given."""
    taken = {graph.trace.rank for graph in graphs}
    free = (rank for rank in range(2 * len(graphs) + 1) if rank not in taken)
    numbered = [
        graph if graph.trace.rank is not None else replace(graph, trace=replace(graph.trace, rank=next(free)))
        for graph in graphs
    ]
    return sorted(numbered, key=lambda graph: graph.trace.rank or 0)


def missing_rank_notes(traces: Sequence[RecordedTrace], unnumbered: int) -> list[str]:
    """Notes where ranks of the job are missing, or traces do not record their rank."""
    given = ", ".join(str(trace.rank) for trace in traces)
    world = max((trace.world_size or 1 for trace in traces), default=1)
    notes = []
    if unnumbered and len(traces) > 1:
        notes.append(
            f"{unnumbered} traces do not say their rank: they are taken for the lowest that are left ({given})"
        )
    if len(traces) < world:
        notes.append(
            f"traces of {len(traces)} of {world} ranks are given ({given}): a collective lasts as it did there"
        )
    return notes


def mixed_rank_notes(traces: Sequence[RecordedTrace]) -> Iterator[str]:
    """Notes where ranks do not fit together."""
    devices = sorted({trace.device for trace in traces if trace.device})
    if len(devices) > 1:
        yield f"the ranks are on different devices: {', '.join(devices)}"
    communicates = [any(is_communication(kernel_class(op.name, op.kind)) for op in trace.ops) for trace in traces]
    if len(traces) > 1 and not all(communicates):
        yield "some ranks have no communication: nothing joins them with the others"
