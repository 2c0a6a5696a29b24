"""`--set layers=2x`: a model of so many times as many layers.

The layers of a step are found by what repeats itself. Where a stretch holds m of the model's n layers, f times as many
make it (m + (f − 1)·n) / m times as long, on the host and on the device: as copies behind each other would, which
launch what the found ones launch and wait as those do. The optimizer grows f times, as parameters do.
"""

from collections.abc import Callable, Sequence

from planner.errors import InputError
from planner.replay.classes import kernel_class
from planner.replay.graph import Graph
from planner.replay.pace import Work
from planner.replay.pieces import Piece
from planner.replay.whatif.asked import factor
from planner.replay.whatif.change import Changed, with_pieces, with_work
from planner.replay.whatif.repeats import Region, layers, overlap, within


def deeper(text: str) -> Callable[[Sequence[Graph]], Changed]:
    """Raises InputError."""
    by = factor(text, "--set layers")

    def apply(graphs: Sequence[Graph]) -> Changed:
        changed, counts = [], set()
        for graph in graphs:
            regions = found(graph)
            counts |= {max(region.layers for region in each) for each in regions}
            changed.append(grown(graph, regions, by))
        said = f"{min(counts)}" if len(counts) == 1 else f"{min(counts)} to {max(counts)}"
        return Changed(
            changed, f"{said} layers were found, by what repeats itself; each of {by:g} times as many takes as long"
        )

    return apply


def found(graph: Graph) -> list[list[Region]]:
    """The layers of each step. Raises InputError when nothing repeats itself."""
    regions = [layers(graph, step) for step in graph.steps]
    if not regions or not all(regions):
        message = "the layers of the model cannot be told: nothing in a step repeats itself with a matrix product in it"
        raise InputError(message, where=graph.trace.source, fix="ask for --scale instead")
    return regions


def optimizing(graph: Graph) -> list[Region]:
    """Where threads update parameters, or forget gradients, by what torch says."""
    host = graph.trace.host
    mine = [i for i, name in enumerate(host.names) if name.startswith("Optimizer.")]
    spans = zip(host.thread.tolist(), host.start.tolist(), host.end.tolist(), host.name.tolist(), strict=True)
    return [Region(thread, start, end, 0) for thread, start, end, name in spans if name in mine]


def grown(graph: Graph, regions: Sequence[Sequence[Region]], by: float) -> Graph:
    """All stretches of layers, longer."""
    growth: dict[Region, float] = {}
    for step in regions:
        layers_of_model = max(region.layers for region in step)
        growth |= {region: (region.layers + (by - 1) * layers_of_model) / region.layers for region in step}
    growth |= {region: by for region in optimizing(graph)}
    every = sorted(growth)
    on: dict[int, list[Region]] = {}
    for region in every:
        on.setdefault(region.thread, []).append(region)

    def seconds(piece: Piece) -> float:
        mine, begin = on.get(piece.thread, []), piece.end - piece.seconds
        more = (overlap(region, begin, piece.end) * (growth[region] - 1) for region in mine)
        return max(0.0, piece.seconds + sum(more))

    def work(i: int, each: Work) -> Work:
        op = graph.trace.ops[i]
        region = within(on.get(each.launch.thread, []), each.launch.end) if each.launch else None
        factor = growth[region] if region else by if kernel_class(op.name, op.kind) == "optimizer" else 1.0
        return each._replace(seconds=max(0.0, each.seconds * factor), lead=max(0.0, each.lead * factor))

    return with_work(with_pieces(graph, seconds), work)
