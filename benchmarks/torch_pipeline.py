"""Step time of the runtime over torch.distributed.pipelining's own, on the same stages and the same micro-batches.

Two stages in two processes, one thread each, in turns, GPipe and 1F1B. torch's runtime takes one shape for all
micro-batches, so all have one document of one length. The interval is that of the median of the paired ratios.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.by_hand import RATE, SEED
from benchmarks.pairs import PAIRS, Took, figures, in_turns
from benchmarks.registry import Figures
from benchmarks.run_overhead import planned
from benchmarks.small_plans import RANKS, Work, base_plan, spread
from planner.launch.processes import launch
from planner.plan.plan_file import Plan

MICRO_BATCHES, TOKENS = 8, 512
SCHEDULES = {"gpipe": "ScheduleGPipe", "1f1b": "Schedule1F1B"}


def run(data: Path | None, pairs: int = PAIRS) -> Iterator[Figures]:
    for order, took in launch(body, RANKS, plans(), pairs, threads=1)[0].items():
        yield {"order": order, "ranks": RANKS, "micro_batches": MICRO_BATCHES, **figures(took, "torch")}


def plans() -> dict[str, Plan]:
    base = base_plan()
    works = {order: Work(MICRO_BATCHES, TOKENS, order=order) for order in SCHEDULES}
    return {order: spread(base, work, pp=RANKS, zero=0) for order, work in works.items()}


def body(worker: Any, plans: dict[str, Plan], pairs: int) -> dict[str, list[tuple[Took, Took]]]:
    """On every rank."""
    from planner.launch.worker import joined_world

    with joined_world(worker):
        return {
            order: in_turns(planned(worker, plan), torch_step(worker, plan, order), pairs)
            for order, plan in plans.items()
        }


def torch_step(worker: Any, plan: Plan, order: str) -> Callable[[], object]:
    """A step as torch runs it: batches made, forwards and backwards by its schedule, one update."""
    import torch
    from torch.distributed import pipelining

    stage = chunk(worker.rank, plan)
    made = pipelining.PipelineStage(stage, worker.rank, RANKS, torch.device("cpu"))
    tokens = sum(plan.uses.items["llm"].values())
    kind = getattr(pipelining, SCHEDULES[order])
    schedule = kind(made, MICRO_BATCHES, loss_fn=lambda x, y: stage.loss(x, y) / tokens, scale_grads=False)
    optimizer = torch.optim.AdamW(stage.parameters(), RATE, fused=True)
    items = [*plan.uses.items["llm"].items()]

    def step() -> None:
        optimizer.zero_grad()
        batches = [stage.batch(item) for item in items]
        if worker.rank:
            schedule.step(target=torch.cat([batch.targets for batch in batches]), losses=[])
        else:
            schedule.step(torch.cat([batch.inputs for batch in batches]))
        optimizer.step()

    return step


def chunk(rank: int, plan: Plan) -> Any:
    """The layers of one stage, as a module from tensor to tensor."""
    from torch import Tensor, nn

    from planner.models.batch import Batch
    from planner.models.build import build, init_weights
    from planner.models.inputs.training_items import synthetic_batch
    from planner.models.sharding import ModuleShard

    class Chunk(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = build(plan.uses.models["llm"], shard=ModuleShard(layers=plan.layouts["llm"].stages[rank]))
            init_weights(self.network, SEED)
            self.shaped = self.batch((0, TOKENS))  # whose positions and ends are those of all micro-batches

        def batch(self, item: tuple[int, int]) -> Batch:
            return synthetic_batch(self.network.spec, [item], SEED)

        def forward(self, x: Tensor) -> Tensor:
            """Tokens [t] on the first stage, activations [t, hidden] on the second; to activations."""
            batch = replace(self.shaped, inputs=x)
            if self.network.has_first_layer:
                x = self.network.embed(batch)
            rotary = self.network.position_encoding(x, batch)
            for layer in self.network.layers.values():
                x = layer(x, rotary, batch)
            return x

        def loss(self, x: Tensor, targets: Tensor) -> Tensor:
            return self.network.output(x, replace(self.shaped, targets=targets))

    return Chunk()
