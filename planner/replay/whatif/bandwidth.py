"""`--bandwidth 2x`: the duration of communication is divided by that.

The latency of a collective cannot be identified from a trace that has each size once, so it is divided too: where
messages are small the gain is overstated. With one rank only, the time its collectives wait for others is divided too.
"""

from collections.abc import Callable, Sequence

from planner.errors import InputError
from planner.replay.graph import Graph
from planner.replay.whatif.asked import factor
from planner.replay.whatif.change import Changed
from planner.replay.whatif.scale import chooser, scaled


def bandwidth(text: str) -> Callable[[Sequence[Graph]], Changed]:
    """A change that divides the duration of all communication by a factor. Raises InputError."""
    by = factor(text, "--bandwidth")
    chosen = chooser("communication")

    def apply(graphs: Sequence[Graph]) -> Changed:
        mine = [{i for i, op in enumerate(graph.trace.ops) if chosen(op)} for graph in graphs]
        count = sum(map(len, mine))
        if not count:
            raise InputError("the trace has no communication", where="--bandwidth", fix="leave it out")
        changed = [scaled(graph, ops, 1 / by) for graph, ops in zip(graphs, mine, strict=True)]
        return Changed(changed, f"{count} communication operations take 1/{by:g} of their time, latency included")

    return apply
