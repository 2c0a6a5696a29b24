"""One discrete-event engine: tasks in, timeline out; memory over it, and a trace of it."""

from planner.simulate.engine import simulate
from planner.simulate.memory import Memory, memory_use
from planner.simulate.timeline import Event, Timeline
from planner.simulate.trace import to_trace

__all__ = ["Event", "Memory", "Timeline", "memory_use", "simulate", "to_trace"]
