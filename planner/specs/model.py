"""Models: modules with their shapes, and the edges between them."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

import msgspec

from planner.specs.base import Index, Name, Positive, Spec
from planner.specs.layers import Module

# Outputs replace tokens, or layers of cross attention read them; or the loss reads the log-probabilities that a frozen
# reference gives its targets, as in DPO (arXiv 2305.18290).
EdgeInput = Literal["tokens", "cross_attention", "log_probabilities"]


class ModelEdge(Spec):
    """An edge: the outputs of one module are inputs of another."""

    source: str = msgspec.field(name="from")
    target: str = msgspec.field(name="to")
    by: EdgeInput = "tokens"
    marks: Index = 0  # by cross attention: tokens of the target's text that stand for an item of the source


class ModelTask(Spec):
    """One of several tasks that a model learns at once, each from samples of its own: items of each of its modules.

    contrastive: features of a sample, the mean of its outputs, are told apart from those of all others of the task in a
    step, from each module to the other (CLIP, arXiv 2103.00020). own: the loss that its one module ends in.
    """

    modules: Annotated[tuple[Name, ...], msgspec.Meta(min_length=1, max_length=2)]
    loss: Literal["contrastive", "own"]
    weight: Positive = 1.0  # of its loss in the sum of all


class Model(Spec):
    """A model file, `planner.model/1`; shipped ones are in `profiles/models`."""

    FORMAT: ClassVar[str] = "planner.model/1"
    format: str
    name: str
    source: str  # where the shape is published
    modules: Annotated[dict[Name, Module], msgspec.Meta(min_length=1)]
    edges: tuple[ModelEdge, ...] = ()
    tasks: dict[Name, ModelTask] = {}  # of modules that several tasks may share; empty: one loss, of one module

    def __post_init__(self) -> None:
        fault = tasks_fault(self)
        if fault:
            raise ValueError(fault)
        for edge in self.edges:
            for end in (edge.source, edge.target):
                if end not in self.modules:
                    raise ValueError(f"the edge names `{end}`, which is no module | one of {', '.join(self.modules)}")
            fault = edge_fault(edge, self.modules[edge.source], self.modules[edge.target])
            if fault:
                raise ValueError(fault)
        for edge in self.edges:
            if [(each.source, each.target) for each in self.edges].count((edge.source, edge.target)) > 1:
                raise ValueError(f"two edges lead from `{edge.source}` to `{edge.target}` | keep one of them")
        read = {edge.target for edge in self.edges if edge.by == "cross_attention"}
        for name in (
            name for name, module in self.modules.items() if module.cross_attention_width and name not in read
        ):
            raise ValueError(f"cross attention of `{name}` reads nothing | add an edge to it, by: cross_attention")
        cycle = self.cycle()
        if cycle:
            raise ValueError(f"edges form a cycle: {' → '.join(cycle)} | remove one of them")

    @property
    def references(self) -> tuple[str, ...]:
        """The modules whose log-probabilities a loss reads."""
        return tuple(dict.fromkeys(edge.source for edge in self.edges if edge.by == "log_probabilities"))

    def targets(self, module: str) -> tuple[str, ...]:
        """Return the modules that read a module's outputs."""
        return tuple(dict.fromkeys(edge.target for edge in self.edges if edge.source == module))

    def cycle(self) -> list[str]:
        """Return a cycle of modules, of which each reads the one before; empty where edges have no cycle."""
        remaining = [*self.modules]
        while remaining:
            leaves = [name for name in remaining if not set(self.targets(name)) & set(remaining)]
            if not leaves:
                path = [remaining[0]]
                while path[-1] not in path[:-1]:
                    path.append(next(name for name in self.targets(path[-1]) if name in remaining))
                return path[path.index(path[-1]) :]
            remaining = [name for name in remaining if name not in leaves]
        return []


