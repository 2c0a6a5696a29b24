"""The layers of a module that this rank holds together: a chunk of a pipeline, its states spread by FSDP2.

There is one unit per layer and one for the rest; experts are units of their own, on the mesh of their own.

ZeRO-3: every unit is gathered before use in each pass, and its gradients are reduced after each backward. ZeRO-1 and 2:
units stay gathered through the step, whole gradients pile up on each rank (by ZeRO-2 as by ZeRO-1), and one reduction
ends the step. ZeRO-0: the same with whole states on every rank. Gradients are sums over ranks; whoever computes a loss
divides it by the tokens of all.

A chunk is `alone` if no other rank has any of its states and none of them is cast: it does without FSDP2. One of an
encoder under ZeRO-3 is `apart`: its passes lie in the order of another module, and may be cut. It is gathered as a
whole by the gathers of its micro-batches and before each backward, let go of when no forward is open, and reduced by
syncs.
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
    """One chunk on one rank. `feeds`: whether another module reads its outputs."""

    def __init__(
        self, spec: Module, layout: Layout, layers: Layers, dtype: Dtype, clock: Clock, feeds: bool = False
    ) -> None:
        self.spec, self.layout, self.layers, self.dtype, self.clock = spec, layout, layers, dtype, clock
        self.stored, self.computed = fsdp.STORED[dtype], fsdp.COMPUTED[dtype]
        self.network = build(spec, dtype=self.stored, device=META, held=held(layout, layers, clock.rank))
        self.network.feeds = feeds
        self.splits: dict[str, tuple[Split, ...]] = splits_of(self.network)
        self.once = layout.zero < 3  # gradients are reduced once a step
        self.reduced = not self.once
        self.units: list[FSDPModule] = []  # the whole network last; none where FSDP2 has nothing to do
        self.shards: dict[str, nn.Parameter] = {}
        self.experts = expert_names(self.network)
        self.alone = self.shares_nothing()
        self.apart = feeds and layout.zero == 3
        self.open = 0  # forwards that have been gathered for and have not ended, where it is apart
        self.piles = False  # whether gradients of other micro-batches wait for those of weights
        self.settled = False  # whether gradients are summed over ranks with the same parameters (settle.py)

    def materialise(self, groups: Groups, first: First) -> None:
        """Spread it over its ranks, and give it its first weights: those of a checkpoint, or drawn ones."""
        if not self.alone:
            self.spread_all(groups)
        self.network.to_empty(device=self.clock.device)
        first_weights(self.network, self.spec, first)
        self.shards = dict(self.network.named_parameters())  # the network shows others while it is gathered
        if self.once:
            self.gather()

    def shares_nothing(self) -> bool:
        rank = self.clock.rank
        over = [*states(self.layout, rank)]
        for at, _ in self.layout.by_experts(self.layers) if self.experts else ():
            over += expert_states(at, rank)
        return self.stored == self.computed and all(len(ranks) == 1 for ranks in over)

    def spread_all(self, groups: Groups) -> None:
        rank = self.clock.rank
        for layer, block in self.network.layers.items():
            for part in expert_units(block):
                self.spread(part, groups, expert_states(self.layout.at(int(layer)), rank))
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
        self.reduced, self.settled, self.piles, self.open = not self.once, False, False, 0
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
        if self.once or self.apart:
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
        """What is gathered is not needed now."""
        for unit in self.units:
            unit.reshard()

    def begin(self) -> None:
        """Where it is apart: what the forward of a micro-batch needs, until that is over."""
        self.open += 1
        self.gather()

    def end(self) -> None:
        """That forward is over. Another may have begun, and some of its layers are still to come: on this rank alone
        they would be gathered anew.
        """
        self.open -= 1
        if not self.open:
            self.release()

    def tells(self, name: str) -> bool:
        """Whether this rank is the first of those that share, or have, this part of a parameter."""
        return all(ranks[0] == self.clock.rank for ranks in self.states_of(name))

    def states_of(self, name: str) -> tuple[Ranks, Ranks]:
        """The ranks that share this part of a parameter, and those that have the same of it."""
        if name not in self.experts:
            return states(self.layout, self.clock.rank)
        return expert_states(self.layout.at(layer_of(name)), self.clock.rank)

    def place_of(self, name: str) -> dict[str, int]:
        """This rank's place along the dims of a parameter's mesh."""
        if name not in self.experts:
            return coordinates(self.layout, self.clock.rank)
        return expert_coordinates(self.layout.at(layer_of(name)), self.clock.rank)

    def weights(self) -> dict[str, Tensor]:
        """By parameter, as this rank holds them: its shard of its part."""
        return {**self.shards}

    def gradients(self) -> dict[str, Tensor]:
        """The same, of those that there are."""
        return {name: shard.grad for name, shard in self.shards.items() if shard.grad is not None}


def held(layout: Layout, layers: Layers, rank: int) -> Held:
    """What a rank holds of these layers."""
    return Held(
        layers=layers,
        tp=Part(coordinates(layout, rank).get("tp", 0), layout.tp),
        experts={layer: expert_part(at, rank) for at, own in layout.by_experts(layers) for layer in own},
        recompute={layer: layout.recompute_of(layer) for layer in layers},
    )


def expert_part(layout: Layout, rank: int) -> ExpertPart:
    """What a rank holds of the experts of a layer."""
    place = expert_coordinates(layout, rank)
    return ExpertPart(Part(place["ep"], layout.ep), Part(place["etp"], layout.etp))


def layer_of(name: str) -> int:
    """Of a parameter of one: `layers.3.mlp.experts.up`."""
    return int(name.split(".")[1])


def expert_units(network: nn.Module) -> list[nn.Module]:
    """Modules whose parameters are experts."""
    return [module for module in network.modules() if getattr(module, "are_experts", False)]
