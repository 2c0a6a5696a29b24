"""What a model is made of: modules with their shapes, and the edges between them."""

from typing import Annotated, ClassVar

import msgspec

from planner.specs.base import Name, Spec
from planner.specs.layers import Module


class ModelEdge(Spec):
    """The output tokens of one module are inputs of another."""

    source: str = msgspec.field(name="from")
    target: str = msgspec.field(name="to")


class Model(Spec):
    """`profiles/models/*.yaml`: modules by name, and who feeds whom."""

    FORMAT: ClassVar[str] = "planner.model/1"
    format: str
    name: str
    source: str  # where the shape is published
    modules: Annotated[dict[Name, Module], msgspec.Meta(min_length=1)]
    edges: tuple[ModelEdge, ...] = ()

    def __post_init__(self) -> None:
        for edge in self.edges:
            for end in (edge.source, edge.target):
                if end not in self.modules:
                    raise ValueError(f"the edge names `{end}`, which is no module | one of {', '.join(self.modules)}")
