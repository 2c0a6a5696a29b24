"""Ranks of elastic runs on 4 ranks are killed or stopped, at random moments; the others go on, planned anew.

Each run ends well on 3, leaves no process behind, and has the bits of a run that was planned for 3 and resumed from the
checkpoint. Measured is how long nobody trained: from the fault to the end of the next step.
"""

import random
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.fault_runs import (
    GONE_S,
    PATIENCE_S,
    SAVE_EVERY,
    STEPS,
    FaultKind,
    Launcher,
    await_step,
    injure,
    kill_all,
    living_of,
    tensors_of,
)
from planner import pipeline
from planner.files import write
from planner.specs.inputs import JobOptions

RANKS, MOMENTS = 4, 14  # steps, behind one of which the fault comes
MODEL = """\
format: planner.model/1
name: least
source: made up
modules:
  llm: {kind: decoder, layers: 2, hidden: 16, heads: 4, kv_heads: 4, ffn: 32, vocab: 64, positions: rope}
"""
JOB = """\
format: planner.job/1
name: elastic
model: model.yaml
cluster: cpu-4
profile: cpu
workload: {lengths: {from: mix, parts: [{weight: 1, median: 20, sigma: 0.5}]}, batch_rows: 6, max_tokens: 64}
layout: {zero: 3, dtype: float64}
degrees: [1, 2]
"""
RESUMED = re.compile(r"from step (\d+)")


@dataclass(frozen=True, slots=True)
class Loss:
    """What became of an elastic run of which a rank was lost."""

    wrong: tuple[str, ...]
    again_s: float | None  # from the fault to the end of the next step; None: there was none


def elastic_plan(folder: Path) -> Path:
    """A plan file beside its job."""
    (folder / "model.yaml").write_text(MODEL)
    (folder / "job.yaml").write_text(JOB)
    write(folder / "plan.yaml", pipeline.solve(str(folder / "job.yaml"), JobOptions(batches=2, effort=1)).plan)
    return folder / "plan.yaml"


def lose_rank(living: Callable[[], Launcher], kind: FaultKind, seed: int, plan: Path, folder: Path) -> Loss:
    """Kill or stop a rank of an elastic run of the plan that saves in `folder`, and look at how it ends."""
    drawn = random.Random(f"elastic {kind} {seed}")
    rank, step, delay = drawn.randrange(RANKS), drawn.randrange(MOMENTS), drawn.uniform(0, 0.3)
    launcher = living()
    launcher.begin([*elastic_arguments(plan, folder), "--elastic"])
    await_step(launcher, folder, RANKS, step)
    time.sleep(delay)
    first, begun = launcher.rank_processes(), time.monotonic()
    injure(kind, launcher, first[rank], drawn)
    code = launcher.code(PATIENCE_S)
    said = "".join(line for _, line in launcher.errors)
    left = living_of({*first.values(), *launcher.rank_processes().values()}, GONE_S)
    kill_all(left)
    again = next((at - begun for at, line in launcher.errors if "is done, " in line), None)
    wrong = [f"exit code {code}"] * (code != 0) + ["orphans"] * bool(left)
    if again is not None:
        wrong += ["other bits"] * (tensors_of(folder) != planned_for_three(living(), said, folder))
    return Loss((*wrong,), again)


def planned_for_three(launcher: Launcher, said: str, folder: Path) -> object:
    """The tensors of the run that was resumed on 3 ranks from the same checkpoint, to which nothing was done."""
    found = RESUMED.search(said)
    resumed = ["--resume", str(folder / "saved" / "kept" / f"step-{found[1]}")] if found else []
    launcher.begin([*elastic_arguments(folder / "saved" / "plan.yaml", folder / "alone"), *resumed])
    return tensors_of(folder / "alone") if launcher.code(PATIENCE_S) == 0 else None


def elastic_arguments(plan: Path, folder: Path) -> list[str]:
    """Arguments of a run that keeps each of its checkpoints."""
    saves = ["--save", str(folder / "saved"), "--save-every", str(SAVE_EVERY), "--keep", str(STEPS)]
    return [str(plan), "--steps", str(STEPS), "--metrics", str(folder / "metrics.jsonl"), *saves]
