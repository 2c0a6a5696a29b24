"""The verbs of `planner`, one file each; heavy imports stay inside their functions."""
