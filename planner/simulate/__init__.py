"""A discrete-event simulator: tasks in, timeline out; memory over that timeline, and Chrome traces of it."""

from planner.simulate.engine import simulate
from planner.simulate.memory import Memory, memory_use
from planner.simulate.recorded import Recorded, read_steps, read_trace, typical
from planner.simulate.slices import Traced
from planner.simulate.timeline import Event, Timeline
from planner.simulate.trace import to_trace, trace_of, write_trace

__all__ = [
    "Event",
    "Memory",
    "Recorded",
    "Timeline",
    "Traced",
    "memory_use",
    "read_steps",
    "read_trace",
    "simulate",
    "to_trace",
    "trace_of",
    "typical",
    "write_trace",
]
