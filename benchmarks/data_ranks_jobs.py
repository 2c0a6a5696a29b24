"""What the case `data-ranks` solves: sequences of ByteScale's mix on 64 to 1024 H100, and FlexSP's own batches.

Prices are those of llama-3-8b on H100 below ZeRO-3 with 8K tokens to a rank (ByteScale, arXiv 2502.21231), for any
number of ranks within a node and of whole nodes; and those of FlexSP's GPT-7B job.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.solve_quality import JOB as FLEXSP_JOB
from benchmarks.solve_quality import LENGTHS
from planner.costs.packing_problem import PackingProblem, packing_problem
from planner.costs.pricing import Pricing
from planner.specs.base import with_fields
from planner.specs.inputs import Inputs, JobOptions, load_job
from planner.specs.workload.distributions import draw_lengths
from planner.strategies.data_ranks import candidate_degrees
from planner.strategies.plan_drafts import data_parallel_layouts, plan_uses

JOB = "llama-3-8b-h100x64"
RANKS = (64, 256, 1024)
CAP = 8192  # tokens that a rank holds
PER_RANK = 32 * 1024  # tokens of a global batch: 32M on 1024 ranks, as published
CONTEXT = 2 * 1024 * 1024  # tokens of the longest sequence
SEED = 0
FLEXSP_BATCHES = 2
FLEXSP_DEGREES = {"2, 4 … 64": (2, 4, 8, 16, 32, 64), "1, 2 … 64": (1, 2, 4, 8, 16, 32, 64), "any": ()}


@dataclass(frozen=True, slots=True)
class Mix:
    """A global batch of ByteScale's mix."""

    problem: PackingProblem
    clipped: int  # sequences cut to what all ranks hold


def byted(ranks: int) -> Mix:
    """As many sequences as the global batch has tokens for; none longer than all ranks hold without offloading."""
    longest, total, clipped = min(CONTEXT, ranks * CAP), 0, 0
    sizes: dict[int, int] = {}
    for item, length in enumerate(draw_lengths("byted", ranks * PER_RANK // 1024, SEED)):  # the mean is above 1024
        clipped += length > longest
        sizes[item] = min(length, longest)
        total += sizes[item]
        if total >= ranks * PER_RANK:
            break
    return Mix(problem_of(h100(ranks), sizes), clipped)


def h100(ranks: int) -> Inputs:
    """The shipped job on another number of ranks, which meet once a step."""
    inputs = load_job(JOB, JobOptions())
    (entry,), (node, whole) = inputs.cluster.ranks, inputs.cluster.levels
    cluster = with_fields(
        inputs.cluster, ranks=(with_fields(entry, count=ranks),), levels=(node, with_fields(whole, ranks=ranks))
    )
    job = with_fields(inputs.job, limits=with_fields(inputs.job.limits, tokens_per_rank=CAP))
    return once_a_step(replace(inputs, job=job, cluster=cluster), ())


def flexsp(data: Path) -> Iterator[tuple[int, str, PackingProblem]]:
    """The first batches that FlexSP released, by allowed degrees; nothing is offloaded."""
    inputs = load_job(FLEXSP_JOB, JobOptions(lengths=str(data / LENGTHS), batches=FLEXSP_BATCHES))
    for number, batch in enumerate(inputs.batches):
        for name, allowed in FLEXSP_DEGREES.items():
            problem = problem_of(once_a_step(inputs, allowed), batch.items)
            yield number, name, replace(problem, offload=None)


def once_a_step(inputs: Inputs, allowed: tuple[int, ...]) -> Inputs:
    layout = with_fields(inputs.job.layout, zero=1)
    return replace(
        inputs, job=with_fields(inputs.job, strategy="data_ranks", sync="step", layout=layout, degrees=allowed)
    )


def problem_of(inputs: Inputs, sizes: dict[int, int]) -> PackingProblem:
    layouts = data_parallel_layouts(inputs)
    used = plan_uses(inputs, layouts, candidate_degrees(inputs))
    pricing = Pricing(used.models, layouts, inputs.cluster, used.prices, used.devices)
    return packing_problem(pricing, inputs.module, used, sizes, "step")
