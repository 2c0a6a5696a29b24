"""FlexSP's figure 4, its Wikipedia panels of the 7B model: how much faster each system is than DeepSpeed-Ulysses.

Priced with the coefficients that FlexSP released, and with its released lengths: DeepSpeed has the least static degree
that holds the longest sequence, packed by best fit; BatchAda the best homogeneous degree of each batch; FlexSP its own
program, sorted and cut, five seconds a micro-batch. The figure's Megatron-LM stands apart: the paper does not say which
degrees of tensor and context parallelism it was given. Published ratios: read from the figure, where most are printed.
"""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import mean

from benchmarks.baselines.best_fit import best_fit, best_fit_bins
from benchmarks.baselines.flexsp import flexsp
from benchmarks.baselines.groups import homogeneous, powers_of_two
from benchmarks.registry import Figures
from benchmarks.solve_quality import DEGREES, JOB, LENGTHS, problem_of
from planner.costs.packing_problem import PackingProblem
from planner.packing.packed_groups import Packing, packing_seconds
from planner.specs import library
from planner.specs.base import with_fields
from planner.specs.inputs import Inputs, JobOptions, resolve_job
from planner.specs.job import Job
from planner.strategies.sequence_groups import pack

Way = Callable[[PackingProblem], Packing | None]
BATCHES = 5
PANELS = {  # longest sequence → published times of DeepSpeed over those of each system (arXiv 2412.01523, figure 4)
    191_872: {"BatchAda": 1.34, "FlexSP": 1.72},
    383_872: {"BatchAda": 1.32, "FlexSP": 1.46},
}


def run(data: Path | None) -> Iterator[Figures]:
    for longest, published in PANELS.items():
        inputs = panel(data, longest)
        problems = [problem_of(inputs, number, DEGREES["from 1"]) for number in range(BATCHES)]
        deepspeed = seconds(problems, partial(least_degree, longest=longest))
        yield {"longest": longest, "system": "DeepSpeed", "seconds": round(deepspeed, 3)}
        ways: dict[str, Way] = {"BatchAda": best_fit, "FlexSP": flexsp, "ours": lambda problem: pack(problem, 2)[0]}
        for name, way in ways.items():
            found = seconds(problems, way)
            line = {
                "longest": longest,
                "system": name,
                "seconds": round(found, 3),
                "faster": round(deepspeed / found, 3),
            }
            told = published.get(name)
            yield line | ({"published": told, "off": round(deepspeed / found / told - 1, 3)} if told else {})


def panel(data: Path | None, longest: int) -> Inputs:
    """Batches whose sequences are at most so long, and dropped beyond, as the paper does."""
    job, path = library.read_named(JOB, Job)
    shorter = with_fields(job, workload=with_fields(job.workload, max_tokens=longest))
    return resolve_job(shorter, path, JobOptions(lengths=str(data / LENGTHS) if data else None, batches=BATCHES))


def seconds(problems: list[PackingProblem], way: Way) -> float:
    """Of the mean step."""
    return mean(packing_seconds(problem, packed) for problem in problems if (packed := way(problem)) is not None)


def least_degree(problem: PackingProblem, longest: int) -> Packing:
    """One degree for all that may come."""
    wide = min(shape for shape in powers_of_two(problem) if problem.shapes[shape].room >= longest)
    return homogeneous(problem, wide, best_fit_bins(problem, sorted(problem.sizes), problem.shapes[wide].room))
