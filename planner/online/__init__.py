"""Planning during a run: a separate process plans each batch while earlier ones train.

Planner and runtime share only the head plan (of the first batches, with a catalogue of groups) and a folder of step
files, see plan/step_files.py.
"""

from planner.online.catalogue_placement import with_group_catalogue
from planner.online.plan_inputs import inputs_of_plan
from planner.online.planner_process import plan_anew, run_planner
from planner.plan.step_files import trained_steps
