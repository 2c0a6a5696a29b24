"""A replay error that cannot be copied: small models recorded as they are and changed, and the changed step predicted
from the unchanged recording alone.

On the CPU, one thread. A model's recordings are made in turn, three of each, and the quickest steps are compared:
a machine with other work on it only ever makes steps longer.
"""

import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import NamedTuple

from benchmarks.registry import Figures
from planner.replay import build_graph, read_kineto_trace, replay_graphs
from planner.replay.whatif import parse_changes
from planner.replay.whatif.graph_change import WhatIfOptions

RECORD = """
import sys, torch
from torch import nn
torch.set_num_threads(1)
kind, folder = sys.argv[1], sys.argv[2]
width, layers, batch, length = map(int, sys.argv[3:7])

class Gated(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.mix = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 6 * width, bias=False), nn.Linear(3 * width, width, bias=False)
        self.heads = width // 32
    def forward(self, x):
        q, k, v = (each.unflatten(-1, (self.heads, 32)).transpose(1, 2) for each in self.qkv(self.norm(x)).chunk(3, -1))
        attended = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(-2))
        gate, up = self.up(self.mix(x)).chunk(2, -1)
        return x + self.down(nn.functional.silu(gate) * up)

class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        wide = nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        self.body = nn.Sequential(nn.LayerNorm(width), *wide)
    def forward(self, x):
        return x + self.body(x)

class Convolution(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body = nn.Sequential(nn.Conv1d(width, width, 3, padding=1), nn.GroupNorm(4, width), nn.ReLU())
    def forward(self, x):
        return x + self.body(x.transpose(1, 2)).transpose(1, 2)

def encoder(first, act):
    return lambda width: nn.TransformerEncoderLayer(
        width, width // 32, 4 * width, batch_first=True, dropout=0.0, norm_first=first, activation=act)

LAYERS = {"encoder": encoder(False, "relu"), "encoder, norm first": encoder(True, "gelu"), "decoder": Gated,
          "decoder, long": Gated, "residual MLP": Residual, "convolutions": Convolution}

def record(name, width, layers, batch):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, width), *(LAYERS[kind](width) for _ in range(layers)), nn.Linear(width, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    data = torch.randn(batch, length, 16)
    schedule = torch.profiler.schedule(wait=2, warmup=1, active=9, repeat=1)
    write = lambda profiler: profiler.export_chrome_trace(f"{folder}/{name}.json")
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], schedule=schedule, on_trace_ready=write) as profiler:
        for _ in range(12):
            model(data).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            profiler.step()

for number in range(3):
    record(f"as it is-{number}", width, layers, batch)
    record(f"layers=2x-{number}", width, 2 * layers, batch)
    record(f"layers=0.5x-{number}", width, layers // 2, batch)
    record(f"hidden=2x-{number}", 2 * width, layers, batch)
    record(f"batch=2x-{number}", width, layers, 2 * batch)
"""


class Recorded(NamedTuple):
    """A small model: its kind, width, layers, samples and length of one."""

    kind: str
    width: int
    layers: int
    batch: int
    length: int


MODELS = (
    Recorded("encoder", 128, 4, 8, 64),
    Recorded("encoder, norm first", 192, 4, 4, 128),
    Recorded("decoder", 128, 6, 4, 128),
    Recorded("decoder, long", 128, 4, 2, 384),
    Recorded("residual MLP", 256, 6, 8, 64),
    Recorded("convolutions", 192, 8, 8, 64),
)
CHANGES = ("layers=2x", "layers=0.5x", "hidden=2x", "batch=2x")
AS_IT_IS = "as it is"


def run(data: Path | None) -> Iterator[Figures]:
    """Each change of each model, then all of a kind and all together."""
    if find_spec("torch") is None:
        return
    errors: dict[str, list[float]] = {change: [] for change in CHANGES}
    for model in MODELS:
        with TemporaryDirectory() as folder:
            sizes = map(str, model[1:])
            subprocess.run([sys.executable, "-c", RECORD, model.kind, folder, *sizes], check=True, capture_output=True)
            for change in CHANGES:
                predicted, measured = quickest(Path(folder), AS_IT_IS, change), quickest(Path(folder), change, "")
                error = predicted / measured - 1
                errors[change].append(error)
                seconds = {"predicted_s": round(predicted, 5), "measured_s": round(measured, 5)}
                yield {"model": model.kind, "change": change, **seconds, "error": round(error, 4)}
    for name, found in {**errors, "all": [error for each in errors.values() for error in each]}.items():
        sizes_of = [abs(error) for error in found]
        within = sum(error <= 0.08 for error in sizes_of)
        yield {
            "change": name,
            "median_error": round(median(sizes_of), 4),
            "worst_error": round(max(sizes_of), 4),
            "within_8_percent": f"{within} of {len(found)}",
        }


def quickest(folder: Path, recorded: str, change: str) -> float:
    """The quickest step of some recordings, replayed with a change."""
    found: list[float] = []
    for path in sorted(folder.glob(f"{recorded}-*.json")):
        graphs = [build_graph(read_kineto_trace(path))]
        for each in parse_changes(WhatIfOptions(settings=(change,))).of_graphs if change else ():
            graphs = each.apply(graphs).graphs
        found += [step.replayed for step in replay_graphs(graphs).steps[1:]]
    return min(found)
