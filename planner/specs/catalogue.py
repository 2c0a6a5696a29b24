"""What is shipped: models with their exact sizes."""

from typing import NamedTuple

from planner.specs import library
from planner.specs.model import Model
from planner.specs.parameters import counts_text, model_parameters, parameters


class ModelRow(NamedTuple):
    """One module of one model; a model of several modules has a last row for all of them."""

    model: str
    module: str
    kind: str
    parameters: int
    counted: str
    source: str


def shipped_models() -> list[ModelRow]:
    """Every module of every shipped model, and the totals of those with several."""
    rows = []
    for name in library.names(Model):
        model, _ = library.read(name, Model)
        for module, spec in model.modules.items():
            count = parameters(spec).total
            rows.append(ModelRow(name, module, type(spec).__name__.lower(), count, counts_text(spec), model.source))
        if len(model.modules) > 1:
            together = " + ".join(model.modules)
            rows.append(ModelRow(name, "all", "", model_parameters(model), together, model.source))
    return rows
