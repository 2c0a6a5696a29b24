"""Models of several modules: what a record trains of each, and on which ranks its encoders are."""

import re
from dataclasses import dataclass
from typing import Any

from planner.plan.gradient_flow import gradient_flows
from planner.published.batch_sizes import sequence_length
from planner.published.measured_figures import trains_adapters_only
from planner.published.published_case import CaseEncoder
from planner.published.record_files import PublishedRecord, UnusableRecord
from planner.published.record_setup import settings_text
from planner.published.sample_items import NOT_STATED, items_by_encoder, stated_samples
from planner.specs.base import with_fields
from planner.specs.layers import Module
from planner.specs.layers.trained import Trained
from planner.specs.model import Model
from planner.specs.trained_parameters import has_projector

# Words that say what is frozen; an argument may say that it is not.
FREEZE, NOT = r"(?:freez|froz)\w*[-_ ](?:the[-_ ])?", r"(?![-_ \w]{0,24}\s*[=:]\s*(?:false|0|off|no))"
TOWER, PROJECTOR, LLM = (
    r"(?:vit|visual|vision|image|audio|encoder|tower)",
    r"(?:aligner|project|merger)",
    r"(?:llm|language)",
)
FROZEN = {
    name: re.compile(
        rf"{FREEZE}(?:vision[-_ ])?{words}{NOT}|{words}s?(?:[-_ ](?:tower|encoder|model|is|are))*[-_ ]frozen"
    )
    for name, words in (("tower", TOWER), ("projector", PROJECTOR), ("llm", LLM))
}
PROJECTOR_ALONE = re.compile(r"only (?:the )?project(?:or|ion)|project(?:or|ion) (?:only|alone)")
# Ranks that encoders have for themselves.
OWN, RANKS = r"(?:own |separate |dedicated |extra |more )?", r"(?:gpus?|ranks?)"
APART = (
    re.compile(rf"{TOWER}s? ?(?:on|:|=) ?(\d{{1,5}}) {OWN}{RANKS}"),
    re.compile(rf"(\d{{1,5}}) {OWN}{TOWER}[- ]{RANKS}"),
    re.compile(rf"{TOWER}[-_ ](?:world[-_ ]size|{RANKS}) ?[=:] ?(\d{{1,5}})"),
)
OVER_STAGES = re.compile(
    r"megatron\S* balanced|(?:balanced|all) (?:pipeline )?stages"
)  # encoders' layers and the LLM's


@dataclass(frozen=True, slots=True)
class TrainedModel:
    """A record's module with the loss, and what feeds it; `assumed`: columns that were filled with what is usual."""

    module: Module
    assumed: tuple[str, ...] = ()
    decoder_tokens: int | None = None  # decoder tokens of a sequence, where the record states the encoder's
    encoders: tuple[CaseEncoder, ...] = ()
    outputs_read: float = 0.0  # of encoders, for each sequence, by cross attention


def fed_model(record: PublishedRecord, model: Model, reads_images: bool) -> TrainedModel:
    """A record's model of several modules. `reads_images`: as its name or task says; without that, and without a word
    of a sample's images or sound, it is trained on text alone. Raises UnusableRecord.
    """
    (loss,) = (name for name in model.modules if not model.targets(name))
    modules, stated = trained_modules(record, model, loss), stated_samples(record)
    if not stated:
        if reads_images:
            raise UnusableRecord(NOT_STATED, "how many, and of how many pixels or tokens")
        return TrainedModel(modules[loss])
    items, flows = items_by_encoder(model, loss, stated), gradient_flows(modules, model.edges)
    place = encoder_place(record)
    tokens = sequence_length(record)
    encoders = [
        CaseEncoder(modules[name], length, count / tokens, flow=flows[name], **place)
        for name, each in items.items()
        for length, count in (each.equal_parts(),)
    ]
    outputs = {name: each.outputs(modules[name]) for name, each in items.items()}
    among, read = (
        sum(outputs.get(edge.source, 0.0) for edge in model.edges if edge.by == by)
        for by in ("tokens", "cross_attention")
    )
    if among > tokens:
        raise UnusableRecord("impossible figures", f"{among:.0f} tokens of images in a sequence of {tokens}")
    assumed = ("images of a sample",) if stated.has_images and stated.images is None else ()
    return TrainedModel(modules[loss], assumed, None, tuple(encoders), read)


def trained_modules(record: PublishedRecord, model: Model, loss: str) -> dict[str, Module]:
    """The modules with what is trained of each. Adapters are beside matrices of the LLM alone; a tower that is frozen
    leaves its projector to be trained.
    """
    text = settings_text(record)
    frozen = {name for name, words in FROZEN.items() if words.search(text)}
    if PROJECTOR_ALONE.search(text):
        frozen |= {"tower", "llm"}
    tower: Trained = "all"
    if trains_adapters_only(record) or {"tower", "projector"} <= frozen:
        tower = "none"
    elif "tower" in frozen:
        tower = "projector"
    found: dict[str, Module] = {}
    for name, module in model.modules.items():
        what: Trained = tower if has_projector(module) or tower != "projector" else "none"
        own: Trained = "none" if "llm" in frozen else "all"
        found[name] = with_fields(module, trained=own if name == loss else what)
    return found


def encoder_place(record: PublishedRecord) -> dict[str, Any]:
    """Where a record's encoders are: where it says nothing, on the first stage, as Megatron has them."""
    text = settings_text(record)
    ranks = next((int(found[1]) for words in APART if (found := words.search(text))), 0)
    if ranks:
        return {"place": "apart", "ranks": ranks}
    return {"place": "all_stages" if OVER_STAGES.search(text) else "first_stage"}


def of_own_ranks(record: PublishedRecord, encoders: tuple[CaseEncoder, ...]) -> PublishedRecord:
    """The record of the LLM's ranks, where encoders have some for themselves: rates of a rank are of all. Raises
    UnusableRecord.
    """
    apart, ranks = max((each.ranks for each in encoders), default=0), record.count("n_gpus")
    if not apart or ranks is None:
        return record
    if apart >= ranks:
        raise UnusableRecord("layout does not multiply up", f"{apart} of {ranks} GPUs for encoders")
    rate, cells = record.positive("tokens_per_s_per_gpu"), {"n_gpus": str(ranks - apart)}
    if rate:
        cells |= {"tokens_per_s_per_gpu": "", "tokens_per_s_total": f"{rate * ranks:.12g}"}
    return record.with_cells(cells)
