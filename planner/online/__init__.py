"""Planning during a run: a separate process plans each batch while earlier ones train.

Planner and runtime share only the head plan (of the first batches, with a catalogue of groups) and a folder of step
files, see plan/steps.py.
"""

from planner.online.head import with_group_catalogue
from planner.online.history import trained_steps
from planner.online.process import run_planner

__all__ = ["with_group_catalogue", "run_planner", "trained_steps"]
