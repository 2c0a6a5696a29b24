"""MegaScale's figures (arXiv 2402.15627) beside the simulator's: what overlapping each exchange is worth on 256 GPUs,
and eight step times of strong scaling after calibrating one coefficient on the first of them.

The ladder begins with all exchanges synchronous and turns TP, PP and DP overlap on, one after the other; then come
sliding-window attention, whose window the paper does not state (here 1,024 tokens), and three times the batch, as LAMB
allows. The paper's parallel block and its kernels are nothing that a module spec says, so their rungs are left out. MFU
counts the model without a window.
"""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from benchmarks.gpt_175b import SEQ, job
from benchmarks.registry import Figures
from planner import pipeline
from planner.plan.plan_file import Plan
from planner.specs.base import with_fields
from planner.specs.framework.overlap import Overlap
from planner.specs.inputs import JobOptions
from planner.specs.layers import Decoder
from planner.specs.shapes import step_flops

RANKS, BATCH, WINDOW = 256, 256, 1024
PEAK = 312e12  # FLOP/s of an A100 in bf16
ALL_ON = Overlap(tp=True, pp=True, dp=True)


class Rung(NamedTuple):
    """One step of the ladder."""

    name: str
    overlap: Overlap
    batch: int = BATCH
    window: int | None = None
    published_gain: float | None = None  # of MFU, over the rung before


LADDER = (
    Rung("synchronous", Overlap(tp=False, pp=False, dp=False)),
    Rung("TP overlap", Overlap(tp=True, pp=False, dp=False), published_gain=55.5 / 53.3),
    Rung("PP overlap", Overlap(tp=True, pp=True, dp=False), published_gain=58.0 / 55.5),
    Rung("DP overlap", ALL_ON, published_gain=59.5 / 58.0),
    Rung("sliding window", ALL_ON, window=WINDOW, published_gain=53.3 / 52.3),
    Rung("batch x3", ALL_ON, 3 * BATCH, WINDOW, 65.3 / 62.3),
)
SCALING = (  # GPUs, sequences in a step, published seconds
    (256, 768, 32.0), (512, 768, 16.5), (768, 768, 11.5), (1024, 768, 8.9),
    (3072, 6144, 23.66), (6144, 6144, 12.21), (8192, 6144, 9.56), (12288, 6144, 6.34),
)  # fmt: skip


class Reached(NamedTuple):
    rung: Rung
    seconds: float
    mfu: float


def run(data: Path | None) -> Iterator[Figures]:
    reached = ladder(LADDER)
    for before, now in zip((None, *reached), reached, strict=False):
        yield {
            "rung": now.rung.name,
            "step_seconds": round(now.seconds, 3),
            "mfu": round(now.mfu, 4),
            "gain": round(now.mfu / before.mfu, 4) if before else None,
            "published_gain": round(now.rung.published_gain, 4) if now.rung.published_gain else None,
            "times": "simulated; published_gain is the paper's",
        }
    yield {
        "rung": "all of these",
        "gain": round(reached[-1].mfu / reached[0].mfu, 4),
        "gain_of_overlap": round(reached[3].mfu / reached[0].mfu, 4),
        "published_gain_of_overlap": round(59.5 / 53.3, 4),
        "published_gain_with_parallel_block_and_kernels": round(65.3 / 47.7, 4),
    }
    points = scaling()
    coefficient = points[0][2] / points[0][3]
    for ranks, batch, published, simulated in points:
        yield {
            "gpus": ranks,
            "batch": batch,
            "published_seconds": published,
            "simulated_seconds": round(coefficient * simulated, 3),
            "coefficient": round(coefficient, 4),
            "error": round(coefficient * simulated / published - 1.0, 4),
        }


def ladder(rungs: tuple[Rung, ...]) -> list[Reached]:
    """Step and MFU of each rung."""
    made: dict[tuple[int, int | None], Plan] = {}
    found = []
    for rung in rungs:
        key = rung.batch, rung.window
        made[key] = made.get(key) or planned(RANKS, *key)
        seconds = pipeline.simulate(made[key], rung.overlap)[0].step_seconds
        flops = step_flops(unwindowed(made[key]), (SEQ,) * rung.batch)
        found.append(Reached(rung, seconds, flops / (seconds * RANKS * PEAK)))
    return found


def unwindowed(plan: Plan) -> Decoder:
    """The model as MFU counts it."""
    module = plan.uses.models["llm"]
    assert isinstance(module, Decoder)
    return with_fields(module, window=None)


def scaling(points: tuple[tuple[int, int, float], ...] = SCALING) -> list[tuple[int, int, float, float]]:
    """GPUs, batch, published and simulated seconds, before any calibration."""
    return [(*point, pipeline.simulate(planned(point[0], point[1]), ALL_ON)[0].step_seconds) for point in points]


def planned(ranks: int, batch: int, window: int | None = None) -> Plan:
    """The layout that the job fixes, as a verified plan."""
    with TemporaryDirectory() as folder:
        return pipeline.solve(job(Path(folder), ranks, batch, window), JobOptions()).plan
