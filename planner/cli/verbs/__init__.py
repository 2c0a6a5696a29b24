"""The verbs of `planner`, those of one kind in one file; heavy imports stay inside their functions."""
