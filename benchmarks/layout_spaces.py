"""Processor seconds of enumerating, screening and bounding whole spaces of static layouts, each by itself."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import process_time

from benchmarks.registry import Figures
from planner.layouts import LayoutProblem, layout_bounds, layout_problem, layouts_of, screen
from planner.specs.inputs import JobOptions, load_job

# model, ranks, tokens of a sequence, sequences of a step
SPACES = (
    ("llama-3-70b", 64, 8192, 128),
    ("llama-3.1-405b", 1024, 8192, 1024),
    ("deepseek-v3", 2048, 4096, 4096),
    ("gpt-1t", 16384, 2048, 16384),
)
JOB = """\
format: planner.job/1
name: layout-spaces
model: {model}
cluster: {folder}/cluster.yaml
strategy: parallel_search
software: any
workload: {{lengths: {{from: file, path: {folder}/lengths.txt}}, batch_rows: {batch}, max_tokens: {seq}}}
"""
CLUSTER = """\
format: planner.cluster/1
name: layout-spaces
source: made up
ranks: [{{kind: h100-80gb, count: {ranks}, per_node: 8}}]
levels:
  - {{name: node, ranks: 8, gb_per_s: 450, latency_us: 6.5}}
  - {{name: cluster, ranks: {ranks}, gb_per_s: 50, latency_us: 15}}
"""


def run(data: Path | None) -> Iterator[Figures]:
    for model, ranks, seq, batch in SPACES:
        problem = problem_of(model, ranks, seq, batch)
        started = process_time()
        found = layouts_of(problem, problem.trained.fixed)
        enumerated = process_time()
        screen(problem, found)
        screened = process_time()
        layout_bounds(problem, found)
        bounded = process_time()
        count = len(found["tp"])
        yield {
            "model": model,
            "ranks": ranks,
            "layouts": count,
            "enumerated_per_second": round(count / (enumerated - started)),
            "screened_per_second": round(count / (screened - enumerated)),
            "bounded_per_second": round(count / (bounded - screened)),
            "seconds": round(bounded - started, 2),
        }


def problem_of(model: str, ranks: int, seq: int, batch: int) -> LayoutProblem:
    """The search of a job that fixes nothing, on H100s in nodes of eight."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        (path / "lengths.txt").write_text(f"{seq}\n" * batch)
        (path / "cluster.yaml").write_text(CLUSTER.format(ranks=ranks))
        (path / "job.yaml").write_text(JOB.format(model=model, folder=folder, batch=batch, seq=seq))
        return layout_problem(load_job(str(path / "job.yaml"), JobOptions()))
