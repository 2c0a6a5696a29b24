"""Where gradients flow: which modules, and which of their stages, have a backward.

A backward computes gradients of weights that are trained, and of inputs where something below them is trained: an
earlier layer, or a module whose outputs are read. So a frozen encoder that reads nothing trained has no backward at
all, and a frozen LLM still passes gradients on to a trained projector in front of it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from planner.specs.layers import Module


class EdgeEnds(Protocol):
    """An edge of a model, or of a plan."""

    @property
    def source(self) -> str: ...

    @property
    def target(self) -> str: ...


@dataclass(frozen=True, slots=True)
class GradientFlow:
    """What the backward of one module does."""

    trains_layers: bool  # weights of its layers, or adapters beside them
    trains_projector: bool  # of what is behind its last layer, at least the projector
    passes_on: bool  # gradients of its inputs, to a module that it reads

    @property
    def through_layers(self) -> bool:
        """Whether gradients go through its layers, all of them."""
        return self.trains_layers or self.passes_on

    def has_backward(self, last: bool = True) -> bool:
        """Whether a stage has a backward; `last`: whether it is the one with the last layer."""
        return self.through_layers or (last and self.trains_projector)

    def trains(self, last: bool = True) -> bool:
        """Whether a stage has weights that are trained."""
        return self.trains_layers or (last and self.trains_projector)


TRAINED = GradientFlow(trains_layers=True, trains_projector=True, passes_on=False)  # a module by itself


def gradient_flows(models: Mapping[str, Module], edges: Iterable[EdgeEnds]) -> dict[str, GradientFlow]:
    """Return what the backward of each module does."""
    below: dict[str, set[str]] = {name: set() for name in models}
    for edge in edges:
        below[edge.target].add(edge.source)
    return {
        name: GradientFlow(module.trains_layers, module.trains_projector, trains_any(below, models, name))
        for name, module in models.items()
    }


def trains_any(below: Mapping[str, set[str]], models: Mapping[str, Module], name: str) -> bool:
    """Whether any module that this one reads, or that those read, is trained. Edges have no cycle."""
    return any(models[each].trained != "none" or trains_any(below, models, each) for each in below[name])
