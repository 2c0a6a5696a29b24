"""Pages of plans: bytes, seconds of writing, and milliseconds until a browser has drawn them, where there is one."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from time import perf_counter

from benchmarks.registry import Figures
from planner import pipeline
from planner.report import plan_page
from planner.specs.inputs import JobOptions
from tests.report.chromium import Chromium, browser

REPEATS = 5
JOBS = {
    "flexsp-gpt-7b-a100x64": JobOptions(batches=10),  # 64 ranks, ten steps
    "llama-3.1-405b-h100x1024": JobOptions(effort=1),  # a pipeline of 16 stages in 64 chunks
}
ZOOM = """
(async () => {
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  const took = [];
  for (let i = 0; i < 12; i++) {
    const start = performance.now();
    ACTIONS[i < 6 ? "zoom-in" : "zoom-out"]();
    drawTimeline();
    took.push(performance.now() - start);
    await frame();
  }
  return Math.max(...took);
})()
"""


def run(data: Path | None) -> Iterator[Figures]:
    for job, options in JOBS.items():
        plan = pipeline.solve(job, options).plan
        start = perf_counter()
        scores = pipeline.simulate(plan)
        simulated = perf_counter()
        text = plan_page(plan, scores).html()
        written = perf_counter()
        yield {
            "job": job,
            "ranks": plan.size,
            "steps": len(plan.steps),
            "bytes": len(text.encode()),
            "simulate_seconds": round(simulated - start, 3),
            "page_seconds": round(written - simulated, 3),
            **in_browser(text),
        }


def in_browser(text: str) -> Figures:
    """Median from navigation to the first drawing, and the slowest drawing of a zoom there and back."""
    program = browser()
    if program is None:
        return {"interactive_ms": None, "zoom_ms": None}
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "page.html"
        page.write_text(text, encoding="utf-8")
        chromium = Chromium(program)
        try:
            opened = [chromium.open(page) for _ in range(REPEATS)]
            return {"interactive_ms": median(opened), "zoom_ms": round(chromium.run(ZOOM), 1)}
        finally:
            chromium.close()
