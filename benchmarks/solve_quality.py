"""How good plans are and how long they take, beside the balanced homogeneous plan and FlexSP's own solver.

With the lengths that FlexSP released, the job is its objective exactly; its solver's results on the first two batches
are published figures (SCIP, 5 s a micro-batch). Without them, lengths come from the fitted distribution.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median
from time import perf_counter

from benchmarks.registry import Figures
from planner.costs.packing_problem import PackingProblem, RankPool, packing_problem
from planner.costs.pricing import Pricing
from planner.packing.balanced import best_balanced
from planner.packing.packed_groups import packing_seconds
from planner.scoring.bounds.step_bounds import packing_bound
from planner.specs.inputs import Inputs, JobOptions, load_job
from planner.strategies.plan_drafts import data_parallel_layouts, plan_uses
from planner.strategies.sequence_groups import pack

JOB = "flexsp-gpt-7b-a100x64"
LENGTHS = "seqlen/flexsp_wikipedia_first_half.csv.gz"
FLEXSP_MS = {0: 3100.5, 1: 5690.8}  # published: its solver on the first two batches, about 10 s each
BATCHES = 20
DEGREES = {"from 2": (2, 4, 8, 16, 32, 64), "from 1": (1, 2, 4, 8, 16, 32, 64)}
EFFORTS = (1, 2, 3)
REPEATS = 3
LARGE = (1024, 32768)  # ranks, sequences


def run(data: Path | None) -> Iterator[Figures]:
    lengths = str(data / LENGTHS) if data else None
    workload = "wikipedia (released)" if data else "wikipedia (fitted)"
    inputs = load_job(JOB, JobOptions(lengths=lengths, batches=BATCHES))
    for degrees in DEGREES:
        problems = [problem_of(inputs, number, DEGREES[degrees]) for number in range(BATCHES)]
        for effort in EFFORTS:
            found = [decided(problem, effort) for problem in problems]
            head = {"workload": workload, "degrees": degrees, "effort": effort}
            yield head | over_all(found)
            for number in FLEXSP_MS:
                yield head | {"batch": number, **found[number], "flexsp_solver_ms": FLEXSP_MS[number] if data else None}
    large = load_job(JOB, JobOptions(lengths=lengths, batches=LARGE[1] // inputs.job.workload.batch_rows))
    for effort in EFFORTS[:2]:
        found_large = decided(enlarged(large), effort)
        yield {"workload": workload, "ranks": LARGE[0], "rows": LARGE[1], "effort": effort, **found_large}


def problem_of(inputs: Inputs, number: int, degrees: tuple[int, ...]) -> PackingProblem:
    """The sequences of one batch, on the job's ranks."""
    layouts = data_parallel_layouts(inputs)
    used = plan_uses(inputs, layouts, degrees)
    pricing = Pricing(used.models, layouts, inputs.cluster, used.prices, used.devices)
    return packing_problem(pricing, inputs.module, used, inputs.batches[number].items)


def enlarged(inputs: Inputs) -> PackingProblem:
    """All batches as one, on more nodes of the same cluster."""
    problem = problem_of(inputs, 0, DEGREES["from 2"])
    sizes = {item: size for batch in inputs.batches for item, size in batch.items.items()}
    return replace(problem, sizes=sizes, pools=(RankPool(0, LARGE[0], problem.pools[0].per_node),))


def decided(problem: PackingProblem, effort: int) -> Figures:
    """Pack and prove: medians of the seconds that each takes."""
    packing, proving, balancing = [], [], []
    for _ in range(REPEATS):
        start = perf_counter()
        balanced = best_balanced(problem)
        balancing.append(perf_counter() - start)
        packed, _ = pack(problem, effort)
        packing.append(perf_counter() - start - balancing[-1])
        value = packing_seconds(problem, packed)
        begun = perf_counter()
        bound = packing_bound(problem, value, effort)
        proving.append(perf_counter() - begun)
    return {
        "value_ms": round(value * 1e3, 1),
        "bound_ms": round(bound.seconds * 1e3, 1),
        "bound_by": bound.by,
        "gap": round(value / bound.seconds - 1, 5),
        "balanced_ms": round(packing_seconds(problem, balanced) * 1e3, 1) if balanced else None,
        "first_plan_seconds": round(median(balancing), 4),
        "packing_seconds": round(median(packing), 4),
        "bound_seconds": round(median(proving), 4),
    }


def over_all(found: list[Figures]) -> Figures:
    """Gaps and times over consecutive batches."""
    gaps = [figures["gap"] for figures in found]
    seconds = [figures["packing_seconds"] + figures["bound_seconds"] for figures in found]
    return {
        "batches": len(found),
        "gap_median": round(median(gaps), 5),
        "gap_worst": max(gaps),
        "seconds_median": round(median(seconds), 4),
        "seconds_worst": round(max(seconds), 4),
        "balanced_over_ours_median": round(median(f["balanced_ms"] / f["value_ms"] for f in found), 4),
    }
