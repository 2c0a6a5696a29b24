"""Replays traces of torch.profiler (Kineto): execution graph, timeline, critical path, stragglers, what-ifs.

file → read_kineto_trace → RecordedTrace → build_graph → ExecutionGraph → replay_graphs (the event clock) → Replay
"""

from planner.replay.classes import kernel_class
from planner.replay.critical import PathLink, OperatorShare, find_critical_path, rank_operators
from planner.replay.graph import ExecutionGraph, build_graph
from planner.replay.pieces import DEPENDENCY_KINDS, DependencyKind
from planner.replay.read import read_kineto_trace
from planner.replay.replayed import Replay, ReplayedStep, replay_graphs
from planner.replay.trace import RecordedTrace

__all__ = [
    "DEPENDENCY_KINDS",
    "ExecutionGraph",
    "DependencyKind",
    "PathLink",
    "OperatorShare",
    "Replay",
    "ReplayedStep",
    "RecordedTrace",
    "build_graph",
    "find_critical_path",
    "kernel_class",
    "rank_operators",
    "read_kineto_trace",
    "replay_graphs",
]
