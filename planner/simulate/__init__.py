"""A discrete-event simulator: tasks in, timeline out; memory over time, and Chrome traces."""

from planner.simulate.action_check import require_possible
from planner.simulate.activities import NO_ACTIVITY, Activities, ActivityBuilder, ActivityTimes
from planner.simulate.compiled_clock import run_activities
from planner.simulate.decision_clock import run_jobs
from planner.simulate.decisions import Action, Decide, Do, Event, History, JobState, Segment, State, arrived
from planner.simulate.engine import simulate, simulated_end
from planner.simulate.equal_micro_batches import equal_step_seconds
from planner.simulate.memory_curves import (
    Curve,
    FurtherBytes,
    MemoryCurves,
    OutputBytes,
    TaskSpans,
    simulate_memory,
)
from planner.simulate.time_parts import (
    ModuleWait,
    TimePart,
    is_feed,
    mean_seconds,
    rank_counts,
    rank_parts,
    waits_for_modules,
)
from planner.simulate.timeline import TaskEvent, Timeline
from planner.simulate.trace_reader import RecordedStep, median_step, read_steps
from planner.simulate.trace_records import TracedStep, representatives_of_ranks
from planner.simulate.trace_writer import build_trace, write_trace
