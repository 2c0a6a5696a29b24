"""`--set dp=4`: another number of data-parallel ranks. Only communication changes, as the volume of a ring does.

In a ring of n ranks each sends (n − 1)/n of a message, twice for an all-reduce; durations scale by the ratio of that,
new to old. The old number is the world size. All all-reduce, reduce-scatter and all-gather operations are assumed to be
data-parallel.
"""

from collections.abc import Callable, Sequence

from planner.errors import InputError
from planner.replay.dependencies.execution_graph import ExecutionGraph
from planner.replay.recording.kernel_classes import kernel_class
from planner.replay.whatif.graph_change import ChangedGraphs
from planner.replay.whatif.scaled_work import scale_ops

RING_COLLECTIVES = {"all-reduce", "reduce-scatter", "all-gather"}
MAX_RANKS = 1_000_000


def change_data_parallel(text: str) -> Callable[[Sequence[ExecutionGraph]], ChangedGraphs]:
    """A change to another number of data-parallel ranks. Raises InputError."""
    ranks = int(text) if text.isdecimal() and len(text) < 8 else 0
    if not 1 <= ranks <= MAX_RANKS:
        raise InputError(f"`{text}` is not a number of ranks", where="--set dp", fix=f"from 1 to {MAX_RANKS}")

    def apply(graphs: Sequence[ExecutionGraph]) -> ChangedGraphs:
        old = graphs[0].trace.world_size or 0
        mine = [
            {i for i, op in enumerate(graph.trace.ops) if kernel_class(op.name, op.kind) in RING_COLLECTIVES}
            for graph in graphs
        ]
        count = sum(map(len, mine))
        if old < 2 or not count:
            message = "no all-reduce, reduce-scatter or all-gather of several ranks is in the trace"
            raise InputError(message, where="--set dp", fix="give a trace of a data-parallel job")
        by = (1 - 1 / ranks) / (1 - 1 / old)
        changed = [scale_ops(graph, ops, by) for graph, ops in zip(graphs, mine, strict=True)]
        what = f"{count} collectives take {by:.3f} times as long, as on a ring of {ranks} ranks instead of {old}"
        assumption = "every all-reduce, reduce-scatter and all-gather is assumed to be data-parallel"
        return ChangedGraphs(changed, f"{what}, over the same links; {assumption}; each rank's own work is as before")

    return apply
