"""Batches of measured lengths on 8 to 1024 ranks, at the prices of FlexSP's GPT-7B job."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.solve_quality import JOB, problem_of
from planner.costs.packing_problem import PackingProblem, RankPool
from planner.specs.inputs import JobOptions, load_job
from planner.specs.workload.distributions import draw_lengths
from planner.specs.workload.samples import read_lengths

RANKS = (8, 64, 256, 1024)
PER_RANK = 8  # sequences
COLUMNS = {"arxiv_summarization_llama2tok": "num_total_tokens"}  # of files whose lengths are not in `tokens`
BATCHES = {64: 3}  # by ranks; elsewhere one
FLEXSP_RANKS = 64  # FlexSP's own cluster: there it is run as well


@dataclass(frozen=True, slots=True)
class Instance:
    workload: str
    batch: int
    clipped: int  # sequences cut to what the widest group holds
    problem: PackingProblem


def instances(data: Path | None) -> Iterator[Instance]:
    """Every workload of a folder, or the fitted one, on every number of ranks."""
    priced, round_to = priced_problem()
    for name, lengths in workloads(data):
        for ranks in RANKS:
            count = min(PER_RANK * ranks, len(lengths))
            for batch in range(min(BATCHES.get(ranks, 1), len(lengths) // count)):
                rows = lengths[batch * count : (batch + 1) * count]
                yield instance(name, batch, rows, on_ranks(priced, ranks), round_to)


def workloads(data: Path | None) -> Iterator[tuple[str, list[int]]]:
    if data is None:
        yield "wikipedia (fitted)", draw_lengths("wikipedia", PER_RANK * max(RANKS), 0)
        return
    for path in sorted((data / "seqlen").glob("*.csv.gz")):
        name = path.name.removesuffix(".csv.gz")
        yield name, read_lengths(path, COLUMNS.get(name, "tokens"))


def priced_problem() -> tuple[PackingProblem, int]:
    """The job's problem on its own 64 ranks, for its prices; and what its lengths are rounded to."""
    inputs = load_job(JOB, JobOptions())
    return problem_of(inputs, 0, inputs.job.degrees), inputs.job.workload.round_to


def on_ranks(priced: PackingProblem, ranks: int) -> PackingProblem:
    """The same prices on another number of ranks: degrees beyond them go, wider ones have no price."""
    (pool,) = priced.pools
    shapes = tuple(shape for shape in priced.shapes if shape.degree <= ranks)
    return replace(priced, pools=(RankPool(0, ranks, pool.per_node),), shapes=shapes)


def instance(name: str, batch: int, rows: list[int], priced: PackingProblem, round_to: int) -> Instance:
    """Lengths rounded up as the job does, and cut to what the widest group holds."""
    longest = priced.shapes[-1].room // round_to * round_to
    rounded = [-(-length // round_to) * round_to for length in rows]
    sizes = {item: min(length, longest) for item, length in enumerate(rounded)}
    return Instance(name, batch, sum(length > longest for length in rounded), replace(priced, sizes=sizes))
