"""Step time of the runtime over torch's own DDP and FSDP2: the same network, attention, items and AdamW.

Both live in the same processes, one thread each, and take turns: ZeRO-0 beside DDP, ZeRO-2 beside FSDP2 whose
parameters stay gathered, ZeRO-3 beside FSDP2 that gathers again for the backward. Ours is a whole step of a run, with
its timings gathered on the first rank. One micro-batch of one document for each rank, so that nothing is hidden behind
others. Afterwards the weights of both are compared: they were trained by the same steps.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.by_hand import RATE, SEED
from benchmarks.pairs import PAIRS, Took, figures, in_turns
from benchmarks.registry import Figures
from benchmarks.run_overhead import planned_executor, trained_step
from benchmarks.small_plans import EACH, RANKS, Work, base_plan, spread
from planner.launch.processes import launch
from planner.plan.plan_file import Plan

TOKENS = 512
BESIDE = {0: "DDP", 2: "FSDP2, parameters kept", 3: "FSDP2, gathered again"}  # by ZeRO stage


class Compared(NamedTuple):
    """Steps of both, and how far their weights are apart at the end, relative to the largest weight."""

    pairs: list[tuple[Took, Took]]
    weights_apart: float


def run(data: Path | None, pairs: int = PAIRS) -> Iterator[Figures]:
    base = base_plan()
    plans = {zero: spread(base, Work(1, TOKENS, EACH), dp=RANKS, zero=zero) for zero in BESIDE}
    for zero, plan in plans.items():
        took, apart = launch(body, RANKS, plan, zero, pairs, threads=1)[0]
        yield {
            "plan": f"dp {RANKS}, zero {zero}",
            "beside": BESIDE[zero],
            "ranks": RANKS,
            "weights_apart": apart,
            **figures(took, "torch"),
        }


def body(worker: Any, plan: Plan, zero: int, pairs: int) -> Compared:
    """On every rank."""
    from planner.launch.worker import joined_world

    with joined_world(worker):
        executor, theirs = planned_executor(worker, plan), TorchTrainer(worker, plan, zero)
        took = in_turns(trained_step(executor, plan), theirs.step, pairs)
        (stage,) = executor.local.stages["llm"]
        ours = {name: whole(shard) for name, shard in stage.weights().items()}
        apart = max(float((ours[name] - whole(x)).abs().max() / ours[name].abs().max()) for name, x in theirs.weights())
        return Compared(took, apart)


def whole(weight: Any) -> Any:
    """A weight of all ranks."""
    return getattr(weight, "full_tensor", lambda: weight)().detach()


class TorchTrainer:
    """One rank of a run as torch's documentation writes it."""

    def __init__(self, worker: Any, plan: Plan, zero: int) -> None:
        import torch
        from torch.nn.parallel import DistributedDataParallel

        from planner.models.build import build, init_weights
        from planner.runtime import TrainingOptions
        from planner.runtime.state.optimizers import has_weight_decay

        self.rank, self.plan, self.spec = worker.rank, plan, plan.uses.models["llm"]
        self.network: Any = build(self.spec)
        init_weights(self.network, SEED)
        self.parallel = sharded(self.network, again=zero == 3) if zero else DistributedDataParallel(self.network)
        training, weights = TrainingOptions(RATE), [*self.weights()]
        decay = {name: training.decay if has_weight_decay(name, weight) else 0.0 for name, weight in weights}
        groups = [
            {"params": [weight for name, weight in weights if decay[name] == each], "weight_decay": each}
            for each in set(decay.values())
        ]
        self.optimizer = torch.optim.AdamW(groups, RATE, betas=training.betas, fused=True)

    def step(self) -> None:
        """Gradients are averaged over ranks, and so are losses over the tokens of each."""
        from planner.models.inputs.training_items import synthetic_batch

        self.optimizer.zero_grad()
        batch = synthetic_batch(self.spec, [(self.rank, TOKENS)], SEED)
        (self.parallel(batch) / TOKENS).backward()
        self.optimizer.step()

    def weights(self) -> Iterator[tuple[str, Any]]:
        return self.network.named_parameters()


def sharded(network: Any, again: bool) -> Any:
    """The network as units of FSDP2, one for each layer and one for the rest."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (RANKS,))
    for layer in network.layers.values():
        fully_shard(layer, mesh=mesh, reshard_after_forward=again)
    return fully_shard(network, mesh=mesh, reshard_after_forward=again)
