"""Planning while training runs: each batch is planned in a process of its own while earlier ones train.

The head (a plan of the first batches, with a catalogue of groups) and a folder of step files are all that planner and
runtime share, see plan/steps.py.
"""

from planner.online.head import headed
from planner.online.history import trained
from planner.online.process import planning

__all__ = ["headed", "planning", "trained"]
