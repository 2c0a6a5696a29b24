"""Replays traces of torch.profiler (Kineto): execution graph, timeline, critical path, stragglers, what-ifs.

file → read_kineto_trace → RecordedTrace → build_graph → ExecutionGraph → replay_graphs (the event clock) → Replay
"""

from planner.replay.classes import kernel_class
from planner.replay.critical import Link, Ranked, critical_path, ranked
from planner.replay.graph import Graph, build
from planner.replay.pieces import KINDS, Kind
from planner.replay.read import read
from planner.replay.replayed import Replay, StepTimes, replay
from planner.replay.trace import Trace

__all__ = [
    "KINDS",
    "Graph",
    "Kind",
    "Link",
    "Ranked",
    "Replay",
    "StepTimes",
    "Trace",
    "build",
    "critical_path",
    "kernel_class",
    "ranked",
    "read",
    "replay",
]
