"""`--set hidden=2x`: a model with that many times the hidden size, at the same head size.

Each class of work scales with a power of the hidden size; kernels are assumed to sustain their measured rates, and host
time stays.
"""

from collections.abc import Callable, Sequence

from planner.errors import InputError
from planner.replay.dependencies.execution_graph import ExecutionGraph
from planner.replay.recording.kernel_classes import kernel_class
from planner.replay.whatif.graph_change import ChangedGraphs, with_op_timings
from planner.replay.whatif.whatif_options import parse_factor

WIDTH_POWERS = {
    "gemm": 2,  # tokens · hidden · hidden
    "convolution": 2,  # channels in and out
    "optimizer": 2,  # parameters
    "all-reduce": 2,  # gradients
    "reduce-scatter": 2,  # gradients
    "all-gather": 2,  # parameters
    "broadcast": 2,  # parameters
    "reduce": 2,  # gradients
    "attention": 1,  # tokens² · hidden
    "send/recv": 1,  # activations
    "elementwise": 1,  # activations
    "normalisation": 1,
    "reduction": 1,
    "embedding": 1,
}


def change_hidden_size(text: str) -> Callable[[Sequence[ExecutionGraph]], ChangedGraphs]:
    """A change to a multiple of the hidden size. Raises InputError."""
    by = parse_factor(text, "--set hidden")

    def apply(graphs: Sequence[ExecutionGraph]) -> ChangedGraphs:
        if not any(graph.op_timings for graph in graphs):
            fix = "record with the device's activities, or use --scale host"
            raise InputError("the trace has no work of a device", where="--set hidden", fix=fix)
        changed = []
        for graph in graphs:
            powers = [WIDTH_POWERS.get(kernel_class(op.name, op.kind), 0) for op in graph.trace.ops]
            changed.append(
                with_op_timings(graph, lambda i, work, p=powers: work._replace(seconds=work.seconds * by ** p[i]))  # type: ignore[misc]
            )
        what = (
            "matrix products, convolutions, the optimizer and collectives of parameters by its square, the rest of the"
        )
        return ChangedGraphs(
            changed, f"{what} device's work linearly, copies and the host not at all, at the rates measured"
        )

    return apply
