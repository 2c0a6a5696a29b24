"""Predicted against measured: layouts of one small mixture of experts on two ranks of this machine, for one batch.

There are as many ranks as the smallest machine has cores: more of them would take turns on a core, and the system's
scheduler would be measured. Every layout trains the same sixteen sequences in a step, so that the order is that of
layouts and not of batches. Costs are those that `planner profile` measures here, of one layer with all its experts on a
rank, and of collectives: no step is fitted. What goes to experts on other ranks is priced by the all-to-alls that were
measured. Layouts are trained in turns, two steps at a time, so that what else the machine does meanwhile is spread over
all; a step is the median.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.registry import Figures
from benchmarks.simulated_measured import simulated_beside
from benchmarks.small_plans import BOTH, EACH, RANKS, Work, base_plan, spread
from planner.launch.processes import launch
from planner.plan.plan_file import Plan
from planner.workflows import evidence

TURNS, STEPS = 3, 2
SEQUENCES, TOKENS = 16, 512
MODEL = """
format: planner.model/1
name: tiny-mixture
source: made for this benchmark, of Qwen3-MoE's shape
modules:
  llm: {kind: decoder, layers: 4, hidden: 128, heads: 8, kv_heads: 4, ffn: 384, vocab: 2048,
        moe: {experts: 8, topk: 2, ffn: 192}}
"""


def run(data: Path | None) -> Iterator[Figures]:
    with TemporaryDirectory() as folder:
        model, profile = Path(folder) / "tiny-mixture.yaml", Path(folder) / "profile.yaml"
        model.write_text(MODEL)
        evidence.measure_profile(str(model), evidence.ProfileSettings(RANKS, "float32"), profile)
        made = plans(base_plan(RANKS, profile, str(model)))
    yield from simulated_beside(made, launch(body, RANKS, made, threads=1)[0])


def plans(base: Plan) -> dict[str, Plan]:
    """By name."""
    return {**data_parallel(base), **sharded_sequences(base), **tensor_parallel(base), **pipelined(base)}


def work(groups: Sequence[Sequence[int]], **more: Any) -> Work:
    """The batch, one sequence for each of these groups in a micro-batch."""
    return Work(SEQUENCES // len(groups), TOKENS, groups, **more)


def data_parallel(base: Plan) -> dict[str, Plan]:
    """Attention on each rank by itself; experts in two copies or in one, whole or not."""
    meshes = {"all experts": {}, "ep 2": {"ep": 2}, "etp 2": {"etp": 2}}
    made = {
        f"dp 2, {name}, zero {zero}": spread(base, work(EACH), dp=RANKS, zero=zero, **mesh)
        for name, mesh in meshes.items()
        for zero in (0, 1, 3)
    }
    more: dict[str, dict[str, Any]] = {
        "ep 2, gathered": {"ep": 2, "dispatch": "all_gather"},
        "recompute full": {"recompute": "full"},
        "ep 2, recompute full": {"ep": 2, "recompute": "full"},
        "ep 2, recompute selective": {"ep": 2, "recompute": "selective"},
    }
    return made | {f"dp 2, {name}": spread(base, work(EACH), dp=RANKS, **layout) for name, layout in more.items()}


def sharded_sequences(base: Plan) -> dict[str, Plan]:
    """Sequences over both ranks; experts over both, or whole on each."""
    return {
        f"dp 2, ep {ep}, {split} 2": spread(base, work(BOTH, split=split), dp=RANKS, ep=ep)
        for split in ("ulysses", "ring")
        for ep in (1, 2)
    }


def tensor_parallel(base: Plan) -> dict[str, Plan]:
    """Attention over both ranks, with experts over them as well or folded onto them."""
    meshes: dict[str, dict[str, Any]] = {"all experts": {}, "ep 2": {"ep": 2}, "etp 2": {"etp": 2}}
    return {f"tp 2, {name}": spread(base, work(BOTH), tp=2, **mesh) for name, mesh in meshes.items()}


def pipelined(base: Plan) -> dict[str, Plan]:
    """Stages of one rank, with one chunk of layers or with two."""
    return {
        "pp 2": spread(base, work(BOTH), pp=2, zero=0),
        "pp 2, interleaved": spread(base, work(BOTH), pp=2, vpp=2, zero=0),
        "pp 2, recompute full": spread(base, work(BOTH), pp=2, zero=0, recompute="full"),
    }


def body(worker: Any, plans: dict[str, Plan]) -> dict[str, float]:
    """On every rank; the first knows."""
    from planner.launch.worker import joined_world
    from planner.runtime import RunOptions
    from planner.runtime.execute.training_loop import train

    seconds: dict[str, list[float]] = {name: [] for name in plans}
    with joined_world(worker):
        for _ in range(TURNS):
            for name, plan in plans.items():
                result = train(worker, plan, RunOptions(steps=STEPS))
                seconds[name] += [step.seconds for step in result.steps] if result else []
    return {name: median(found) for name, found in seconds.items() if found}
