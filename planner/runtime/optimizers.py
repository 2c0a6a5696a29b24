"""The optimizer of each module on a rank, over the shards that the rank holds."""

from collections.abc import Iterable, Mapping

from torch import nn
from torch.optim import AdamW, Optimizer

from planner.runtime.local import Local
from planner.runtime.training import Training


def optimizers(local: Local, training: Training) -> dict[str, Optimizer]:
    """By module. Only matrices decay."""
    made: dict[str, Optimizer] = {}
    for module in local.stages:
        named = [*local.parameters(module)]
        parts = (
            {"params": [shard for name, shard in named if decays(name, shard)], "weight_decay": training.decay},
            {"params": [shard for name, shard in named if not decays(name, shard)], "weight_decay": 0.0},
        )
        groups = [part for part in parts if part["params"]]
        made[module] = AdamW(groups, lr=training.learning_rate, betas=training.betas)
    return made


def decays(name: str, parameter: nn.Parameter) -> bool:
    """Whether it is a matrix. The biases of all experts lie together, [experts, width], and are none."""
    return parameter.dim() > 1 and not name.endswith("bias")


def set_rate(optimizers: Mapping[str, Optimizer], rate: float) -> None:
    groups: Iterable[dict[str, float]] = (group for each in optimizers.values() for group in each.param_groups)
    for group in groups:
        group["lr"] = rate
