"""Step time of the runtime over a hand-written torch loop that does the same work with the same groups.

Both live in the same processes and take turns; the hand-written one is FSDP2 as anybody would use it, Ulysses groups
made once, no tasks, no clocks. The interval is that of the median of the paired ratios (binomial, 95 %).
"""

from collections.abc import Iterator
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

from benchmarks.registry import Figures
from planner import pipeline
from planner.launch.processes import launch
from planner.plan.model import Plan
from planner.specs.base import changed
from planner.specs.inputs import Options, resolve
from planner.specs.job import Job
from planner.specs.library import read

RANKS, PAIRS = 2, 30
LOW, HIGH = 9, 20  # of 30 sorted ratios: the binomial 95 % interval of their median


def run(data: Path | None) -> Iterator[Figures]:
    plan = small_plan()
    pairs = launch(body, RANKS, plan)[0]
    ratios = sorted(ours / by_hand for ours, by_hand in pairs)
    yield {
        "ranks": RANKS,
        "pairs": len(pairs),
        "step_seconds": round(median(ours for ours, _ in pairs), 4),
        "by_hand_seconds": round(median(by_hand for _, by_hand in pairs), 4),
        "overhead": round(median(ratios) - 1, 4),
        "interval": [round(ratios[LOW] - 1, 4), round(ratios[HIGH] - 1, 4)],
    }


def small_plan() -> Plan:
    """The demo's job on two ranks: groups of one and of two."""
    job, path = read("demo-cpu-4", Job)
    cluster = f"""
format: planner.cluster/1
name: cpu-2
source: two processes of this machine
ranks: [{{kind: cpu, count: {RANKS}, per_node: {RANKS}}}]
levels: [{{name: machine, ranks: {RANKS}, gb_per_s: 1.0, latency_us: 500}}]
"""
    with TemporaryDirectory() as folder:
        (Path(folder) / "cluster.yaml").write_text(cluster)
        workload = changed(job.workload, batch_rows=12)
        small = changed(job, cluster=f"{folder}/cluster.yaml", degrees=(1, 2), workload=workload)
        return pipeline.decide(resolve(small, path, Options())).plan


def body(worker: Any, plan: Plan) -> list[tuple[float, float]]:
    """On every rank: pairs of step times, after one of each that does not count."""
    import torch.distributed as dist

    from planner.launch.worker import joined
    from planner.plan.expand import expand
    from planner.runtime import RunOptions
    from planner.runtime.worker import prepare

    tasks = expand(plan)
    tokens = sum(task.tokens for task in tasks if task.phase == "F")
    with joined(worker):
        executor = prepare(worker, plan, RunOptions())
        by_hand = HandWritten(worker, plan)
        pairs = []
        for _ in range(PAIRS + 1):
            start = perf_counter()
            executor.step(tasks)
            dist.barrier()
            middle = perf_counter()
            by_hand.step(tokens)
            dist.barrier()
            pairs.append((middle - start, perf_counter() - middle))
        return pairs[1:]


class HandWritten:
    """The same model, data and groups, as a plain loop."""

    def __init__(self, worker: Any, plan: Plan) -> None:
        import torch
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        from planner.launch.groups import Groups
        from planner.models.build import build, init_weights

        spec = plan.uses.models["llm"]
        self.worker, self.plan = worker, plan
        self.groups = Groups(group.ranks for group in plan.groups.values())
        self.model = build(spec, device=torch.device("meta"))
        mesh = init_device_mesh("cpu", (RANKS,))
        for unit in [*self.model.layers, self.model]:
            fully_shard(unit, mesh=mesh)
        for unit in [*self.model.layers, self.model]:
            unit.set_force_sum_reduction_for_comms(True)
            unit.set_gradient_divide_factor(1.0)
        self.model.to_empty(device="cpu")
        init_weights(self.model, 0)
        self.optimizer = torch.optim.AdamW(self.model.parameters())

    def step(self, tokens: int) -> None:
        from planner.launch.meter import Meter
        from planner.launch.ulysses import exchange_over
        from planner.models.data import packed_batch
        from planner.models.exchange import even_sizes

        spec, sizes = self.plan.uses.models["llm"], self.plan.uses.items["llm"]
        self.optimizer.zero_grad()
        for row in self.plan.steps[0].micro_batches:
            ranks, items = next(
                (
                    (g.ranks, row[name])
                    for name, g in self.plan.groups.items()
                    if name in row and self.worker.rank in g.ranks
                ),
                ((self.worker.rank,), ()),
            )
            documents = [(item, sizes[item]) for item in items]
            shards = even_sizes(sum(size for _, size in documents), len(ranks))
            batch = packed_batch(spec, documents, 0, exchange=exchange_over(self.groups, ranks, shards, Meter()))
            (self.model(batch) / tokens).backward()
        self.optimizer.step()
