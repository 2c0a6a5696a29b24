"""A pipeline stage on one rank: consecutive layers of a module (one chunk), with states sharded by FSDP2.

There is one FSDP2 unit per layer and one for the rest; experts are units of their own, on their own mesh.

ZeRO-3: every unit is gathered before use in each pass, and its gradients are reduced after each backward. ZeRO-1 and 2:
units stay gathered through the step, unsharded gradients accumulate on each rank (also under ZeRO-2), and one reduction
ends the step. ZeRO-0: the same with replicated states. Gradients are sums over ranks; losses are divided by the target
tokens of all ranks.

A stage is `unsharded` if it computes with the very weights that its rank updates: none is sharded or cast. It does not
use FSDP2; gradients of weights that other ranks have as well are summed as DDP does, behind the passes. One of an
encoder under ZeRO-3 is `task_gathered`: its passes are placed between those of another module, and may be split. It is
gathered as a whole by gather tasks and before each backward, resharded when no forward is open, and reduced by sync
tasks.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule

from planner.launch.communication import ProcessGroups
from planner.models import (
    EqualShard,
    ExpertShard,
    ModuleShard,
    ParameterSplit,
    build,
    expert_parameters,
    parameter_splits,
)
from planner.models.checkpoints import InitialWeights, set_initial_weights
from planner.plan.mesh.rank_mesh import (
    coordinates,
    expert_coordinates,
    expert_state_groups_of_rank,
    state_groups_of_rank,
)
from planner.plan.mesh.synchronisation import reduces_each_micro_batch
from planner.plan.plan_file import Layout
from planner.runtime.measure.step_clock import StepClock
from planner.runtime.state import fsdp
from planner.runtime.state.replicas import GradientBucket, gradient_buckets, timed_sum
from planner.specs.base import Layers, Ranks
from planner.specs.layers import Module
from planner.specs.parallelism import Dtype

META = torch.device("meta")


class ShardedStage:
    """One chunk of layers on one rank. `feeds`: whether another module reads its outputs."""

    def __init__(
        self, spec: Module, layout: Layout, layers: Layers, dtype: Dtype, clock: StepClock, feeds: bool = False
    ) -> None:
        self.spec, self.layout, self.layers, self.dtype, self.clock = spec, layout, layers, dtype, clock
        self.stored_dtype, self.compute_dtype = fsdp.STORED_DTYPES[dtype], fsdp.COMPUTE_DTYPES[dtype]
        self.network = build(spec, dtype=self.stored_dtype, device=META, shard=rank_part(layout, layers, clock.rank))
        self.splits: dict[str, tuple[ParameterSplit, ...]] = parameter_splits(self.network)
        self.reduced_once = not reduces_each_micro_batch(layout)
        self.reduced = not self.reduced_once
        self.units: list[FSDPModule] = []  # FSDP2 units, that of the whole network last; empty if unsharded
        self.shards: dict[str, nn.Parameter] = {}
        self.trained: dict[str, nn.Parameter] = {}  # those of `shards` that have gradients
        self.expert_parameters = expert_parameters(self.network)
        self.unsharded = self.shards_nothing()
        self.buckets: list[GradientBucket] = []  # if unsharded: what is summed over replicas
        self.task_gathered = feeds and layout.zero == 3
        self.open_forwards = 0  # if task_gathered: forwards between gather and end
        self.accumulating = False  # whether weight gradients of some micro-batches are still to come (split backward)
        self.replicated_summed = False  # whether gradients of replicated parameters are summed over their ranks

    def materialise(self, groups: ProcessGroups, first: InitialWeights) -> None:
        """Shards the network over its ranks and loads its initial weights: of a checkpoint, or random."""
        if not self.unsharded:
            self.shard_all(groups)
        self.network.to_empty(device=self.clock.device)
        set_initial_weights(self.network, self.spec, first)
        self.shards = dict(self.network.named_parameters())  # taken now: those of a gathered network are unsharded
        self.trained = {name: shard for name, shard in self.shards.items() if shard.requires_grad}
        self.buckets = [*self.replica_buckets(groups)] if self.unsharded else []
        if self.reduced_once:
            self.gather()

    def shards_nothing(self) -> bool:
        """Whether no state is sharded, none is cast for compute, and gradients of replicas are summed once a step."""
        whole = all(len(shards) == 1 for shards, _ in self.held_over())
        alone = all(len(replicas) == 1 for _, replicas in self.held_over())
        return self.stored_dtype == self.compute_dtype and whole and (self.reduced_once or alone)

    def held_over(self) -> list[tuple[Ranks, Ranks]]:
        """Of weights that are no experts, and of experts: the ranks that share a state, and those with the same."""
        rank = self.clock.rank
        places = self.layout.by_expert_placement(self.layers) if self.expert_parameters else ()
        return [state_groups_of_rank(self.layout, rank), *(expert_state_groups_of_rank(at, rank) for at, _ in places)]

    def replica_buckets(self, groups: ProcessGroups) -> Iterator[GradientBucket]:
        """The trained weights of an unsharded stage that other ranks hold too, by who does."""
        for ranks in sorted({ranks for _, ranks in self.held_over() if len(ranks) > 1}):
            weights = [weight for name, weight in self.trained.items() if self.state_ranks(name)[1] == ranks]
            add = timed_sum(groups[ranks], self.clock, self.layout.gradients == "bf16")
            yield from gradient_buckets(weights, add)

    def shard_all(self, groups: ProcessGroups) -> None:
        rank = self.clock.rank
        for layer, block in self.network.layers.items():
            for part in expert_units(block):
                self.shard_unit(part, groups, expert_state_groups_of_rank(self.layout.at_layer(int(layer)), rank))
        for unit in [*self.network.layers.values(), self.network]:
            self.shard_unit(unit, groups, state_groups_of_rank(self.layout, rank))

    def shard_unit(self, unit: Any, groups: ProcessGroups, over: tuple[Ranks, Ranks]) -> None:
        """`over`: the ranks over which its states are sharded, and those over which shards are replicated."""
        shards, replicas = over
        fsdp.shard(
            unit,
            groups[shards],
            self.dtype,
            self.clock.device,
            gather_for_backward=not (self.reduced_once or self.task_gathered),
        )
        in_bf16 = self.layout.gradients == "bf16"
        fsdp.time_collectives(unit, self.clock, in_bf16)
        if len(replicas) > 1:
            fsdp.sum_over_replicas(unit, groups[replicas], self.clock, in_bf16 and len(shards) == 1)  # rounded once
        self.units.append(unit)

    def begin_step(self) -> None:
        """Resets the state of a stage at the start of a step."""
        self.reduced = not (self.reduced_once and self.trained)
        self.replicated_summed = False
        self.accumulating = False
        self.open_forwards = 0
        fsdp.keep_gathered(self.units, self.reduced_once or self.task_gathered)

    @contextmanager
    def backward(self, whole: bool) -> Iterator[None]:
        """Context of a backward (`whole`), or of the input-gradient half of a split one, which reduces nothing."""
        self.accumulating |= not whole
        if self.task_gathered:
            self.gather()
        by_task = self.reduced_once or self.task_gathered
        fsdp.keep_unreduced(self.units, by_task or self.accumulating)
        yield
        fsdp.keep_unreduced(self.units, by_task)
        if whole and self.accumulating:
            self.accumulate()

    def accumulate(self) -> None:
        """Accumulates weight gradients that were computed outside of a backward; under ZeRO-3 also reduces them."""
        if self.reduced_once or self.task_gathered:
            fsdp.accumulate(self.units)
        elif self.units:
            fsdp.reduce(self.units)

    def reduce(self) -> None:
        """Reduces the accumulated gradients; zeros where there are none."""
        if self.units:
            fsdp.reduce(self.units)
        for weight in self.trained.values() if self.unsharded else ():
            if weight.grad is None:
                weight.grad = torch.zeros_like(weight)
        for bucket in self.buckets:
            bucket.sum()
        self.reduced = True
        if self.task_gathered:
            fsdp.keep_gathered(self.units, True)

    def gather(self) -> None:
        """Gathers the parameters of every unit, until a reduction; if task_gathered, also those that are gathered
        already, since other ranks may have resharded them.
        """
        if self.task_gathered:
            self.reshard()
        for unit in self.units:
            unit.unshard()

    def reshard(self) -> None:
        """Reshards the parameters of every unit."""
        for unit in self.units:
            unit.reshard()

    def begin_forward(self) -> None:
        """If task_gathered: gathers parameters for the forward of a micro-batch, until `end_forward`."""
        self.open_forwards += 1
        self.gather()

    def end_forward(self) -> None:
        """Ends a forward; reshards when no other is open, whose layers only this rank would gather again."""
        self.open_forwards -= 1
        if not self.open_forwards:
            self.reshard()

    def is_first_replica(self, name: str) -> bool:
        """Whether this rank is the first of those over which its shard of a parameter is replicated."""
        return self.state_ranks(name)[1][0] == self.clock.rank

    def state_ranks(self, name: str) -> tuple[Ranks, Ranks]:
        """The ranks over which this part of a parameter is sharded, and those over which its shards are replicated."""
        if name not in self.expert_parameters:
            return state_groups_of_rank(self.layout, self.clock.rank)
        return expert_state_groups_of_rank(self.layout.at_layer(layer_of(name)), self.clock.rank)

    def mesh_coordinates(self, name: str) -> dict[str, int]:
        """This rank's coordinates in the mesh of a parameter, by mesh dimension."""
        if name not in self.expert_parameters:
            return coordinates(self.layout, self.clock.rank)
        return expert_coordinates(self.layout.at_layer(layer_of(name)), self.clock.rank)

    def weights(self) -> dict[str, Tensor]:
        """This rank's shards (of their local shapes), by parameter."""
        return {**self.shards}

    def gradients(self) -> dict[str, Tensor]:
        """Gradients of this rank's shards, of the shards' shapes, by parameter; those that exist."""
        return {name: shard.grad for name, shard in self.shards.items() if shard.grad is not None}


def rank_part(layout: Layout, layers: Layers, rank: int) -> ModuleShard:
    """Which layers, tp shards and experts a rank holds."""
    return ModuleShard(
        layers=layers,
        tp=EqualShard(coordinates(layout, rank).get("tp", 0), layout.tp),
        experts={
            layer: expert_part(at, rank)
            for at, of_experts in layout.by_expert_placement(layers)
            for layer in of_experts
        },
        recompute={layer: layout.layer_recompute(layer) for layer in layers},
    )


def expert_part(layout: Layout, rank: int) -> ExpertShard:
    """Which experts of a layer a rank holds, and which etp shard of them."""
    coordinate = expert_coordinates(layout, rank)
    return ExpertShard(EqualShard(coordinate["ep"], layout.ep), EqualShard(coordinate["etp"], layout.etp))


def layer_of(name: str) -> int:
    """Layer of a parameter such as `layers.3.mlp.experts.up`."""
    return int(name.split(".")[1])


def expert_units(network: nn.Module) -> list[nn.Module]:
    """Modules whose parameters are experts."""
    return [module for module in network.modules() if getattr(module, "are_experts", False)]
