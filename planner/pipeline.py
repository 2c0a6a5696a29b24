"""The product on one page: a job becomes a plan, a plan becomes a timeline, a run, a comparison.

job → Inputs → strategy → Plan → verify → simulate → Timeline → run → compare
"""

from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from planner import files
from planner.errors import InputError
from planner.plan.legal import require_legal
from planner.plan.model import Plan
from planner.specs.inputs import Inputs, Options, load
from planner.strategies import strategy
from planner.verify.score import Score, score


@dataclass(frozen=True, slots=True)
class Solved:
    """A plan, and how long solving alone took."""

    plan: Plan
    seconds: float


def solve(job: str, options: Options) -> Solved:
    """The plan of a job, verified. Raises InputError and Infeasible."""
    return decide(load(job, options))


def decide(inputs: Inputs) -> Solved:
    """Let the job's strategy decide, and trust nothing until it is verified."""
    chosen = strategy(inputs.job.strategy)
    reason = chosen.supports(inputs)
    if reason:
        raise InputError(reason, where="strategy", fix="change the job, or its strategy")
    start = perf_counter()
    plan = chosen.plan(inputs, None)
    seconds = perf_counter() - start
    require_legal(plan, inputs.job.name)
    return Solved(plan, seconds)


def read_plan(path: str | Path) -> Plan:
    """A plan file, legal or refused."""
    plan = files.read(path, Plan)
    require_legal(plan, str(path))
    return plan


def simulate(plan: Plan) -> list[Score]:
    """Every step of a plan, expanded, priced and simulated."""
    return [score(plan, number) for number in range(len(plan.steps))]
