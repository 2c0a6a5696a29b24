"""Linear and integer programs: written once, solved by any back end, and every answer checked."""

from planner.solve.answer import Solution
from planner.solve.builder import ProgramBuilder
from planner.solve.face import BACKENDS, solve
from planner.solve.program import Program

__all__ = ["BACKENDS", "Program", "ProgramBuilder", "Solution", "solve"]
