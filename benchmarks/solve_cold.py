"""`planner solve` from nothing to the written plan: a new process, imports included; and static layouts of large jobs,
solved again in a warm process, with the verbs that read the plan.

Figures of static layouts are processor seconds. Their clusters are made up: nodes of eight H100 on one network.
"""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter, process_time

from benchmarks.registry import Figures
from planner import files, pipeline
from planner.specs.inputs import JobOptions

REPEATS = 5
STATIC = (
    ("llama-3-70b", 64, 1024, 8192),
    ("llama-3.1-405b", 1024, 2048, 8192),
    ("deepseek-v3", 2048, 8192, 4096),
    ("gpt-1t", 16384, 8192, 2048),
)  # model, ranks, sequences, tokens of each
VERBS = {  # read the plan of the first of these, of 512 micro-batches
    "show": ["show", "plan.yaml"],
    "check": ["check", "plan.yaml", "plan.yaml"],
    "report": ["report", "plan.yaml", "-o", "plan.html"],
    "predict": ["predict", "plan.yaml"],
    "simulate_trace": ["simulate", "plan.yaml", "--trace", "trace.json"],
}
CLUSTER = """\
format: planner.cluster/1
name: h100x{ranks}
source: made up
ranks: [{{kind: h100-80gb, count: {ranks}, per_node: 8}}]
levels:
  - {{name: node, ranks: 8, gb_per_s: 450, latency_us: 6.5}}
  - {{name: cluster, ranks: {ranks}, gb_per_s: 50, latency_us: 15}}
"""
JOB = """\
format: planner.job/1
name: {model}-h100x{ranks}
model: {model}
cluster: cluster.yaml
software: megatron
strategy: parallel_search
workload:
  {{lengths: {{from: mix, parts: [{{weight: 1, median: {seq}, sigma: 0}}]}}, batch_rows: {batch}, max_tokens: {seq}}}
"""


def run(data: Path | None) -> Iterator[Figures]:
    with TemporaryDirectory() as folder:
        for job in ("flexsp-gpt-7b-a100x64", "demo-cpu-4"):
            command = [sys.executable, "-m", "planner", "solve", job, "-o", f"{folder}/plan.yaml"]
            times = []
            for _ in range(REPEATS):
                start = perf_counter()
                subprocess.run(command, check=True, capture_output=True)
                times.append(perf_counter() - start)
            yield {"job": job, "seconds": round(median(times), 3), "repeats": REPEATS}
        for number, (model, ranks, batch, seq) in enumerate(STATIC):
            yield static_figures(Path(folder), (model, ranks, batch, seq), verbs=not number)


def static_figures(folder: Path, job: tuple[str, int, int, int], verbs: bool) -> Figures:
    """Processor seconds of a static layout: solved warm, and of the verbs that read its plan in a warm process."""
    model, ranks, batch, seq = job
    (folder / "cluster.yaml").write_text(CLUSTER.format(ranks=ranks))
    path = folder / "job.yaml"
    path.write_text(JOB.format(model=model, ranks=ranks, batch=batch, seq=seq))
    plan = pipeline.solve(str(path), JobOptions()).plan
    seconds = taken(lambda: pipeline.solve(str(path), JobOptions()))
    found: Figures = {
        "job": plan.name,
        "micro_batches": len(plan.steps[0].micro_batches),
        "step_seconds_simulated": plan.prediction.step_seconds,
        "solve_cpu_seconds": round(seconds, 2),
        "verify_cpu_seconds": round(taken(lambda: pipeline.verify(plan)), 2),
    }
    if verbs:
        files.write_text(folder / "plan.yaml", files.dump(plan))
        each = {name: verb_seconds(folder, command) for name, command in VERBS.items()}
        found["verbs_cpu_seconds"] = {name: round(seconds, 2) for name, seconds in each.items()}  # a new process each
        found["trace_mb"] = round((folder / "trace.json").stat().st_size / 1e6, 2)
    return found


def verb_seconds(folder: Path, command: list[str]) -> float:
    """Processor seconds of a verb in a process of its own, imports included."""
    code = "import sys, time; from planner.cli.app import main\ntry: main()\nfinally: print(time.process_time())"
    done = subprocess.run([sys.executable, "-c", code, *command], cwd=folder, capture_output=True, text=True)
    return float(done.stdout.split()[-1])


def taken(work: Callable[[], object]) -> float:
    """Processor seconds."""
    start = process_time()
    work()
    return process_time() - start
