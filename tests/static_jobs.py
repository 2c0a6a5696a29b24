"""Jobs of one static layout for tests: sequences of equal length, or of the lengths that are given."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from planner.errors import Infeasible
from planner.layouts import LayoutProblem, fixed_fields, layout_at, layouts_of, screen, with_searched_parts
from planner.scoring import with_score
from planner.specs.inputs import Inputs, JobOptions, load_job
from planner.strategies.one_module.simulated_layouts import simulate_layout

CLUSTER = """\
format: planner.cluster/1
name: {kind}x{count}
source: made up
ranks: [{{kind: {kind}, count: {count}, per_node: {per_node}}}]
levels:
  - {{name: node, ranks: {per_node}, gb_per_s: 450, latency_us: 6.5}}
  - {{name: cluster, ranks: {count}, gb_per_s: 50, latency_us: 15}}
"""
JOB = """\
format: planner.job/1
name: made-up
model: {model}
cluster: {cluster}
strategy: parallel_search
workload: {{lengths: {{from: file, path: lengths.txt}}, batch_rows: {rows}, max_tokens: {most}, module: llm}}
layout: {{{kept}}}
fix: {{layouts: {{llm: {{{fixed}}}}}}}
"""


def static_job(
    folder: Path, model: str, cluster: str, sizes: Sequence[int], fixed: str = "", kept: str = "zero: 1"
) -> str:
    """Path of a job whose batch has these lengths; `kept`: what it says under `layout`."""
    (folder / "lengths.txt").write_text("\n".join(map(str, sizes)) + "\n")
    said = JOB.format(model=model, cluster=cluster, rows=len(sizes), most=max(sizes), kept=kept, fixed=fixed)
    path = folder / "job.yaml"
    path.write_text(said)
    return str(path)


def for_software(job: str, software: str) -> str:
    """The path of a job, which now names this software."""
    path = Path(job)
    path.write_text(f"{path.read_text()}software: {software}\n")
    return job


def static_inputs(
    folder: Path, model: str, cluster: str, sizes: Sequence[int], fixed: str = "", kept: str = ""
) -> Inputs:
    """Of a search, which decides what `kept` leaves out."""
    return load_job(static_job(folder, model, cluster, sizes, fixed, kept), JobOptions(effort=1))


def small_cluster(folder: Path, kind: str, count: int, per_node: int = 8) -> str:
    """Path of a cluster of few ranks."""
    path = folder / "cluster.yaml"
    text = CLUSTER.format(kind=kind, count=count, per_node=min(per_node, count))
    if count <= per_node:
        text = "\n".join(text.splitlines()[:-1]) + "\n"
    path.write_text(text)
    return str(path)


def best_simulated(inputs: Inputs, problem: LayoutProblem) -> float:
    """The least simulated seconds of any layout of the space whose plan fits."""
    found = layouts_of(problem, fixed_fields(inputs))
    screened, best = with_searched_parts(problem, screen(problem, found)), np.inf
    for place in range(len(screened.seconds)):
        tried = simulate_layout(inputs, layout_at(problem.trained, screened.layouts, place))
        if tried.seconds < best:
            try:
                with_score(tried.plan, "")
            except Infeasible:
                continue
            best = tried.seconds
    return best
