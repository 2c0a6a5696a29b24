"""What-ifs: the step time of a recorded trace after changes; a function per change, which states what it assumes."""

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from planner.errors import InputError
from planner.replay.dependencies.execution_graph import ExecutionGraph
from planner.replay.dependencies.host_segments import DependencyKind
from planner.replay.recording.recorded_names import is_communication, kernel_class
from planner.replay.timing.timed_replay import Replay, replay_graphs
from planner.replay.whatif.graph_change import ChangedGraphs, GraphChange, WhatIfOptions, parse_assignment
from planner.replay.whatif.more_layers import change_layers
from planner.replay.whatif.pipeline_stages import predict_pipeline
from planner.replay.whatif.scaled_work import (
    change_bandwidth,
    change_batch_size,
    change_data_parallel,
    change_hidden_size,
    scale_work,
)

SETTINGS: dict[str, Callable[[str], Callable[[Sequence[ExecutionGraph]], ChangedGraphs]]] = {
    "layers": change_layers,
    "hidden": change_hidden_size,
    "batch": change_batch_size,
    "dp": change_data_parallel,
}
PIPELINE = "pp"


class WhatIfPrediction(NamedTuple):
    """Median step in seconds after all changes, and what they assume."""

    step_seconds: float
    replayed_seconds: float  # before them
    assumed: tuple[tuple[str, str], ...]  # what was asked, what it assumes

    @property
    def speedup(self) -> float:
        return self.replayed_seconds / self.step_seconds if self.step_seconds else 1.0


class WhatIfChanges(NamedTuple):
    """Changes of the graphs, in the order in which they apply; and of the replay, which come after."""

    of_graphs: list[GraphChange]
    of_replay: list[tuple[str, Callable[[Replay], tuple[float, str]]]]

    @property
    def any(self) -> bool:
        return bool(self.of_graphs or self.of_replay)


def parse_changes(asked: WhatIfOptions) -> WhatIfChanges:
    """Parse options into changes. Raises InputError."""
    pairs = [(text, *parse_assignment(text, "--set", "layers=2x")) for text in asked.settings]
    pipelines = [(f"--set {text}", predict_pipeline(value)) for text, name, value in pairs if name == PIPELINE]
    if len(pipelines) > 1:
        raise InputError("two pipelines are asked for", where="--set pp", fix="one of them")
    names = [name for _, name, _ in pairs]
    twice = next((name for name in SETTINGS if names.count(name) > 1), None)
    if twice:
        raise InputError(f"`{twice}` is set twice", where=f"--set {twice}", fix="once")
    changes = [
        GraphChange(f"--set {text}", parse_setting(name, value)) for text, name, value in pairs if name != PIPELINE
    ]
    changes += [GraphChange(f"--scale {text}", scale_work(text)) for text in asked.scale]
    if asked.bandwidth is not None:
        changes.append(GraphChange(f"--bandwidth {asked.bandwidth}", change_bandwidth(asked.bandwidth)))
    return WhatIfChanges(changes, pipelines)


def parse_setting(name: str, value: str) -> Callable[[Sequence[ExecutionGraph]], ChangedGraphs]:
    if name not in SETTINGS:
        raise InputError(f"`{name}` cannot be set", where="--set", fix=f"one of {', '.join((*SETTINGS, PIPELINE))}")
    return SETTINGS[name](value)


def missing_ranks_note(before: Sequence[ExecutionGraph], after: Sequence[ExecutionGraph]) -> str:
    """A remark where communication changed, but traces of some ranks that take part in it are missing."""
    world = max((graph.trace.world_size or 1 for graph in before), default=1)
    if len(before) >= world or not any(map(changes_communication, before, after)):
        return ""
    return (
        f"; of {world} ranks {len(before)} given: what a collective waits for the others is changed like its own time"
    )


def changes_communication(before: ExecutionGraph, after: ExecutionGraph) -> bool:
    """Whether the duration of communication changed."""
    ops, works = before.trace.ops, zip(before.op_timings, after.op_timings, strict=True)
    other = (op for op, (old, new) in zip(ops, works, strict=True) if old.seconds != new.seconds)
    return any(is_communication(kernel_class(op.name, op.kind)) for op in other)


def predict_changes(
    before: Replay, changes: WhatIfChanges, without: Collection[DependencyKind] = ()
) -> WhatIfPrediction:
    """Predict the step after changes. Raises InputError when a trace lacks what a change is about."""
    graphs, assumed = list(before.graphs), list[tuple[str, str]]()
    for change in changes.of_graphs:
        changed = change.apply(graphs)
        assumption = changed.assumed + missing_ranks_note(graphs, changed.graphs)
        graphs = changed.graphs
        assumed.append((change.option, assumption))
    after = replay_graphs(graphs, without, changes=[change.option for change in changes.of_graphs])
    seconds = after.step_seconds
    for option, pipeline in changes.of_replay:
        seconds, what = pipeline(after)
        assumed.append((option, what))
    return WhatIfPrediction(seconds, before.step_seconds, tuple(assumed))


__all__ = [
    "WhatIfOptions",
    "WhatIfPrediction",
    "parse_changes",
    "predict_changes",
]
