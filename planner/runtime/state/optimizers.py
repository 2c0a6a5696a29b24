"""The optimizer of each module on a rank, over the rank's parameter shards, and its states."""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from planner.models import ShardedAdamW
from planner.models.checkpoints import fill_from_shards
from planner.runtime.checkpoint.checkpoint_index import OPTIMIZER_KINDS, shard_prefix
from planner.runtime.run_options import TrainingOptions
from planner.runtime.state.rank_state import RankState
from planner.runtime.state.sharded_stage import ShardedStage


def make_optimizers(local: RankState, training: TrainingOptions) -> dict[str, ShardedAdamW]:
    """Creates AdamW for each module of which this rank trains anything. Only matrices have weight decay."""
    created: dict[str, ShardedAdamW] = {}
    for module in local.stages:
        named = [*local.parameters(module)]
        parts = (
            {
                "params": [shard for name, shard in named if has_weight_decay(name, shard)],
                "weight_decay": training.decay,
            },
            {"params": [shard for name, shard in named if not has_weight_decay(name, shard)], "weight_decay": 0.0},
        )
        groups = [part for part in parts if part["params"]]
        if groups:
            created[module] = ShardedAdamW(groups, lr=training.learning_rate, betas=training.betas)
    return created


def has_weight_decay(name: str, parameter: nn.Parameter) -> bool:
    """Whether a parameter is a matrix. Stacked biases of experts, (experts, width), are not."""
    return parameter.dim() > 1 and not name.endswith("bias")


def optimizer_states(optimizer: ShardedAdamW, stage: ShardedStage, kind: str) -> dict[str, Tensor]:
    """States of one kind (`exp_avg`, `exp_avg_sq`, or `step`, the number of updates as float32) of this rank's shards,
    by parameter. Initialises them as AdamW does if there was no update yet.
    """
    for shard in stage.trained.values():
        if not optimizer.state[shard]:
            averages = {each: torch.zeros_like(shard) for each in ("exp_avg", "exp_avg_sq")}
            optimizer.state[shard] = {"step": torch.zeros((), dtype=torch.float32, device=shard.device), **averages}
    return {name: optimizer.state[shard][kind] for name, shard in stage.trained.items()}


def load_optimizer_states(local: RankState, optimizers: Mapping[str, ShardedAdamW]) -> None:
    """Loads this rank's shards of the optimizer states of the checkpoint, if the run is resumed. Raises InputError."""
    if local.resumed is None:
        return
    for module, optimizer in optimizers.items():
        for kind in OPTIMIZER_KINDS:
            stored = local.resumed.states.within(shard_prefix(module, kind))
            for stage in local.stages[module]:
                fill_from_shards(optimizer_states(optimizer, stage, kind), stage.splits, stored)


def set_learning_rate(optimizers: Mapping[str, ShardedAdamW], rate: float) -> None:
    """Sets the learning rate of all parameter groups."""
    groups: Iterable[dict[str, float]] = (group for each in optimizers.values() for group in each.param_groups)
    for group in groups:
        group["lr"] = rate
