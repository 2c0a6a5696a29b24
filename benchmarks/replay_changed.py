"""A what-if beside what it says: a small transformer recorded with n layers, replayed with 2n, and recorded with 2n.

On the CPU, one thread. The quickest step of several recordings is compared, since a machine with other work on it only
ever makes steps longer.
"""

import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.registry import Figures
from planner.replay import build_graph, read_kineto_trace, replay_graphs
from planner.replay.whatif import parse_changes
from planner.replay.whatif.graph_change import WhatIfOptions

RECORD = """
import sys, torch
torch.set_num_threads(1)
width, layers = 128, int(sys.argv[2])
body = [torch.nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True, dropout=0.0) for _ in range(layers)]
model = torch.nn.Sequential(torch.nn.Linear(64, width), *body, torch.nn.Linear(width, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = torch.randn(8, 64, 64)
with torch.profiler.profile(
    activities=[torch.profiler.ProfilerActivity.CPU],
    schedule=torch.profiler.schedule(wait=2, warmup=1, active=15, repeat=1),
    on_trace_ready=lambda profiler: profiler.export_chrome_trace(sys.argv[1]),
) as profiler:
    for _ in range(18):
        model(data).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        profiler.step()
"""
LAYERS = 4
RECORDINGS = 3


def run(data: Path | None) -> Iterator[Figures]:
    """From few layers to many, and back."""
    if find_spec("torch") is None:
        return
    with TemporaryDirectory() as folder:
        rows = [[recorded(Path(folder), layers, i) for layers in (LAYERS, 2 * LAYERS)] for i in range(RECORDINGS)]
        few, many = ([*each] for each in zip(*rows, strict=True))
        for source, target, factor in ((few, many, "2x"), (many, few, "0.5x")):
            predicted, measured = quickest(source, factor), quickest(target, "1x")
            error = predicted / measured - 1
            figures = {"predicted_seconds": predicted, "measured_seconds": measured, "error": round(error, 4)}
            yield {"change": f"layers={factor}", **figures}


def recorded(folder: Path, layers: int, number: int) -> Path:
    path = folder / f"{layers}-{number}.json"
    subprocess.run([sys.executable, "-c", RECORD, str(path), str(layers)], check=True, capture_output=True)
    return path


def quickest(paths: list[Path], factor: str) -> float:
    """The quickest step of some recordings, with so many times the layers."""
    change = parse_changes(WhatIfOptions(settings=(f"layers={factor}",))).of_graphs[0]
    steps = [
        step
        for path in paths
        for step in replay_graphs(change.apply([build_graph(read_kineto_trace(path))]).graphs).steps
    ]
    return min(step.replayed for step in steps)
