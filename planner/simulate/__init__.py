"""A discrete-event simulator: tasks in, timeline out; memory over that timeline, and Chrome traces of it."""

from planner.simulate.engine import simulate
from planner.simulate.memory import MemoryCurves, simulate_memory
from planner.simulate.recorded import RecordedStep, read_steps, read_trace, median_step
from planner.simulate.slices import TracedStep
from planner.simulate.timeline import TaskEvent, Timeline
from planner.simulate.trace import one_step_trace, build_trace, write_trace

__all__ = [
    "TaskEvent",
    "MemoryCurves",
    "RecordedStep",
    "Timeline",
    "TracedStep",
    "simulate_memory",
    "read_steps",
    "read_trace",
    "simulate",
    "one_step_trace",
    "build_trace",
    "median_step",
    "write_trace",
]
