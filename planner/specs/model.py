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
        circle = self.circle()
        if circle:
            raise ValueError(f"edges lead in a circle: {' → '.join(circle)} | remove one of them")

    def targets(self, module: str) -> tuple[str, ...]:
        """The modules that read its outputs."""
        return tuple(dict.fromkeys(edge.target for edge in self.edges if edge.source == module))

    def circle(self) -> list[str]:
        """Modules of which each reads the one before, and the first the last; none where edges lead to an end."""
        left = [*self.modules]
        while left:
            ends = [name for name in left if not set(self.targets(name)) & set(left)]
            if not ends:
                path = [left[0]]
                while path[-1] not in path[:-1]:
                    path.append(next(name for name in self.targets(path[-1]) if name in left))
                return path[path.index(path[-1]) :]
            left = [name for name in left if name not in ends]
        return []


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