def task_fault(name: str, task: ModelTask, modules: Mapping[str, Module]) -> str:
    """Return why modules cannot have a task, as `what is wrong | what to do`; empty where they can."""
    for module in task.modules:
        if module not in modules:
            return f"task `{name}` names `{module}`, which is no module | one of {', '.join(modules)}"
    widths = {module: modules[module].feature_width for module in task.modules}
    if task.loss == "own" and (len(task.modules) > 1 or any(widths.values())):
        return f"task `{name}` has no loss of its own: {' and '.join(widths)} output features | loss: contrastive"
    deep = [module for module in task.modules if modules[module].feature_depths]
    if deep:
        return f"features of `{deep[0]}` of several depths are read by a decoder alone | leave out deep_layers"
    if task.loss == "contrastive" and (len(widths) < 2 or not all(widths.values()) or len({*widths.values()}) > 1):
        told = " and ".join(f"`{module}` has {width}" for module, width in widths.items())
        what = f"task `{name}` compares features of two modules of the same width, and {told}"
        return f"{what} | two modules with the same `out`"
    return ""


def tasks_fault(model: Model) -> str:
    """Return why a model cannot have its tasks, as `what is wrong | what to do`; empty where it can."""
    for name, task in model.tasks.items():
        fault = task_fault(name, task, model.modules)
        if fault:
            return fault
    if model.tasks and model.edges:
        edge = model.edges[0]
        what = f"modules of tasks read samples alone, and `{edge.target}` reads `{edge.source}`"
        return f"{what} | leave out edges, or tasks"
    without = [name for name in model.modules if not any(name in task.modules for task in model.tasks.values())]
    if model.tasks and without:
        return f"`{without[0]}` is in no task | add a task with it, or leave it out"
    return ""


def no_outputs(source: str, target: str) -> str:
    """Why nothing reads what a module with a loss makes."""
    why = "what is generated behind a loss, as in a rollout, has sizes that no plan knows before it has run"
    return f"`{source}` ends in a loss and has no outputs for `{target}` to read: {why}"


def trained_reference(name: str) -> str:
    """Why a reference cannot be trained."""
    return f"`{name}` is a reference, whose log-probabilities are constants of the loss, and it is trained"


def reference_fault(edge: ModelEdge, source: Module, target: Module) -> str:
    """Why a loss cannot read a reference's log-probabilities, as `what is wrong | what to do`; empty where it can."""
    words = {name: module.output_vocabulary for name, module in ((edge.source, source), (edge.target, target))}
    for name, vocabulary in words.items():
        if not vocabulary:
            return f"`{name}` has no words of whose log-probabilities a loss is made | by: tokens, or another module"
    if words[edge.source] != words[edge.target]:
        told = " and ".join(f"`{name}` has {count}" for name, count in words.items())
        return f"a loss compares log-probabilities of the same words, and {told} | a reference with the same vocabulary"
    return "log-probabilities are of all tokens | leave out marks" if edge.marks else ""


def edge_fault(edge: ModelEdge, source: Module, target: Module) -> str:
    """Return why a module cannot read another's outputs, as `what is wrong | what to do`; empty where it can."""
    if edge.by == "log_probabilities":
        return reference_fault(edge, source, target)
    if not source.feature_width:
        return (
            f"{no_outputs(edge.source, edge.target)} | let an encoder feed it, or by: log_probabilities of a reference"
        )
    if edge.marks and edge.by == "tokens":
        return (
            f"every output of `{edge.source}` is a token of `{edge.target}` | leave out marks, or by: cross_attention"
        )
    if source.feature_depths and edge.by != "tokens":
        return f"features of `{edge.source}` of several depths take the place of tokens | by: tokens"
    width = target.cross_attention_width if edge.by == "cross_attention" else target.hidden
    if edge.by == "tokens" and target.class_tokens:
        return (
            f"outputs of `{edge.source}` would take the place of `{edge.target}`'s class token | leave out class_token"
        )
    if not width:
        return f"`{edge.target}` has no cross attention | set its cross to {source.feature_width}, or by: tokens"
    if source.feature_width != width:
        fed = source.feature_width
        return f"outputs of `{edge.source}` are {fed} wide, `{edge.target}` reads {width} | make them agree"
    return ""
