"""Embedding tables trained on this machine: 4 processes, two groups of two, beside one group of four.

Five seeds, every step of new samples, so that the loss is of samples that were not seen before. In two groups each sees
half of the samples and copies are averaged behind each step; AdaGrad's v is divided by c = M = 2, or by c = 1
(models/embedding_shard.py). Figures are mean losses over the second half of the steps. Copies are compared after every
step, by all bits; two steps of each plan are compared with one process.
"""

from collections.abc import Iterator
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.registry import Figures
from planner import pipeline
from planner.launch import Worker, joined_world, launch
from planner.plan.plan_file import Plan
from planner.runtime import RunOptions, RunResult, TrainingOptions
from planner.runtime.execute.training_loop import train
from planner.specs.base import with_fields

STEPS, SAMPLES, RATE = 100, 128, 0.02
MODEL = "modules: {dense: {kind: decoder, layers: 1, hidden: 32, heads: 4, ffn: 64, vocab: 2}}"
TABLES = "name,rows,dim,pooling,skew\nuser,4000,32,1,0.6\nitem,2000,32,4,1.05\nshop,500,16,2,0.8\ntag,100,16,3,0.5\n"
JOB = """format: planner.job/1
name: toy-ctr
model: model.yaml
cluster: cpu-4
strategy: sparse_tables
sync: step
workload: {{lengths: 6, batch_rows: {samples}}}
layout: {{zero: 0, dtype: float32}}
degrees: [1]
tables: {{from: tables.csv, groups: {groups}}}
"""


def run(data: Path | None) -> Iterator[Figures]:
    plans = {groups: planned(groups) for groups in (1, 2)}
    for seed in range(5):
        runs = {f"{groups} checked": (plan, options(seed, 2, verify=True)) for groups, plan in plans.items()}
        for name, groups, c in (("one group", 1, None), ("c = M", 2, None), ("c = 1", 2, 1.0)):
            runs[name] = with_new_samples(plans[groups]), options(seed, STEPS, c)
        found: dict[str, RunResult] = launch(train_all, 4, runs)[0]
        checked = {groups: found.pop(f"{groups} checked").verify for groups in plans}
        losses = {name: late_loss(result) for name, result in found.items()}
        yield {
            "seed": seed, "losses": losses, "machine": found["c = M"].machine,
            "apart": {name: loss / losses["one group"] - 1 for name, loss in losses.items()},
            "gradients_apart": {str(groups): errors and errors.grad_rel_err for groups, errors in checked.items()},
            "step_ms": {name: 1e3 * median(step.seconds for step in r.steps) for name, r in found.items()},
            "tables_ms": {name: 1e3 * median(step.table_seconds for step in r.steps) for name, r in found.items()},
            "predicted_ms": {str(groups): 1e3 * plan.prediction.step_seconds for groups, plan in plans.items()},
        }  # fmt: skip


def options(seed: int, steps: int, c: float | None = None, verify: bool = False) -> RunOptions:
    training = TrainingOptions(learning_rate=RATE)
    return RunOptions(steps=steps, seed=seed, verify=verify, check_replicas=1, training=training, table_scale=c)


def planned(groups: int) -> Plan:
    """The job's plan in so many groups."""
    with TemporaryDirectory() as folder:
        files = {"job.yaml": JOB.format(samples=SAMPLES, groups=groups), "tables.csv": TABLES}
        files["model.yaml"] = f"format: planner.model/1\nname: toy\nsource: made up\n{MODEL}\n"
        for name, text in files.items():
            (Path(folder) / name).write_text(text)
        return pipeline.solve(str(Path(folder) / "job.yaml")).plan


def with_new_samples(plan: Plan) -> Plan:
    """A plan of one step with as many as are trained, each of new samples."""
    ((module, items),), (step,) = plan.uses.items.items(), plan.steps
    later = [
        with_fields(step, micro_batches=tuple(moved(each, number * SAMPLES) for each in step.micro_batches))
        for number in range(STEPS)
    ]
    sizes = {item + number * SAMPLES: size for number in range(STEPS) for item, size in items.items()}
    return with_fields(plan, steps=(*later,), uses=with_fields(plan.uses, items={module: sizes}))


def moved(micro_batch: Any, by: int) -> Any:
    """A micro-batch of samples that many further on."""
    return {group: tuple(item + by for item in items) for group, items in micro_batch.items()}


def late_loss(result: RunResult) -> float:
    """The mean loss of the second half of the steps."""
    late = result.steps[STEPS // 2 :]
    return sum(step.loss for step in late) / len(late)


def train_all(worker: Worker, runs: dict[str, tuple[Plan, RunOptions]]) -> dict[str, RunResult | None]:
    """Every run, one after the other in one world."""
    with joined_world(worker):
        return {name: train(worker, plan, how) for name, (plan, how) in runs.items()}
