"""Items of a reference: a frozen module reads the same samples as the module whose loss reads its log-probabilities."""

from dataclasses import replace

from planner.errors import InputError
from planner.specs.base import with_fields
from planner.specs.model import Model
from planner.specs.workload.samples import SampleBatch


def without_references(model: Model) -> Model:
    """Return the model without its references and their edges: what samples have items of."""
    gone = {*model.references}
    if not gone:
        return model
    modules = {name: module for name, module in model.modules.items() if name not in gone}
    edges = tuple(edge for edge in model.edges if not {edge.source, edge.target} & gone)
    return with_fields(model, modules=modules, edges=edges)


def require_read_by_samples(model: Model, samples: str, where: str) -> None:
    """Raises InputError where the loss of another module than that of the samples reads log-probabilities."""
    for edge in model.edges:
        if edge.by == "log_probabilities" and edge.target != samples:
            message = f"`{edge.source}` reads the samples, which are items of `{samples}`, and feeds `{edge.target}`"
            raise InputError(message, where=where, fix=f"edges: [{{from: {edge.source}, to: {samples}}}]")


def with_reference_items(batch: SampleBatch, model: Model, samples: str) -> SampleBatch:
    """Return the batch in which each reference has the samples as items, and reads what encoders feed them."""
    streams, feeds = dict(batch.streams), {name: dict(read) for name, read in batch.feeds.items()}
    for name in model.references:
        streams = {name: dict(batch.items), **streams}
        feeds = {name: {samples: {item: (item,) for item in batch.items}}, **feeds}
        for edge in model.edges:
            if edge.target == name and edge.source in feeds:
                feeds[edge.source][name] = feeds[edge.source][samples]
    return replace(batch, streams=streams, feeds=feeds)
