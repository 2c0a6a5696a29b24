"""Programs: linear, partly in whole numbers, written once and solved by any back end."""

from planner.solve.answer import Solution
from planner.solve.builder import ProgramBuilder
from planner.solve.face import BACKENDS, solve
from planner.solve.program import Program

__all__ = ["BACKENDS", "Program", "ProgramBuilder", "Solution", "solve"]
