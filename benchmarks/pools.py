"""How long it takes to choose of a pool of four kinds with twelve counts each: the cheapest by a deadline, and the
whole front; processor seconds of this process, after one solve of something else.
"""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, process_time

from benchmarks.registry import Figures
from planner import pipeline

COUNTS = [8, 16, 32, 64, 128, 256, 512, 1024, 1536, 2048, 3072, 4096]
KINDS = ("h100", "a100", "h200", "b200")
JOB = """\
format: planner.job/1
name: pool
model: {model}
cluster: ./pool.yaml
software: megatron
strategy: parallel_search
objective: {objective}
workload: {{lengths: {seq}, batch_rows: 1024}}
limits: {{{limits}}}
run: {{tokens: 1e12}}
"""
QUESTIONS = (
    ("llama-3-70b, cheapest by a deadline", "llama-3-70b", 8192, "dollars", "days: 60", False),
    ("llama-3-70b, whole front", "llama-3-70b", 8192, "step_seconds", "", True),
    ("deepseek-v3, whole front", "deepseek-v3", 4096, "step_seconds", "", True),
)


def run(_: Path | None = None) -> Iterator[Figures]:
    pipeline.solve("llama-3-8b-h100x64")
    for name, model, seq, objective, limits, whole in QUESTIONS:
        with TemporaryDirectory() as folder:
            job = Path(folder) / "job.yaml"
            kinds = "".join(f"  - {{kind: {kind}, counts: {COUNTS}}}\n" for kind in KINDS)
            (Path(folder) / "pool.yaml").write_text(f"format: planner.cluster/1\nname: pool\npool:\n{kinds}")
            job.write_text(JOB.format(model=model, seq=seq, objective=objective, limits=limits))
            begun, cpu = perf_counter(), process_time()
            points = pipeline.choose(str(job)).points if whole else pipeline.solve(str(job)).told
        yield {
            "name": name,
            "seconds": process_time() - cpu,
            "elapsed_seconds": perf_counter() - begun,
            "points": len(points) if whole else None,
        }
