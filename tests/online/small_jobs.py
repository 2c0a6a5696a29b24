"""A small job whose batches are planned one by one, as files in a folder."""

from pathlib import Path

from planner import pipeline
from planner.files.folder_queue import FolderQueue
from planner.online.look_ahead import LookAheadPlanner
from planner.online.plan_inputs import inputs_of_plan
from planner.plan.plan_file import Plan
from planner.specs.inputs import JobOptions

JOB = """\
format: planner.job/1
name: small
model: tiny-decoder
cluster: cpu-4
profile: cpu
workload:
  lengths: {lengths}
  batch_rows: {rows}
  max_tokens: 1024
layout: {{zero: 3, dtype: float32}}
degrees: [1, 2, 4]
limits: {{tokens_per_rank: 384}}
planning: {planning}
"""
MIX = "{from: mix, parts: [{weight: 0.8, median: 60, sigma: 0.5}, {weight: 0.2, median: 300, sigma: 0.3}]}"
FILE = "{from: file, path: lengths.txt}"


def write_job(folder: Path, planning: str = "per_batch", lengths: str = MIX, rows: int = 24) -> Path:
    """A job; of the file of lengths there are four whole batches."""
    (folder / "lengths.txt").write_text("\n".join(str(20 + 37 * row % 400) for row in range(4 * rows + 5)))
    path = folder / "job.yaml"
    path.write_text(JOB.format(lengths=lengths, planning=planning, rows=rows))
    return path


def head_of(folder: Path, planning: str = "per_batch", effort: int = 1, lengths: str = MIX, rows: int = 24) -> Plan:
    return pipeline.solve(str(write_job(folder, planning, lengths, rows)), JobOptions(effort=effort)).plan


def ahead_of(folder: Path, head: Plan, until: int | None = None) -> LookAheadPlanner:
    """A planner of steps into `folder/steps`, where nothing has been taken unless there was a planner before."""
    slots = FolderQueue(folder / "steps")
    if not slots.folder.exists():
        slots.reset_taken()
    return LookAheadPlanner(inputs_of_plan(head, folder), head, slots, until)
