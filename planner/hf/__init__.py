"""Models of Hugging Face: a config.json as a spec, and back. Nothing is fetched, and transformers is not needed."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from planner.hf import config as configs
from planner.hf import decoders, encoders, hybrids, joined, mixtures, texts
from planner.hf.config import Config, Note
from planner.hf.written import to_config
from planner.specs.layers import Module
from planner.specs.model import Model, ModelEdge
from planner.specs.parameters import model_parameters

__all__ = ["FAMILIES", "Imported", "Note", "read", "to_config"]

Family = Callable[[Config], joined.Modules]


def alone(name: str, read: Callable[[Config], Module]) -> Family:
    """A family of models of one module, which is called so."""
    return lambda config: {name: read(config)}


FAMILIES: dict[str, Family] = {  # by values of `model_type`
    "bamba": alone("llm", hybrids.bamba),
    "deepseek_v2": alone("llm", mixtures.deepseek_v2),
    "deepseek_v3": alone("llm", mixtures.deepseek_v3),
    "gpt2": alone("llm", decoders.gpt2),
    "gpt_oss": alone("llm", mixtures.gpt_oss),
    "kimi_k2": alone("llm", mixtures.deepseek_v3),
    "llama": alone("llm", decoders.llama),
    "mistral": alone("llm", decoders.mistral),
    "mixtral": alone("llm", mixtures.mixtral),
    "nemotron_h": alone("llm", hybrids.nemotron_h),
    "qwen2": alone("llm", decoders.qwen2),
    "qwen2_moe": alone("llm", mixtures.qwen2_moe),
    "qwen3": alone("llm", decoders.qwen3),
    "qwen3_moe": alone("llm", mixtures.qwen3_moe),
    "bert": alone("encoder", texts.bert),
    "clip_vision_model": alone("vision", encoders.clip),
    "siglip_vision_model": alone("vision", encoders.siglip),
    "whisper": alone("audio", encoders.whisper),
    "llava": joined.llava,
    "qwen2_5_vl": joined.qwen2_5_vl,
    "qwen2_audio": joined.qwen2_audio,
    "qwen2_vl": joined.qwen2_vl,
    "t5": texts.t5,
}


class Imported(NamedTuple):
    """A spec, and how it differs from its source."""

    model: Model
    notes: tuple[Note, ...]

    @property
    def source_parameters(self) -> int:
        """Of the source, by what the spec counts and what differs."""
        return model_parameters(self.model) + sum(note.parameters for note in self.notes)


def read(path: Path) -> Imported:
    """The model that a config.json, or a folder with one, describes.

    Raises InputError naming the key that says what no spec can.
    """
    config = configs.read(path)
    modules = modules_of(config)
    config.close()
    known = identity(config, path)
    edges = tuple(edge(name, modules["llm"]) for name in modules if name != "llm" and "llm" in modules)
    left = ", ".join(note.what.partition(" {")[0] for note in config.notes if note.kind == "left out")
    source = f"config.json of {known}" + (f"; left out: {left}" if left else "")
    name = re.sub(r"[^a-z0-9_.+-]+", "-", known.rpartition("/")[2].lower()) or "model"
    model = Model(format=Model.FORMAT, name=name, source=source, modules=modules, edges=edges)
    return Imported(model, tuple(config.notes))


def edge(source: str, llm: Module) -> ModelEdge:
    return ModelEdge(source=source, target="llm", by="cross_attention" if llm.crossing else "tokens")


def modules_of(config: Config) -> joined.Modules:
    """By the name of the family."""
    family = config.word("model_type")
    if family in FAMILIES:
        return FAMILIES[family](config)
    raise config.refused("model_type", f"no reader for models of the kind `{family}`", f"one of {', '.join(FAMILIES)}")


def identity(config: Config, path: Path) -> str:
    """What the model is called: in its file, unless that is a path, or by the folder's or the file's name."""
    said = config.values.get("_name_or_path")
    if isinstance(said, str) and re.fullmatch(r"[\w.+-]+(/[\w.+-]+)?", said):
        return said
    file = Path(config.name).absolute()
    name = file.parent.name if file.name == "config.json" else file.stem
    return "".join(letter if letter.isprintable() else "-" for letter in name)
