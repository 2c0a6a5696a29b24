"""Traces of torch.profiler (Kineto) replayed: execution graph, timeline, critical path, ranks beside each other.

file → read → Trace → build → Graph → wired → the clock → Replay
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
