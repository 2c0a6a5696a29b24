"""`--set pp=2`, `--set pp=4:8`: the layers in that many pipeline stages, 1F1B with (after the colon) that many
micro-batches.

The regions of layers in a step are its forward and backward passes, one pair for each micro-batch that the step had.
Stages get equal numbers of layers as far as possible; a pass of a stage takes its share of the measured pass, and the
1F1B order runs on the event clock. Time outside the layers is added once per step, unchanged. Transfers between stages
are not counted: a trace without a pipeline does not show what they would take.
"""

import re
from collections.abc import Callable
from statistics import median

from planner.errors import InputError
from planner.plan.schedules import schedule_slots
from planner.replay.dependencies.execution_graph import ExecutionGraph
from planner.replay.timing.timed_replay import Replay
from planner.replay.whatif.graph_change import on_host_alone
from planner.replay.whatif.more_layers import LayerRegion, layer_regions
from planner.simulate import ActivityBuilder, run_activities

PIPELINE_PATTERN = re.compile(r"(\d{1,3})(?::(\d{1,4}))?")


def predict_pipeline(text: str) -> Callable[[Replay], tuple[float, str]]:
    """A function from a replay to the median step of a pipeline and its assumptions. Raises InputError."""
    spelled = PIPELINE_PATTERN.fullmatch(text)
    stages = int(spelled.group(1)) if spelled else 0
    asked = int(spelled.group(2) or 0) if spelled else 0
    if stages < 1 or (spelled and spelled.group(2) and asked < 1):
        fix = "stages, or stages:micro-batches, as 2 or 4:8"
        raise InputError(f"`{text}` is not a pipeline", where="--set pp", fix=fix)

    def apply(replay: Replay) -> tuple[float, str]:
        graph = replay.graphs[0]
        regions = layer_regions(graph)
        layers = max(region.layers for region in regions[0])
        if any(len(step) % 2 or len(step) != len(regions[0]) for step in regions) or stages > layers:
            message = (
                f"{layers} layers in {len(regions[0])} regions a step do not make {stages} stages of two passes each"
            )
            raise InputError(message, where="--set pp", fix="fewer stages; a trace of training")
        recorded = len(regions[0]) // 2
        micro_batches = asked or recorded
        seconds = []
        for step, mine in zip(replay.steps, regions, strict=False):
            passes = [pass_seconds(replay, graph, mine[i::2], step.replayed / (step.measured or 1.0)) for i in (0, 1)]
            inside = pipeline_seconds(
                stages, micro_batches, layers, (passes[0] / micro_batches, passes[1] / micro_batches)
            )
            seconds.append(inside + max(0.0, step.replayed - sum(passes)))
        layout = (
            f"{layers} layers in {stages} stages, 1F1B with {micro_batches} micro-batches ({recorded} in the trace)"
        )
        return median(seconds), f"{layout}; transfers between stages not counted, time outside the layers unchanged"

    return apply


def pass_seconds(replay: Replay, graph: ExecutionGraph, regions: list[LayerRegion], stretch: float) -> float:
    """Seconds of regions on the device, from the first operation to the last; without a device, on the host.

    `stretch`: ratio of the replayed step to the measured one.
    """
    if on_host_alone(graph):
        return sum(region.end - region.begin for region in regions) * stretch
    starts, ends = (each.tolist() for each in replay.op_times(0))
    total = 0.0
    for region in regions:
        mine = [
            i
            for i, work in enumerate(graph.op_timings)
            if work.launch and work.launch.thread == region.thread and region.begin < work.launch.end <= region.end
        ]
        total += max((ends[i] for i in mine), default=0.0) - min((starts[i] for i in mine), default=0.0)
    return total


def pipeline_seconds(stages: int, micro_batches: int, layers: int, passes: tuple[float, float]) -> float:
    """Seconds of 1F1B; `passes`: forward and backward seconds of one micro-batch through all layers."""
    builder = ActivityBuilder()
    lanes = [builder.add_lane() for _ in range(stages)]
    orders = schedule_slots("1f1b", stages, micro_batches)
    number: dict[tuple[str, int, int], int] = {}
    for stage, order in enumerate(orders):
        for phase, micro_batch, _ in order:
            number[phase, micro_batch, stage] = len(number)
    for stage, order in enumerate(orders):
        share = (layers * (stage + 1) // stages - layers * stage // stages) / layers
        for phase, micro_batch, _ in order:
            before = (phase, micro_batch, stage - 1 if phase == "F" else stage + 1)
            after = [number[before]] if before in number else []
            if phase == "B" and stage == stages - 1:
                after = [number["F", micro_batch, stage]]
            builder.add(passes[phase == "B"] * share, [lanes[stage]], after)
    times, _ = run_activities(builder.build())
    return float(times.ends.max())
