"""Linear and integer programs: written once, solved by any back end, and every answer checked."""

from planner.programs.back_ends import BACKENDS, solve
from planner.programs.builder import ProgramBuilder
from planner.programs.program import Program
from planner.programs.solver_answer import Solution

__all__ = ["BACKENDS", "Program", "ProgramBuilder", "Solution", "solve"]
