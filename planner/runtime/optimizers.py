"""The optimizer of each module on a rank, over the shards that the rank holds."""

from collections.abc import Iterable, Mapping

from torch.optim import AdamW, Optimizer

from planner.runtime.local import Local
from planner.runtime.training import Training


def optimizers(local: Local, training: Training) -> dict[str, Optimizer]:
    """By module. Only matrices decay."""
    made: dict[str, Optimizer] = {}
    for module in local.stages:
        shards = [*local.parameters(module)]
        parts = (
            {"params": [shard for shard in shards if shard.dim() > 1], "weight_decay": training.decay},
            {"params": [shard for shard in shards if shard.dim() < 2], "weight_decay": 0.0},
        )
        groups = [part for part in parts if part["params"]]
        made[module] = AdamW(groups, lr=training.learning_rate, betas=training.betas)
    return made


def set_rate(optimizers: Mapping[str, Optimizer], rate: float) -> None:
    groups: Iterable[dict[str, float]] = (group for each in optimizers.values() for group in each.param_groups)
    for group in groups:
        group["lr"] = rate
