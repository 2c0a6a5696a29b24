"""`--bandwidth 2x`: the duration of communication is divided by that.

The latency of a collective cannot be identified from a trace that has each size once, so it is divided too: where
messages are small the gain is overstated. With one rank only, the time its collectives wait for others is divided too.
"""

from collections.abc import Callable, Sequence

from planner.errors import InputError
from planner.replay.dependencies.execution_graph import ExecutionGraph
from planner.replay.whatif.graph_change import ChangedGraphs
from planner.replay.whatif.scaled_work import op_filter, scale_ops
from planner.replay.whatif.whatif_options import parse_factor


def change_bandwidth(text: str) -> Callable[[Sequence[ExecutionGraph]], ChangedGraphs]:
    """A change that divides the duration of all communication by a factor. Raises InputError."""
    by = parse_factor(text, "--bandwidth")
    chosen = op_filter("communication")

    def apply(graphs: Sequence[ExecutionGraph]) -> ChangedGraphs:
        mine = [{i for i, op in enumerate(graph.trace.ops) if chosen(op)} for graph in graphs]
        count = sum(map(len, mine))
        if not count:
            raise InputError("the trace has no communication", where="--bandwidth", fix="leave it out")
        changed = [scale_ops(graph, ops, 1 / by) for graph, ops in zip(graphs, mine, strict=True)]
        return ChangedGraphs(changed, f"{count} communication operations take 1/{by:g} of their time, latency included")

    return apply
