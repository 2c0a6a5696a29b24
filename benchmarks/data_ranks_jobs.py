"""What the case `data-ranks` solves: sequences of ByteScale's mix on 64 to 1024 H100, and FlexSP's own batches.

Prices are those of llama-3-8b on H100 below ZeRO-3 with 8K tokens to a rank (ByteScale, arXiv 2502.21231), for any
number of ranks within a node and of whole nodes; and those of FlexSP's GPT-7B job.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.solve_quality import JOB as FLEXSP_JOB
from benchmarks.solve_quality import LENGTHS
from planner.costs.pricing import Pricing
from planner.costs.step.sequences import Sequences, sequences
from planner.specs.base import changed
from planner.specs.distributions import sample
from planner.specs.inputs import Inputs, Options, load
from planner.strategies.base import data_parallel, uses
from planner.strategies.data_ranks import degrees

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

    problem: Sequences
    clipped: int  # sequences cut to what all ranks hold


def byted(ranks: int) -> Mix:
    """As many sequences as the global batch has tokens for; none longer than all ranks hold without offloading."""
    longest, total, clipped = min(CONTEXT, ranks * CAP), 0, 0
    sizes: dict[int, int] = {}
    for item, length in enumerate(sample("byted", ranks * PER_RANK // 1024, SEED)):  # the mean is above 1024
        clipped += length > longest
        sizes[item] = min(length, longest)
        total += sizes[item]
        if total >= ranks * PER_RANK:
            break
    return Mix(problem_of(h100(ranks), sizes), clipped)


def h100(ranks: int) -> Inputs:
    """The shipped job on another number of ranks, which meet once a step."""
    inputs = load(JOB, Options())
    (entry,), (node, whole) = inputs.cluster.ranks, inputs.cluster.levels
    cluster = changed(inputs.cluster, ranks=(changed(entry, count=ranks),), levels=(node, changed(whole, ranks=ranks)))
    job = changed(inputs.job, limits=changed(inputs.job.limits, tokens_per_rank=CAP))
    return once_a_step(replace(inputs, job=job, cluster=cluster), ())


def flexsp(data: Path) -> Iterator[tuple[int, str, Sequences]]:
    """The first batches that FlexSP released, by allowed degrees; nothing is offloaded."""
    inputs = load(FLEXSP_JOB, Options(lengths=str(data / LENGTHS), batches=FLEXSP_BATCHES))
    for number, batch in enumerate(inputs.batches):
        for name, allowed in FLEXSP_DEGREES.items():
            problem = problem_of(once_a_step(inputs, allowed), batch.items)
            yield number, name, replace(problem, offload=None)


def once_a_step(inputs: Inputs, allowed: tuple[int, ...]) -> Inputs:
    layout = changed(inputs.job.layout, zero=1)
    return replace(inputs, job=changed(inputs.job, strategy="data_ranks", sync="step", layout=layout, degrees=allowed))


def problem_of(inputs: Inputs, sizes: dict[int, int]) -> Sequences:
    layouts = data_parallel(inputs)
    used = uses(inputs, layouts, degrees(inputs))
    pricing = Pricing(used.models, layouts, inputs.cluster, used.prices, used.devices)
    return sequences(pricing, inputs.module, used, sizes, "step")
