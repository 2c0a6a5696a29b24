"""What a model is made of: modules with their shapes, and the edges between them."""

from typing import Annotated, ClassVar, Literal

import msgspec

from planner.specs.base import Name, Spec
from planner.specs.layers import Module

By = Literal["tokens", "cross_attention"]  # outputs stand in place of tokens, or every layer attends to them


class ModelEdge(Spec):
    """The outputs of one module are inputs of another."""

    source: str = msgspec.field(name="from")
    target: str = msgspec.field(name="to")
    by: By = "tokens"


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
            wrong = misread(edge, self.modules[edge.source], self.modules[edge.target])
            if wrong:
                raise ValueError(wrong)
        read = {edge.target for edge in self.edges if edge.by == "cross_attention"}
        for name in (name for name, module in self.modules.items() if module.crossing and name not in read):
            raise ValueError(f"cross attention of `{name}` reads nothing | add an edge to it, by: cross_attention")


def misread(edge: ModelEdge, source: Module, target: Module) -> str:
    """Why a module cannot read another's outputs so, as `what is wrong | what to do`; empty where it can."""
    if not source.gives:
        return f"`{edge.source}` gives a loss, and nothing for `{edge.target}` to read | let an encoder feed it"
    width = target.crossing if edge.by == "cross_attention" else target.hidden
    if not width:
        return f"`{edge.target}` has no cross attention | say cross: {source.gives} there, or by: tokens"
    if source.gives != width:
        return f"outputs of `{edge.source}` are {source.gives} wide, `{edge.target}` reads {width} | make them agree"
    return ""
