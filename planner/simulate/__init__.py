"""A discrete-event simulator: tasks in, timeline out; memory over that timeline, and Chrome traces of it."""

from planner.simulate.engine import simulate
from planner.simulate.memory_curves import MemoryCurves, simulate_memory
from planner.simulate.timeline import TaskEvent, Timeline
from planner.simulate.trace_reader import RecordedStep, median_step, read_steps, read_trace
from planner.simulate.trace_records import TracedStep
from planner.simulate.trace_writer import build_trace, one_step_trace, write_trace

__all__ = [
    "MemoryCurves",
    "RecordedStep",
    "TaskEvent",
    "Timeline",
    "TracedStep",
    "build_trace",
    "median_step",
    "one_step_trace",
    "read_steps",
    "read_trace",
    "simulate",
    "simulate_memory",
    "write_trace",
]
