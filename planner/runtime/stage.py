"""The layers of a module that this rank holds together: a chunk of a pipeline, its states spread by FSDP2.

There is one unit per layer and one for the rest; experts are units of their own, on the mesh of their own.

ZeRO-3: every unit is gathered before use in each pass, and its gradients are reduced after each backward. ZeRO-1 and 2:
units stay gathered through the step, gradients pile up on each rank, and one reduction ends the step. ZeRO-0: the same
with whole states on every rank. Gradients are sums over ranks; whoever computes a loss divides it by the tokens of all.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule

from planner.launch.groups import Groups
from planner.models.build import build, init_weights
from planner.models.held import Held, Part, Split, splits_of
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
        self.units: list[FSDPModule] = []
        self.shards: dict[str, nn.Parameter] = {}
        self.experts = {name for name, splits in self.splits.items() if any(split.over != "tp" for split in splits)}

    def materialise(self, groups: Groups, seed: int) -> None:
        """Spread it over its ranks, and give it its first weights."""
        rank = self.clock.rank
        for unit in [*self.network.layers.values(), self.network]:
            for part in expert_units(unit):
                self.spread(part, groups, expert_states(self.layout, rank))
        for unit in [*self.network.layers.values(), self.network]:
            self.spread(unit, groups, states(self.layout, rank))
        self.network.to_empty(device=self.clock.device)
        init_weights(self.network, seed)
        self.shards = dict(self.network.named_parameters())  # the network shows others while it is gathered
        if self.once:
            self.gather()

    def spread(self, unit: Any, groups: Groups, over: tuple[Ranks, Ranks]) -> None:
        """`over`: the ranks that share its states, and those that have the same of them."""
        shards, replicas = over
        fsdp.shard(unit, groups[shards], self.dtype, self.clock.device, again=not self.once)
        fsdp.measure(unit, self.clock)
        if len(replicas) > 1:
            fsdp.add_up(unit, groups[replicas], self.clock)
        self.units.append(unit)

    def hold(self) -> None:
        """At the begin of a step."""
        self.reduced = not self.once
        fsdp.hold(self.units, self.once)

    def keep(self) -> None:
        """Reduce nothing in the next backwards, since the gradients of weights come apart from them, or later."""
        fsdp.hold(self.units, True)

    def reduce(self) -> None:
        """The gradients that piled up."""
        fsdp.reduce(self.root, self.units)
        self.reduced = True

    def gather(self) -> None:
        """Every unit, until a reduction."""
        for unit in self.units:
            unit.unshard()

    @property
    def root(self) -> FSDPModule:
        return self.units[-1]

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


def expert_units(unit: nn.Module) -> list[nn.Module]:
    """Modules inside a unit whose parameters are experts."""
    return [module for module in unit.modules() if getattr(module, "are_experts", False)] if unit else []


def whole(tensor: Any) -> Tensor:
    gathered: Tensor = tensor.detach().full_tensor()
    return gathered
