"""What of a module one rank holds: some of its layers, a part of each matrix, some of the experts."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from torch import nn

from planner.specs.base import Layers
from planner.specs.job import Recompute

Over = Literal["tp", "ep", "etp"]  # along which dim of a mesh a parameter is split


@dataclass(frozen=True, slots=True)
class Part:
    """One of `of` equal parts."""

    index: int = 0
    of: int = 1

    def size(self, width: int) -> int:
        """Of this part of `width`. Widths that do not divide are refused before anything is built."""
        return width // self.of

    def span(self, width: int) -> tuple[int, int]:
        return self.index * self.size(width), (self.index + 1) * self.size(width)


@dataclass(frozen=True, slots=True)
class Held:
    """Everything, unless said otherwise."""

    layers: Layers | None = None  # None: all
    tp: Part = Part()
    ep: Part = Part()
    etp: Part = Part()
    recompute: Mapping[int, Recompute] = field(default_factory=dict)  # by layer; of others nothing is made again

    def holds(self, layer: int) -> bool:
        return self.layers is None or layer in self.layers

    def part(self, width: int) -> Part:
        """Of a matrix of this width. What does not divide, every rank of tp has whole, and uses for its own rows."""
        return Part() if width % self.tp.of else self.tp


WHOLE_MODULE = Held()


@dataclass(frozen=True, slots=True)
class Split:
    """A parameter is one part of a whole along one of its dims."""

    dim: int
    part: Part
    over: Over


def splits_of(model: nn.Module) -> dict[str, tuple[Split, ...]]:
    """Parameter → how it was split. One that is not named is whole, and each rank of tp adds its tokens' gradient."""
    return {
        f"{prefix}.{name}" if prefix else name: splits
        for prefix, module in model.named_modules()
        for name, splits in getattr(module, "splits", {}).items()
        if any(split.part.of > 1 for split in splits)
    }


def expert_names(model: nn.Module) -> set[str]:
    """Parameters that hold the matrices, or biases, of experts along their first dim, in a mesh of their own."""
    return {
        f"{prefix}.{name}"
        for prefix, module in model.named_modules()
        if getattr(module, "are_experts", False)
        for name, _ in module.named_parameters()
    }
