"""How good plans are and how long they take, beside the balanced homogeneous plan and FlexSP's own solver.

With the lengths that FlexSP released, the job is its objective exactly; its solver's results on the first two batches
are published figures (SCIP, 5 s a micro-batch). Without them, lengths come from the fitted distribution.
"""

from collections.abc import Iterator
from pathlib import Path
from statistics import median
from time import perf_counter

from benchmarks.registry import Figures
from planner import pipeline
from planner.costs.pricing import pricing_of
from planner.costs.sequences import Sequences, sequences
from planner.packing.balanced import best_balanced
from planner.packing.packed import worth
from planner.plan.model import Plan
from planner.specs.inputs import Options
from planner.strategies.sequence_groups import pack
from planner.verify.bounds import step_sizes

JOB = "flexsp-gpt-7b-a100x64"
LENGTHS = "seqlen/flexsp_wikipedia_first_half.csv.gz"
FLEXSP_MS = {0: 3100.5, 1: 5690.8}  # published: its solver on the first two batches, about 10 s each
BATCHES = 10
REPEATS = 3


def run(data: Path | None) -> Iterator[Figures]:
    lengths = str(data / LENGTHS) if data else None
    solved = [pipeline.solve(JOB, Options(lengths=lengths, batches=BATCHES)) for _ in range(REPEATS)]
    plan = solved[0].plan
    for number, step in enumerate(plan.steps):
        assert step.outcome is not None
        yield {
            "workload": "wikipedia (released)" if data else "wikipedia (fitted)",
            "batch": number,
            "value_ms": round(step.outcome.value * 1e3, 1),
            "bound_ms": round(step.outcome.bound * 1e3, 1),
            "gap": round(step.outcome.gap, 4),
            "balanced_ms": round(balanced_seconds(plan, number) * 1e3, 1),
            "flexsp_solver_ms": FLEXSP_MS.get(number) if data else None,
            "seconds": round(median(s.step_seconds[number] for s in solved), 4),
            "packing_seconds": round(packing_seconds(plan, number), 4),
        }


def problem_of(plan: Plan, number: int) -> Sequences:
    return sequences(pricing_of(plan), "llm", plan.uses, step_sizes(plan, number, "llm"))


def balanced_seconds(plan: Plan, number: int) -> float:
    """The best balanced homogeneous plan of the same batch."""
    problem = problem_of(plan, number)
    packed = best_balanced(problem)
    return worth(problem, packed) if packed else float("nan")


def packing_seconds(plan: Plan, number: int) -> float:
    """Construct and improve alone, without pricing, simulating and bounding the plan."""
    problem = problem_of(plan, number)
    start = perf_counter()
    pack(problem, plan.made.effort)
    return perf_counter() - start
