"""Recorded traces replayed: how far steps are off, with and without what nothing explains; seconds and memory."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.registry import Figures

FOLDER = "kineto"
FOREIGN = "execution_trace"  # no timeline
EACH = """
import json, resource, sys, time
from pathlib import Path
from planner.workflows.replaying import replay_traces
begin = time.perf_counter()
answer = replay_traces([Path(path) for path in sys.argv[1:]])
seconds = time.perf_counter() - begin
from planner.replay import find_critical_path, replay_graphs
from planner.replay.timing import median_step_error, worst_step_error
begin = time.perf_counter()
find_critical_path(answer.replay)
path_seconds = time.perf_counter() - begin
graphs = answer.replay.graphs
optimistic = None
if any(work.awaits for graph in graphs for work in graph.op_timings):
    optimistic = replay_graphs(graphs, ["inter-stream"]).step_seconds / answer.replay.measured_step_seconds - 1
print(json.dumps({
    "operations": sum(len(graph.op_timings) for graph in graphs),
    "steps": len(answer.replay.steps),
    "median_error": answer.replay.median_error,
    "worst_error": answer.replay.worst_error,
    "explained_median_error": median_step_error(answer.explained),
    "explained_worst_error": worst_step_error(answer.explained),
    "copied": answer.replay.copied._asdict(),
    "step_without_inter_stream": optimistic,
    "seconds": seconds,
    "critical_path_seconds": path_seconds,
    "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
}))
"""


def run(data: Path | None) -> Iterator[Figures]:
    """Each trace alone, in a process of its own; then those of several ranks together."""
    if data is None or not (data / FOLDER).is_dir():
        return
    traces = [path for path in sorted((data / FOLDER).glob("*.json*")) if FOREIGN not in path.name]
    for path in traces:
        yield {"trace": path.name, **one([path])}
    for prefix in ("hta_sampled_ws128", "param_dlrm_v100_ws8"):
        ranks = [path for path in traces if path.name.startswith(prefix)]
        if len(ranks) > 1:
            yield {"trace": f"{prefix}, {len(ranks)} ranks", **one(ranks)}


def one(paths: list[Path]) -> Figures:
    done = subprocess.run([sys.executable, "-c", EACH, *map(str, paths)], check=True, capture_output=True, text=True)
    figures: Figures = json.loads(done.stdout)
    return {name: round(value, 6) if isinstance(value, float) else value for name, value in figures.items()}
