"""The layers of a module that this rank holds together: a chunk of a pipeline, its states spread by FSDP2.

There is one unit per layer and one for the rest; experts are units of their own, on the mesh of their own.

ZeRO-3: every unit is gathered before use in each pass, and its gradients are reduced after each backward. ZeRO-1 and 2:
units stay gathered through the step, gradients pile up on each rank, and one reduction ends the step. ZeRO-0: the same
with whole states on every rank. Gradients are sums over ranks; whoever computes a loss divides it by the tokens of all.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from planner.launch.groups import Groups
from planner.models.build import build
from planner.models.held import Held, Part, Split, expert_names, splits_of
from planner.models.pretrained import first_weights
from planner.plan.mesh import coordinates, expert_coordinates, expert_groups_over, groups_over
from planner.plan.model import Layout
from planner.runtime import fsdp
from planner.runtime.clock import Clock
from planner.specs.base import Layers, Ranks
from planner.specs.job import Dtype
from planner.specs.model import Module

META = torch.device("meta")


class Stage:
    """One chunk on one rank."""

    def __init__(self, spec: Module, layout: Layout, layers: Layers, dtype: Dtype, clock: Clock) -> None:
        self.spec, self.layout, self.layers, self.dtype, self.clock = spec, layout, layers, dtype, clock
        self.stored, self.computed = fsdp.STORED[dtype], fsdp.COMPUTED[dtype]
        self.network = build(spec, dtype=self.stored, device=META, held=held(layout, layers, clock.rank))
        self.splits: dict[str, tuple[Split, ...]] = splits_of(self.network)
        self.once = layout.zero < 3  # gradients are reduced once a step
        self.reduced = not self.once
        self.units: list[FSDPModule] = []  # the whole network last; none where FSDP2 has nothing to do
        self.shards: dict[str, nn.Parameter] = {}
        self.experts = expert_names(self.network)
        self.apart = False  # ZeRO-3 whose gathers and reductions are tasks apart from passes, which may be cut
        self.piles = False  # whether gradients of other micro-batches wait for those of weights
        self.settled = False  # whether gradients are summed over ranks with the same parameters (settle.py)

    def materialise(self, groups: Groups, seed: int, weights: Path | None = None) -> None:
        """Spread it over its ranks, and give it its first weights: those of a checkpoint, or drawn ones."""
        if not self.alone:
            self.spread_all(groups)
        self.network.to_empty(device=self.clock.device)
        first_weights(self.network, self.spec, seed, weights)
        self.shards = dict(self.network.named_parameters())  # the network shows others while it is gathered
        if self.once:
            self.gather()

    @property
    def alone(self) -> bool:
        """Whether FSDP2 has nothing to do: no other rank has any of these states, and none is cast."""
        over = (*states(self.layout, self.clock.rank), *expert_states(self.layout, self.clock.rank))
        return self.stored == self.computed and all(len(ranks) == 1 for ranks in over)

    def spread_all(self, groups: Groups) -> None:
        rank = self.clock.rank
        for part in expert_units(self.network):
            self.spread(part, groups, expert_states(self.layout, rank))
        for unit in [*self.network.layers.values(), self.network]:
            self.spread(unit, groups, states(self.layout, rank))

    def spread(self, unit: Any, groups: Groups, over: tuple[Ranks, Ranks]) -> None:
        """`over`: the ranks that share its states, and those that have the same of them."""
        shards, replicas = over
        fsdp.shard(unit, groups[shards], self.dtype, self.clock.device, again=not (self.once or self.apart))
        rounds = self.layout.gradients == "bf16"
        fsdp.measure(unit, self.clock, rounds)
        if len(replicas) > 1:
            fsdp.add_up(unit, groups[replicas], self.clock, rounds and len(shards) == 1)  # once
        self.units.append(unit)

    def hold(self) -> None:
        """At the begin of a step."""
        self.reduced, self.settled, self.piles = not self.once, False, False
        fsdp.hold(self.units, self.once or self.apart)

    @contextmanager
    def backward(self, whole: bool) -> Iterator[None]:
        """Around a backward; of one in two, around the first pass, behind which nothing is reduced."""
        self.piles |= not whole
        if self.apart:
            self.gather()
        held = self.once or self.apart
        fsdp.keep(self.units, held or self.piles)
        yield
        fsdp.keep(self.units, held)
        if whole and self.piles:
            self.pile_up()

    def pile_up(self) -> None:
        """Gradients that came apart from any backward, and, by ZeRO-3, the reduction that follows one."""
        if self.once:
            fsdp.pile_up(self.units)
        elif self.units:
            fsdp.reduce(self.units)

    def reduce(self) -> None:
        """The gradients that piled up; zeros where nothing did."""
        if self.units:
            fsdp.reduce(self.units)
        for parameter in self.network.parameters() if self.alone else ():
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        self.reduced = True
        if self.apart:
            fsdp.hold(self.units, True)

    def gather(self) -> None:
        """Every unit, until a reduction; anew where other ranks may have let go of them."""
        if self.apart:
            self.release()
        for unit in self.units:
            unit.unshard()

    def release(self) -> None:
        """A forward is over, and what it gathered is needed no more until its backward."""
        for unit in self.units:
            unit.reshard()

    def tells(self, name: str) -> bool:
        """Whether this rank is the first of those that share, or have, this part of a parameter."""
        over = expert_states if name in self.experts else states
        return all(ranks[0] == self.clock.rank for ranks in over(self.layout, self.clock.rank))

    def weights(self) -> dict[str, Tensor]:
        """Of this rank's part of every parameter, gathered from those that share it."""
        return {name: whole(parameter) for name, parameter in self.shards.items()}

    def gradients(self) -> dict[str, Tensor]:
        found = {name: parameter.grad for name, parameter in self.shards.items()}
        return {name: whole(gradient) for name, gradient in found.items() if gradient is not None}


def held(layout: Layout, layers: Layers, rank: int) -> Held:
    """What a rank holds of these layers."""
    place, experts = coordinates(layout, rank), expert_coordinates(layout, rank)
    return Held(
        layers=layers,
        tp=Part(place.get("tp", 0), layout.mesh.get("tp", 1)),
        ep=Part(experts["ep"], layout.experts.get("ep", 1)),
        etp=Part(experts["etp"], layout.experts.get("etp", 1)),
        recompute={layer: layout.recompute_of(layer) for layer in layers},
    )


def states(layout: Layout, rank: int) -> tuple[Ranks, Ranks]:
    """Who shares the states of a layer with this rank, and who has the same of them: by ZeRO-0 everybody has all."""
    data, replicas = groups_over(layout, ("dp",))[rank], groups_over(layout, ("replica",))[rank]
    if layout.zero == 0:
        return Ranks((rank,)), groups_over(layout, ("dp", "replica"))[rank]
    return data, replicas


def expert_states(layout: Layout, rank: int) -> tuple[Ranks, Ranks]:
    """Of experts: the ranks with the same ones."""
    same, alone = expert_groups_over(layout, ("edp",))[rank], Ranks((rank,))
    return (alone, same) if layout.zero == 0 else (same, alone)


def expert_units(network: nn.Module) -> list[nn.Module]:
    """Modules whose parameters are experts."""
    return [module for module in network.modules() if getattr(module, "are_experts", False)]


def whole(tensor: Any) -> Tensor:
    gathered: Tensor = tensor.detach()
    return gathered.full_tensor() if isinstance(gathered, DTensor) else gathered
