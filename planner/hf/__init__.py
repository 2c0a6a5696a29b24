"""Hugging Face config.json files as models of planner, and back; nothing is downloaded."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from planner.hf import encoders, multimodal
from planner.hf.decoders import Family, read_module
from planner.hf.encoders import ENCODERS
from planner.hf.families import DECODERS
from planner.hf.hf_config import HfConfig, Note, read_config
from planner.hf.prediction_layers import with_prediction_layers
from planner.hf.same_function import function_differences, uncomputed_keys
from planner.hf.weight_names import is_unread, layer_prefix, name_within, stored_less, stored_names, weight_family
from planner.hf.write_config import FUSED_KINDS, to_config, to_config_like
from planner.specs.base import with_fields
from planner.specs.layers import Module
from planner.specs.model import Model, ModelEdge
from planner.specs.parameters import model_parameters


def decoder(family: Family) -> multimodal.Whole:
    """A family of decoders alone."""
    return lambda config: {"llm": read_module(config, family)}


def encoder(name: str, family: Family) -> multimodal.Whole:
    """A family of encoders alone."""
    return lambda config: {name: encoders.alone(config, family)}


FAMILIES: dict[str, multimodal.Whole] = {  # by `model_type`
    **{name: decoder(family) for name, family in DECODERS.items()},
    **multimodal.MULTIMODAL,
    "clip_vision_model": encoder("vision", ENCODERS["clip_vision_model"]),
    "siglip_vision_model": encoder("vision", ENCODERS["siglip_vision_model"]),
    "whisper": encoder("audio", ENCODERS["whisper"]),
    "bert": lambda config: {"encoder": read_module(config, encoders.BERT)},
    "t5": encoders.t5,
}


class ImportedModel(NamedTuple):
    """An imported model, and its differences from the source."""

    model: Model
    notes: tuple[Note, ...]
    config: Mapping[str, Any]  # what was read

    @property
    def source_parameters(self) -> int:
        """Parameters of the source: those of the spec, corrected by the notes."""
        return model_parameters(self.model) + sum(note.parameters for note in self.notes)


def read(path: Path, mtp: bool = False) -> ImportedModel:
    """The model that a config.json, or a folder with one, describes. `mtp`: with its layers that predict ahead.

    Raises InputError naming the key whose value no spec can express.
    """
    config = read_config(path)
    modules, notes = read_modules(config), config.notes
    config.note_unread_keys()
    if mtp:
        modules, notes = with_prediction_layers(modules, notes, config.values, config.name)
    found = as_model(config, path, modules, tuple(notes))
    return found._replace(model=with_fields(found.model, name=f"{found.model.name}-mtp")) if mtp else found


def as_model(config: HfConfig, path: Path, modules: multimodal.Modules, notes: tuple[Note, ...]) -> ImportedModel:
    """The model of these modules, named after the file's."""
    origin = model_identity(config, path)
    edges = tuple(encoder_edge(name, modules["llm"]) for name in modules if name != "llm" and "llm" in modules)
    left_out = ", ".join(note.what.partition(" {")[0] for note in notes if note.kind == "left out")
    source = f"config.json of {origin}" + (f"; left out: {left_out}" if left_out else "")
    name = re.sub(r"[^a-z0-9_.+-]+", "-", origin.rpartition("/")[2].lower()) or "model"
    named = {"format": Model.FORMAT, "name": name, "source": source}
    model = config.made(Model, "model_type", **named, modules=modules, edges=edges)
    return ImportedModel(model, notes, config.values)


def encoder_edge(source: str, llm: Module) -> ModelEdge:
    """The edge from an encoder to the decoder that reads its tokens, or attends to them: images at a word each."""
    if not llm.cross_attention_width:
        return ModelEdge(source=source, target="llm")
    return ModelEdge(source=source, target="llm", by="cross_attention", marks=1 if source == "vision" else 0)


def read_modules(config: HfConfig) -> multimodal.Modules:
    """The modules of a config, read as its `model_type` says. Raises InputError where the family is not known."""
    family = config.text("model_type")
    if family in FAMILIES:
        return FAMILIES[family](config)
    built = "planner import hf --build (or ask --hf … --build), where transformers has its class"
    message = f"no reader for models of the kind `{family}`"
    raise config.key_error("model_type", message, f"{built}; read are {', '.join(sorted(FAMILIES))}")


def model_identity(config: HfConfig, path: Path) -> str:
    """The model's name: the one in its file, unless that is a path, or else its folder's or file's name."""
    stated = config.values.get("_name_or_path")
    if isinstance(stated, str) and re.fullmatch(r"[\w.+-]+(/[\w.+-]+)?", stated):
        return stated
    file = Path(config.name).absolute()
    name = file.parent.name if file.name == "config.json" else file.stem
    return "".join(letter if letter.isprintable() else "-" for letter in name)


__all__ = [
    "FAMILIES",
    "FUSED_KINDS",
    "HfConfig",
    "ImportedModel",
    "Note",
    "as_model",
    "function_differences",
    "is_unread",
    "layer_prefix",
    "name_within",
    "read",
    "read_config",
    "stored_less",
    "stored_names",
    "to_config",
    "to_config_like",
    "uncomputed_keys",
    "weight_family",
]
