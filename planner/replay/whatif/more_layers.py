"""`--set layers=2x`: a model with that many times the layers.

The layers of a step are found as a repeated sequence (repeated_layers.py). A region with m of the model's n layers
becomes (m + (f − 1)·n) / m times as long with f times the layers, on the host and on the device, as if copies of it
followed one another with the same launches and waits. The optimizer becomes f times as long, as parameters do.
"""

from collections.abc import Callable, Sequence

from planner.errors import InputError
from planner.replay.dependencies.execution_graph import ExecutionGraph
from planner.replay.dependencies.host_segments import HostSegment
from planner.replay.dependencies.op_timing import OpTiming
from planner.replay.recording.recorded_names import kernel_class
from planner.replay.whatif.graph_change import ChangedGraphs, parse_factor, with_op_timings, with_segment_seconds
from planner.replay.whatif.repeated_layers import LayerRegion, find_layers, overlap_seconds, region_at


def change_layers(text: str) -> Callable[[Sequence[ExecutionGraph]], ChangedGraphs]:
    """A change to a multiple of the layers. Raises InputError."""
    by = parse_factor(text, "--set layers")

    def apply(graphs: Sequence[ExecutionGraph]) -> ChangedGraphs:
        changed, counts = [], set()
        for graph in graphs:
            regions = layer_regions(graph)
            counts |= {max(region.layers for region in each) for each in regions}
            changed.append(stretch_regions(graph, regions, by))
        layer_count = f"{min(counts)}" if len(counts) == 1 else f"{min(counts)} to {max(counts)}"
        return ChangedGraphs(
            changed,
            f"{layer_count} layers were found as a repeated sequence; each of {by:g} times as many takes as long",
        )

    return apply


def layer_regions(graph: ExecutionGraph) -> list[list[LayerRegion]]:
    """Regions of layers in each step. Raises InputError when no sequence repeats."""
    regions = [find_layers(graph, step) for step in graph.steps]
    if not regions or not all(regions):
        message = "the layers of the model cannot be identified: no sequence with a matrix product repeats in a step"
        raise InputError(message, where=graph.trace.source, fix="use --scale instead")
    return regions


def optimizer_regions(graph: ExecutionGraph) -> list[LayerRegion]:
    """Regions of the optimizer's step and zero_grad, by torch's annotations."""
    host = graph.trace.host
    mine = [i for i, name in enumerate(host.names) if name.startswith("Optimizer.")]
    spans = zip(host.thread.tolist(), host.start.tolist(), host.end.tolist(), host.name.tolist(), strict=True)
    return [LayerRegion(thread, start, end, 0) for thread, start, end, name in spans if name in mine]


def stretch_regions(graph: ExecutionGraph, regions: Sequence[Sequence[LayerRegion]], by: float) -> ExecutionGraph:
    """The graph with regions of layers and of the optimizer stretched for `by` times the layers."""
    growth: dict[LayerRegion, float] = {}
    for step in regions:
        layers_of_model = max(region.layers for region in step)
        growth |= {region: (region.layers + (by - 1) * layers_of_model) / region.layers for region in step}
    growth |= {region: by for region in optimizer_regions(graph)}
    by_thread: dict[int, list[LayerRegion]] = {}
    for region in sorted(growth):
        by_thread.setdefault(region.thread, []).append(region)

    def seconds(segment: HostSegment) -> float:
        begin = segment.end - segment.seconds
        added = (
            overlap_seconds(region, begin, segment.end) * (growth[region] - 1)
            for region in by_thread.get(segment.thread, [])
        )
        return max(0.0, segment.seconds + sum(added))

    def work(i: int, each: OpTiming) -> OpTiming:
        op = graph.trace.ops[i]
        region = region_at(by_thread.get(each.launch.thread, []), each.launch.end) if each.launch else None
        factor = growth[region] if region else by if kernel_class(op.name, op.kind) == "optimizer" else 1.0
        return each._replace(seconds=max(0.0, each.seconds * factor), lead=max(0.0, each.lead * factor))

    return with_op_timings(with_segment_seconds(graph, seconds), work)
