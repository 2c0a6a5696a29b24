"""Two processes that train one step by an exported schedule; and the same step in one process."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from planner.launch.worker import Worker, joined_world

ROWS, WIDTH = 3, 8  # of a micro-batch


def layers(stages: int) -> list[nn.Module]:
    torch.manual_seed(0)
    return [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH)).double() for _ in range(stages)]


def batch(micro_batches: int) -> tuple[Tensor, Tensor]:
    torch.manual_seed(1)
    return tuple(torch.randn(ROWS * micro_batches, WIDTH, dtype=torch.float64) for _ in range(2))  # type: ignore[return-value]


def loss(output: Tensor, target: Tensor) -> Tensor:
    return ((output - target) ** 2 * torch.arange(1.0, WIDTH + 1.0)).sum()


def gradients(modules: list[nn.Module]) -> list[Tensor]:
    return [p.grad for module in modules for p in module.parameters() if p.grad is not None]


def whole(stages: int, micro_batches: int) -> list[list[Tensor]]:
    """Gradients of each stage, in one process."""
    modules, (inputs, target) = layers(stages), batch(micro_batches)
    loss(nn.Sequential(*modules)(inputs), target).backward()
    return [gradients([module]) for module in modules]


def train(worker: Worker, file: str, micro_batches: int) -> list[list[np.ndarray]]:
    """Gradients of one of two ranks, with stages rank, rank + 2, … of as many as the file has."""
    from torch.distributed.pipelining import PipelineStage
    from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

    count = 1 + max(
        int(each.split("F")[0]) for line in Path(file).read_text().split() for each in line.split(",") if "F" in each
    )
    modules, (inputs, target) = layers(count), batch(micro_batches)
    mine = range(worker.rank, count, 2)
    with joined_world(worker):
        stages = [PipelineStage(modules[s], s, count, torch.device("cpu")) for s in mine]
        schedule = _PipelineScheduleRuntime(stages, micro_batches, loss_fn=loss, scale_grads=False)
        schedule._load_csv(file)
        schedule.step(*(() if worker.rank else (inputs,)), target=target)
        # As arrays: tensors would travel as handles of processes that have ended.
        return [[gradient.numpy() for gradient in gradients([modules[s]])] for s in mine]
