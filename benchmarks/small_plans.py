"""Small plans on a few ranks of this machine, each written out: what the runtime's benchmarks train."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from planner import pipeline
from planner.plan.legal.plan_laws import require_legal
from planner.plan.plan_file import Group, Layout, MicroBatch, Plan, Step, group_name
from planner.specs.base import Layers, Ranks, with_fields
from planner.specs.inputs import JobOptions, resolve_job
from planner.specs.job import Job
from planner.specs.library import read_named

RANKS = 2
DEGREES = (1, 2, 4, 8)
BOTH, EACH = ((0, 1),), ((0,), (1,))  # the groups of a micro-batch
CLUSTER = """
format: planner.cluster/1
name: cpu-{ranks}
source: processes of this machine
ranks: [{{kind: cpu, count: {ranks}, per_node: {ranks}}}]
levels: [{{name: machine, ranks: {ranks}, gb_per_s: 1.0, latency_us: 200}}]
"""


@dataclass(frozen=True, slots=True)
class Work:
    """A step: equal micro-batches of one item for each group."""

    micro_batches: int
    tokens: int  # of an item
    groups: Sequence[Sequence[int]] = BOTH
    split: str = "ulysses"  # of an item over the ranks of one stage and one block
    order: str = ""

    @property
    def rows(self) -> Sequence[Sequence[Sequence[int]]]:
        """The groups of each micro-batch."""
        return [self.groups] * self.micro_batches


@dataclass(frozen=True, slots=True)
class Mixed(Work):
    """Micro-batches whose groups differ, in turn."""

    turns: Sequence[Sequence[Sequence[int]]] = ()

    @property
    def rows(self) -> Sequence[Sequence[Sequence[int]]]:
        return [self.turns[number % len(self.turns)] for number in range(self.micro_batches)]


def base_plan(ranks: int = RANKS, profile: Path | None = None, model: str = "") -> Plan:
    """A model (name or path; else the demo's) on so many ranks, priced by this profile."""
    job, path = read_named("demo-cpu-4", Job)
    with TemporaryDirectory() as folder:
        (Path(folder) / "cluster.yaml").write_text(CLUSTER.format(ranks=ranks))
        workload = with_fields(job.workload, batch_rows=12)
        small = with_fields(job, cluster=f"{folder}/cluster.yaml", degrees=(1, 2), workload=workload)
        if model:
            small = with_fields(small, model=model)
        if profile:
            small = with_fields(small, profile=str(profile))
        return pipeline.decide(resolve_job(small, path, JobOptions())).plan


def spread(base: Plan, work: Work, **layout: Any) -> Plan:
    """The plan's module by this layout, on this work. Raises InputError where there is no such plan."""
    spec, pp = base.uses.models["llm"], layout.get("pp", 1)
    block, chunks = pp * layout.get("tp", 1), pp * layout.get("vpp", 1)
    groups: dict[str, Group] = {}
    items: dict[int, int] = {}
    rows: list[MicroBatch] = []
    for together in work.rows:
        row = {}
        for ranks in map(Ranks, together):
            degree = len(ranks) // block
            groups[group_name(ranks)] = Group(ranks=ranks, split={work.split: degree} if degree > 1 else {})  # type: ignore[dict-item]
            items[len(items)] = work.tokens
            row[group_name(ranks)] = (len(items) - 1,)
        rows.append(row)
    each = spec.layers // chunks
    stages = tuple(Layers(range(s * each, (s + 1) * each)) for s in range(chunks)) if pp > 1 else ()
    made = Layout(ranks=Ranks(range(base.size)), stages=stages, **{"dtype": "float32", "zero": 1, **layout})
    step = Step(
        sync="micro_batch" if made.zero == 3 else "step",
        micro_batches=tuple(rows),
        order={"llm": work.order} if work.order else {},
    )
    uses = with_fields(base.uses, items={"llm": items}, dropped=(), degrees=DEGREES)
    plan = with_fields(base, layouts={"llm": made}, groups=groups, steps=(step,), uses=uses)
    require_legal(plan, "made up")
    return plan
