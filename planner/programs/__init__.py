"""Linear and integer programs: written once, solved by any back end, and every answer checked."""

from planner.programs.assignment import heaviest_matching
from planner.programs.back_ends import BACKENDS, solve
from planner.programs.interval_scheduling import (
    IntervalProblem,
    IntervalSchedule,
    MeasuredSpan,
    Precedence,
    Reservation,
    schedule_intervals,
)
from planner.programs.program import Floats, Program, ProgramBuilder
from planner.programs.solver_answer import Solution, SolverLimits
