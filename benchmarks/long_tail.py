"""Samples of unlike lengths: the LLM in groups of unequal degree, encoders on all ranks, and the best static layouts.

Qwen2.5-VL-7B on 64 H100; half of the samples have four images of COCO's sizes. Texts are log-normal, some of them much
longer than the others; in the last workload all are alike, which static layouts are made for. All seconds are simulated
with the rates of the profile that a line names; static layouts are the best of `modality_layout`, with their assignment
of samples, and `fsdp_all` is the best of them under ZeRO-3 alone, as the groups are.
"""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import NamedTuple

from benchmarks.registry import Figures
from planner.plan.plan_file import Plan
from planner.solve_job import read_job, solve_with
from planner.specs.inputs import JobOptions

JOB = """
format: planner.job/1
name: long-tail
model: qwen2.5-vl-7b
cluster: h100x64
degrees: [1, 2, 4, 8, 16, 32]
workload:
  lengths:
    from: sample_mix
    multimodal: 5
    text_only: 5
    text: {{from: mix, parts: [{parts}]}}
    images: {{name: coco, each: 4}}
  batch_rows: {batch}
  max_tokens: {longest}
  module: llm
"""


class Lengths(NamedTuple):
    """Lengths of texts as a mix, samples of a step, and tokens of a sample at most."""

    parts: str
    batch: int
    longest: int


WORKLOADS = {
    "one in ten long": Lengths(
        "{weight: 9, median: 1500, sigma: 1.0}, {weight: 1, median: 16000, sigma: 0.8}", 512, 65536
    ),
    "one in twenty very long": Lengths(
        "{weight: 95, median: 600, sigma: 0.8}, {weight: 5, median: 40000, sigma: 0.4}", 256, 65536
    ),
    "all alike": Lengths("{weight: 1, median: 2048, sigma: 0.3}", 256, 8192),
}


def run(data: Path | None) -> Iterator[Figures]:
    for name, lengths in WORKLOADS.items():
        with TemporaryDirectory() as folder:
            job = Path(folder) / "job.yaml"
            job.write_text(JOB.format(**lengths._asdict()))
            (groups, spent), (static, _) = (solved(job, each) for each in ("sequence_groups", "modality_layout"))
        sharded = {each.strategy: each.value for each in static.alternatives}.get("fsdp_all", static.outcome.value)
        yield {
            "workload": name,
            "samples": lengths.batch,
            "groups_seconds": round(groups.outcome.value, 4),
            "groups_gap": round(groups.outcome.gap, 4),
            "static_seconds": round(static.outcome.value, 4),
            "fsdp_all_seconds": sharded and round(sharded, 4),
            "groups_over_static": round(groups.outcome.value / static.outcome.value - 1.0, 4),
            "degrees": sorted({len(each.ranks) for name, each in groups.groups.items() if "." not in name}),
            "planning_process_seconds": round(spent, 1),
            "times": f"simulated, rates of {groups.uses.prices.profile}",
        }


def solved(job: Path, strategy: str) -> tuple[Plan, float]:
    """The plan by a strategy, and the processor's seconds that it took."""
    begun = process_time()
    plan = solve_with(strategy, read_job(str(job), JobOptions()), lambda *_: None).plan
    return plan, process_time() - begun
