"""GPU hours of public training runs, and what planner says of the same: of their layouts as told, and of the best.

Llama 3.1 405B: 30.84 M hours of H100 (its model card) for 15.6T tokens; 16,384 GPUs, tp 8, pp 16, dp 128, 2,048
sequences of 8,192 tokens (arXiv 2407.21783, table 4). DeepSeek-V3: 2.664 M hours of H800 for 14.8T tokens; 2,048 GPUs,
pp 16, ep 64, 15,360 sequences of 4,096 tokens, in fp8 (arXiv 2412.19437, section 3.1); at its own $2 an hour.
"""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from benchmarks.registry import Figures
from planner import pipeline
from planner.pools import PoolAnswer

JOB = """\
format: planner.job/1
name: {name}
model: {model}
cluster: ./cluster.yaml
software: {software}
strategy: parallel_search
workload: {{lengths: {seq}, batch_rows: {rows}}}
layout: {{{layout}}}
run: {{tokens: {tokens}}}
"""
CLUSTER = """\
format: planner.cluster/1
name: {kind}
nodes: {nodes}
gpus: 8x{kind}
usd_per_hour: 2.0
"""
USD = 2.0  # of a GPU hour: so many dollars are hours


class PublicRun(NamedTuple):
    """A run with the hours that were published, and how it is said to be laid out."""

    model: str
    kind: str
    nodes: int
    seq: int
    rows: int
    tokens: float
    hours: float
    layout: str
    kept: str  # of its layout, where the rest is searched
    software: str


RUNS = (
    PublicRun(
        "llama-3.1-405b", "h100", 2048, 8192, 2048, 15.6e12, 30.84e6, "tp: 8, cp: 1, pp: 16", "dtype: bf16", "megatron"
    ),
    PublicRun(
        "deepseek-v3",
        "h800",
        256,
        4096,
        15360,
        14.8e12,
        2.664e6,
        "dtype: fp8, tp: 1, cp: 1, pp: 16, ep: 64",
        "dtype: fp8, cp: 1",
        "any",
    ),
)


def run(_: Path | None = None) -> Iterator[Figures]:
    for one in RUNS:
        for what, layout in (("as published", one.layout), ("best", one.kept)):
            with TemporaryDirectory() as folder:
                answer = billed(one, layout, Path(folder))
            lost, hours = answer.chosen.tariff.downtime.share, answer.chosen.bill.usd / USD
            yield {
                "name": f"{one.model} {what}",
                "gpu_hours": hours,
                "published_gpu_hours": one.hours,
                "ratio": hours / one.hours,
                "downtime": lost,
                "ratio_without_downtime": hours * (1.0 - lost) / one.hours,
            }


def billed(one: PublicRun, layout: str, folder: Path) -> PoolAnswer:
    """The bill of a run on its own cluster."""
    (folder / "cluster.yaml").write_text(CLUSTER.format(kind=one.kind, nodes=one.nodes))
    told = one._asdict() | {"name": f"{one.model}-run", "layout": layout}
    (folder / "job.yaml").write_text(JOB.format(**told))
    return pipeline.choose(str(folder / "job.yaml"))
