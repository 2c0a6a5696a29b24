"""The table of shipped models with their exact parameter counts."""

from typing import NamedTuple

from planner.specs import library
from planner.specs.model import Model
from planner.specs.parameters import active_parameters, counts_text, model_parameters, parameter_counts


class ShippedModule(NamedTuple):
    """One line of the table: a module of a model, or the sum over a model of several modules."""

    model: str
    module: str
    kind: str
    parameters: int
    counted: str
    source: str
    active: int  # parameters that are used for a token


def shipped_models() -> list[ShippedModule]:
    """Return every module of every shipped model, and the totals of those with several."""
    listed = []
    for name in library.shipped_names(Model):
        model, _ = library.read_named(name, Model)
        for module, spec in model.modules.items():
            count, kind = parameter_counts(spec).total, str(type(spec).__struct_config__.tag)
            listed.append(
                ShippedModule(name, module, kind, count, counts_text(spec), model.source, active_parameters(spec))
            )
        if len(model.modules) > 1:
            module_names = " + ".join(model.modules)
            active = sum(active_parameters(spec) for spec in model.modules.values())
            listed.append(ShippedModule(name, "all", "", model_parameters(model), module_names, model.source, active))
    return listed
