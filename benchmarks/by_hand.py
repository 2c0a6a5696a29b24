"""Training loops as anybody would write them for one layout: no plan, no tasks, no clocks, no recovery."""

from collections.abc import Iterator
from typing import Any, Protocol

from planner.plan.plan_file import Plan

SEED, RATE = 0, 1e-3


class Loop(Protocol):
    """One rank's part of a trainer."""

    def step(self) -> None: ...


def by_hand(worker: Any, plan: Plan) -> Loop:
    """The loop for a plan's layout, on one rank."""
    return Pipeline(worker, plan) if plan.layouts["llm"].pp > 1 else Sharded(worker, plan)


class Sharded:
    """FSDP2 over all ranks, and each micro-batch shared out over its group by Ulysses."""

    def __init__(self, worker: Any, plan: Plan) -> None:
        import torch
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        from planner.launch.communication.process_groups import ProcessGroups
        from planner.models.build import build, init_weights

        self.rank, self.plan, self.spec = worker.rank, plan, plan.uses.models["llm"]
        self.groups = ProcessGroups(group.ranks for group in plan.groups.values())
        self.again = plan.layouts["llm"].zero == 3
        self.model: Any = build(self.spec, device=torch.device("meta"))
        mesh = init_device_mesh("cpu", (plan.size,))
        for unit in self.units:
            fully_shard(unit, mesh=mesh, reshard_after_forward=None if self.again else False)
        for unit in self.units:
            unit.set_force_sum_reduction_for_comms(True)
            unit.set_gradient_divide_factor(1.0)
        self.model.to_empty(device="cpu")
        init_weights(self.model, SEED)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), RATE, fused=True)
        self.tokens = sum(plan.uses.items["llm"].values())

    @property
    def units(self) -> list[Any]:
        return [*self.model.layers.values(), self.model]

    def step(self) -> None:
        """By ZeRO-3 reductions follow each backward; else the last one, and parameters stay gathered until then."""
        self.optimizer.zero_grad()
        batches = [*self.batches()]
        for number, batch in enumerate(batches):
            if not self.again:
                last = number == len(batches) - 1
                self.model.set_requires_gradient_sync(last)
                self.model.set_reshard_after_backward(last)
            (self.model(batch) / self.tokens).backward()
        self.optimizer.step()

    def batches(self) -> Iterator[Any]:
        from planner.launch.communication.communication_meter import CommunicationMeter
        from planner.launch.communication.unified_sequence_parallel import SharedMicroBatch, sequence_parallel_over
        from planner.models.inputs.training_items import synthetic_batch
        from planner.specs.sequence_sharding import SequenceSplit

        sizes = self.plan.uses.items["llm"]
        for row in self.plan.steps[0].micro_batches:
            name = next(name for name in row if self.rank in self.plan.groups[name].ranks)
            group, documents = self.plan.groups[name], [(item, sizes[item]) for item in row[name]]  # type: ignore[index]
            sharing = SharedMicroBatch(group.ranks, SequenceSplit(**group.split), [size for _, size in documents])
            yield synthetic_batch(
                self.spec,
                documents,
                SEED,
                sequence_parallel=sequence_parallel_over(self.groups, sharing, CommunicationMeter()),
            )


class Pipeline:
    """1F1B (arXiv 2006.09503) on two ranks."""

    def __init__(self, worker: Any, plan: Plan) -> None:
        import torch

        from planner.models.build import build, init_weights
        from planner.models.sharding import ModuleShard

        self.rank, self.spec, self.sizes = worker.rank, plan.uses.models["llm"], plan.uses.items["llm"]
        self.model = build(self.spec, shard=ModuleShard(layers=plan.layouts["llm"].stages[worker.rank]))
        init_weights(self.model, SEED)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), RATE, fused=True)
        self.tokens = sum(self.sizes.values())

    def step(self) -> None:
        from planner.models.inputs.training_items import synthetic_batch

        self.optimizer.zero_grad()
        self.batches = [synthetic_batch(self.spec, [item], SEED) for item in self.sizes.items()]
        self.flying: list[Any] = []
        self.sent: list[Any] = []
        for number in range(len(self.batches)):
            self.forward(number)
            if number >= 1 - self.rank:
                self.backward()
        while self.flying:
            self.backward()
        for work, _ in self.sent:
            work.wait()
        self.optimizer.step()

    def forward(self, number: int) -> None:
        batch = self.batches[number]
        x = self.received(batch).requires_grad_() if self.rank else None
        out = self.model(batch, x)
        if self.rank == 0:
            self.send(out.detach())
        self.flying.append((batch, x, out))

    def backward(self) -> None:
        batch, x, out = self.flying.pop(0)
        if self.rank == 0:
            out.backward(self.received(batch))
            return
        (out / self.tokens).backward()
        self.send(x.grad)

    def received(self, batch: Any) -> Any:
        import torch
        import torch.distributed as dist

        x = torch.empty(len(batch.positions), self.spec.hidden)
        dist.recv(x, 1 - self.rank)
        return x

    def send(self, x: Any) -> None:
        import torch.distributed as dist

        self.sent.append((dist.isend(x, 1 - self.rank), x))
