"""A pipeline stage on one rank: consecutive layers of a module (one chunk), with states sharded by FSDP2.

There is one FSDP2 unit per layer and one for the rest; experts are units of their own, on their own mesh.

ZeRO-3: every unit is gathered before use in each pass, and its gradients are reduced after each backward. ZeRO-1 and 2:
units stay gathered through the step, unsharded gradients accumulate on each rank (also under ZeRO-2), and one reduction
ends the step. ZeRO-0: the same with replicated states. Gradients are sums over ranks; losses are divided by the target
tokens of all ranks.

A stage is `unsharded` if no other rank has any of its states and none of them is cast: it does not use FSDP2. One of an
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

from planner.launch.groups import Groups
from planner.models.build import build
from planner.models.held import ExpertPart, Held, Part, Split, expert_names, splits_of
from planner.models.pretrained import First, first_weights
from planner.plan.mesh import coordinates, expert_coordinates, expert_states, states
from planner.plan.model import Layout
from planner.runtime import fsdp
from planner.runtime.clock import Clock
from planner.specs.base import Layers, Ranks
from planner.specs.layers import Module
from planner.specs.parallelism import Dtype

META = torch.device("meta")


class Stage:
    """One chunk of layers on one rank. `feeds`: whether another module reads its outputs."""

    def __init__(
        self, spec: Module, layout: Layout, layers: Layers, dtype: Dtype, clock: Clock, feeds: bool = False
    ) -> None:
        self.spec, self.layout, self.layers, self.dtype, self.clock = spec, layout, layers, dtype, clock
        self.stored, self.computed = fsdp.STORED[dtype], fsdp.COMPUTED[dtype]
        self.network = build(spec, dtype=self.stored, device=META, held=rank_part(layout, layers, clock.rank))
        self.network.feeds = feeds
        self.splits: dict[str, tuple[Split, ...]] = splits_of(self.network)
        self.once = layout.zero < 3  # gradients are reduced once a step
        self.reduced = not self.once
        self.units: list[FSDPModule] = []  # FSDP2 units, that of the whole network last; empty if unsharded
        self.shards: dict[str, nn.Parameter] = {}
        self.experts = expert_names(self.network)
        self.alone = self.shares_nothing()
        self.apart = feeds and layout.zero == 3
        self.open = 0  # if task_gathered: forwards between gather and end
        self.piles = False  # whether weight gradients of some micro-batches are still to come (split backward)
        self.settled = False  # whether gradients of replicated parameters are summed over their ranks

    def materialise(self, groups: Groups, first: First) -> None:
        """Shards the network over its ranks and loads its initial weights: of a checkpoint, or random."""
        if not self.alone:
            self.shard_all(groups)
        self.network.to_empty(device=self.clock.device)
        first_weights(self.network, self.spec, first)
        self.shards = dict(
            self.network.named_parameters()
        )  # taken now: while gathered, the network has unsharded parameters instead
        if self.once:
            self.gather()

    def shares_nothing(self) -> bool:
        """Whether no other rank has any of its states, and none is cast for compute."""
        rank = self.clock.rank
        over = [*states(self.layout, rank)]
        for at, _ in self.layout.by_experts(self.layers) if self.experts else ():
            over += expert_states(at, rank)
        return self.stored == self.computed and all(len(ranks) == 1 for ranks in over)

    def shard_all(self, groups: Groups) -> None:
        rank = self.clock.rank
        for layer, block in self.network.layers.items():
            for part in expert_units(block):
                self.shard_unit(part, groups, expert_states(self.layout.at(int(layer)), rank))
        for unit in [*self.network.layers.values(), self.network]:
            self.shard_unit(unit, groups, states(self.layout, rank))

    def shard_unit(self, unit: Any, groups: Groups, over: tuple[Ranks, Ranks]) -> None:
        """`over`: the ranks over which its states are sharded, and those over which shards are replicated."""
        shards, replicas = over
        fsdp.shard(unit, groups[shards], self.dtype, self.clock.device, again=not (self.once or self.apart))
        in_bf16 = self.layout.gradients == "bf16"
        fsdp.measure(unit, self.clock, in_bf16)
        if len(replicas) > 1:
            fsdp.add_up(unit, groups[replicas], self.clock, in_bf16 and len(shards) == 1)  # rounded once
        self.units.append(unit)

    def hold(self) -> None:
        """Resets the state of a stage at the start of a step."""
        self.reduced, self.settled, self.piles, self.open = not self.once, False, False, 0
        fsdp.hold(self.units, self.once or self.apart)

    @contextmanager
    def backward(self, whole: bool) -> Iterator[None]:
        """Context of a backward (`whole`), or of the input-gradient half of a split one, after which nothing is
        reduced.
        """
        self.piles |= not whole
        if self.apart:
            self.gather()
        by_task = self.once or self.apart
        fsdp.keep(self.units, by_task or self.piles)
        yield
        fsdp.keep(self.units, by_task)
        if whole and self.piles:
            self.pile_up()

    def pile_up(self) -> None:
        """Accumulates weight gradients that were computed outside of a backward; under ZeRO-3 also reduces them."""
        if self.once or self.apart:
            fsdp.pile_up(self.units)
        elif self.units:
            fsdp.reduce(self.units)

    def reduce(self) -> None:
        """Reduces the accumulated gradients; zeros where there are none."""
        if self.units:
            fsdp.reduce(self.units)
        for parameter in self.network.parameters() if self.alone else ():
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        self.reduced = True
        if self.apart:
            fsdp.hold(self.units, True)

    def gather(self) -> None:
        """Gathers the parameters of every unit, until a reduction; if task_gathered, also those that are gathered
        already, since other ranks may have resharded them.
        """
        if self.apart:
            self.release()
        for unit in self.units:
            unit.unshard()

    def release(self) -> None:
        """Reshards the parameters of every unit."""
        for unit in self.units:
            unit.reshard()

    def begin(self) -> None:
        """If task_gathered: gathers parameters for the forward of a micro-batch, until `end_forward`."""
        self.open += 1
        self.gather()

    def end(self) -> None:
        """Ends a forward; reshards when no other is open, whose layers only this rank would gather again."""
        self.open -= 1
        if not self.open:
            self.release()

    def tells(self, name: str) -> bool:
        """Whether this rank is the first of those over which this part of a parameter is sharded or replicated."""
        return all(ranks[0] == self.clock.rank for ranks in self.states_of(name))

    def states_of(self, name: str) -> tuple[Ranks, Ranks]:
        """The ranks over which this part of a parameter is sharded, and those over which its shards are replicated."""
        if name not in self.experts:
            return states(self.layout, self.clock.rank)
        return expert_states(self.layout.at(layer_of(name)), self.clock.rank)

    def place_of(self, name: str) -> dict[str, int]:
        """This rank's coordinates in the mesh of a parameter, by mesh dimension."""
        if name not in self.experts:
            return coordinates(self.layout, self.clock.rank)
        return expert_coordinates(self.layout.at(layer_of(name)), self.clock.rank)

    def weights(self) -> dict[str, Tensor]:
        """This rank's shards, by parameter."""
        return {**self.shards}

    def gradients(self) -> dict[str, Tensor]:
        """Gradients of this rank's shards, by parameter; those that exist."""
        return {name: shard.grad for name, shard in self.shards.items() if shard.grad is not None}


def rank_part(layout: Layout, layers: Layers, rank: int) -> Held:
    """Which layers, tp shards and experts a rank holds."""
    return Held(
        layers=layers,
        tp=Part(coordinates(layout, rank).get("tp", 0), layout.tp),
        experts={layer: expert_part(at, rank) for at, of_experts in layout.by_experts(layers) for layer in of_experts},
        recompute={layer: layout.recompute_of(layer) for layer in layers},
    )


def expert_part(layout: Layout, rank: int) -> ExpertPart:
    """Which experts of a layer a rank holds, and which etp shard of them."""
    coordinate = expert_coordinates(layout, rank)
    return ExpertPart(Part(coordinate["ep"], layout.ep), Part(coordinate["etp"], layout.etp))


def layer_of(name: str) -> int:
    """Layer of a parameter such as `layers.3.mlp.experts.up`."""
    return int(name.split(".")[1])


def expert_units(network: nn.Module) -> list[nn.Module]:
    """Modules whose parameters are experts."""
    return [module for module in network.modules() if getattr(module, "are_experts", False)]
