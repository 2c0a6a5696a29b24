"""What a job trains of each module of its model."""

from collections.abc import Mapping
from pathlib import Path

from planner import files
from planner.errors import InputError
from planner.specs.base import Name, with_fields
from planner.specs.layers import Module
from planner.specs.layers.trained import Trained
from planner.specs.model import Model, trained_reference
from planner.specs.trained_parameters import trained_parameters


def with_trained(model: Model, trained: Mapping[Name, Trained], path: Path) -> Model:
    """Return the model with what a job trains of its modules. `path`: the job's file. Raises InputError."""
    modules = dict(model.modules)
    for name, what in trained.items():
        message, fix = trained_fault(model, name, what)
        if message:
            raise InputError(message, where=files.place(path, "trained", name), fix=fix)
        modules[name] = with_fields(modules[name], trained=what)
        if what != "none" and not trained_parameters(modules[name]):
            fix = "name other parts, or say none"
            raise InputError(f"no matrix of `{name}` has adapters", where=files.place(path, "trained", name), fix=fix)
    if all(module.trained == "none" for module in modules.values()):
        fix = "leave one of its modules out, or say projector"
        raise InputError("no module is trained", where=files.place(path, "trained"), fix=fix)
    for name in (name for name in model.references if modules[name].trained != "none"):
        where, fix = files.place(path, "trained"), f"trained: {{{name}: none}}"
        raise InputError(trained_reference(name), where=where, fix=fix)
    return with_fields(model, modules=modules)


def trained_fault(model: Model, name: str, what: Trained) -> tuple[str, str]:
    """Return why this cannot be trained of a module, and the fix; empty where it can."""
    if name not in model.modules:
        return f"{model.name} has no module `{name}`", f"name one of {', '.join(model.modules)}"
    if what == "projector" and not has_projector(model.modules[name]):
        having = [each for each, module in model.modules.items() if has_projector(module)]
        return (
            f"`{name}` has no projector",
            f"train that of {' or '.join(having)}" if having else "say all, none or lora",
        )
    if what == "projector" and not model.targets(name):
        return f"`{name}` feeds no module that its projector is for", "say all, none or lora"
    return "", ""


def has_projector(module: Module) -> bool:
    """Return whether a module has weights called its projector."""
    return any(end.role == "projector" for end in module.embedding_head)
