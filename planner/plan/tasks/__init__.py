"""The expansion of a plan into tasks: schedules, dependencies, placements and one order for all ranks."""
