"""Replays traces of torch.profiler: execution graph, timeline, critical path, stragglers, what-ifs.

file → read_kineto_trace → RecordedTrace → build_graph → ExecutionGraph → replay_graphs (event clock) → Replay.
"""

from planner.replay.dependencies.execution_graph import build_graph
from planner.replay.dependencies.host_segments import DEPENDENCY_KINDS, DependencyKind
from planner.replay.recording.kineto_reader import find_traces, read_kineto_trace
from planner.replay.recording.operator_shapes import RecordedWork, ShapedOperator, read_operators
from planner.replay.recording.recorded_names import is_communication, kernel_class
from planner.replay.recording.recorded_trace import RecordedTrace
from planner.replay.timing.critical_path import OperatorShare, PathLink, find_critical_path, rank_operators
from planner.replay.timing.timed_replay import Replay, ReplayedStep, replay_graphs
