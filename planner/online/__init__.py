"""Planning during a run: a separate process plans each batch while earlier ones train.

Planner and runtime share only the head plan (of the first batches, with a catalogue of groups) and a folder of step
files, see plan/steps.py.
"""

from planner.online.head import headed
from planner.online.history import trained
from planner.online.process import planning

__all__ = ["headed", "planning", "trained"]
