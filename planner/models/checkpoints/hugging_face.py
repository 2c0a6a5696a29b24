"""Reads weights of a Hugging Face checkpoint into these models, and writes them: the same numbers under other names."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from planner import files, hf
from planner.errors import InputError
from planner.hf import is_unread, layer_prefix, name_within, stored_less, stored_names, weight_family
from planner.models.build import build, init_weights
from planner.models.checkpoints.native import fill_from_full, load_native
from planner.models.checkpoints.safetensors_files import (
    SINGLE_FILE,
    SafetensorsCheckpoint,
    TensorDescription,
    TensorEntry,
    write_tensors_streamed,
)
from planner.models.checkpoints.stored_shards import StoredShards
from planner.models.sharding import parameter_splits
from planner.specs.base import value_text
from planner.specs.layers import Module

CONFIG = "config.json"
DTYPE_KEYS = {"dtype", "torch_dtype"}  # of its weights; the second before transformers 5
META = torch.device("meta")
COMPUTED_BUFFERS = (
    "rotary_emb.inv_freq",
    "embeddings.position_ids",
)  # which older checkpoints contain, although they are computed
FUSED = {  # endings of stored tensors of several matrices: their names, and that of the output projection behind them
    "qkv_proj": (("q_proj", "k_proj", "v_proj"), "o_proj"),
    "qkv": (("q", "k", "v"), "proj"),
    "gate_up_proj": (("gate_proj", "up_proj"), ""),
}
TIED_COPIES = {
    "lm_head.weight",
    *(f"cls.predictions.decoder.{leaf}" for leaf in ("weight", "bias")),
}  # which some checkpoints repeat although they are tied


@dataclass(frozen=True, slots=True)
class InitialWeights:
    """The initial weights of training."""

    seed: int = 0  # of random weights
    checkpoint: Path | None = None  # a Hugging Face checkpoint, for decoders, and encoders where it has them
    stored: StoredShards | None = None  # all parameters under the names of these models; they take precedence


def set_initial_weights(model: nn.Module, spec: Module, first: InitialWeights) -> None:
    """Set the initial weights of the shard of a module that this rank holds. Raises InputError."""
    if first.stored is not None:
        load_native(model, first.stored)
    elif first.checkpoint is not None and is_stored(spec, hugging_face_checkpoint(first.checkpoint)):
        load_checkpoint(model, spec, first.checkpoint)
    else:
        init_weights(model, first.seed)


def hugging_face_checkpoint(folder: Path) -> SafetensorsCheckpoint:
    """The tensors of a model, those of a multimodal one by the names of its modules. Raises InputError."""
    checkpoint = SafetensorsCheckpoint(folder)
    entries = {name_within(name): entry for name, entry in checkpoint.entries.items()}
    checkpoint.entries = {part: each for name in entries for part, each in unfused(name, entries).items()}
    return checkpoint


def unfused(name: str, entries: Mapping[str, TensorEntry]) -> dict[str, TensorEntry]:
    """A stored tensor under its name; one of several matrices as its rows, which are consecutive in the file: queries,
    as many as the output projection has inputs, and equal numbers of keys and values; gates and up projections.
    """
    found = re.fullmatch(r"(.*\.)(" + "|".join(FUSED) + r")\.(weight|bias)", name)
    entry = entries[name]
    if not found or not entry.shape:
        return {name: entry}
    prefix, fused, leaf = found.groups()
    parts, output = FUSED[fused]
    height, outer = entry.shape[0], entries.get(f"{prefix}{output}.weight")
    first = outer.shape[1] if outer is not None and len(outer.shape) == 2 else height // len(parts)
    rest, width = (height - first) // (len(parts) - 1), (entry.end - entry.begin) // max(1, height)
    begin, split = entry.begin, {}
    for part, count in zip(parts, (first, *[rest] * (len(parts) - 1)), strict=True):
        shape, end = (count, *entry.shape[1:]), begin + count * width
        split[f"{prefix}{part}.{leaf}"] = replace(entry, shape=shape, begin=begin, end=end)
        begin = end
    return split if begin == entry.end and rest >= 0 else {name: entry}


def is_stored(spec: Module, checkpoint: SafetensorsCheckpoint) -> bool:
    """Whether a module is to be loaded: a decoder always, an encoder where the checkpoint has one of its family."""
    if not spec.feature_width:
        return True
    try:
        prefix = layer_prefix(spec)
    except InputError:
        return False
    return any(name.startswith(prefix) for name in checkpoint.entries)


def load_checkpoint(model: nn.Module, spec: Module, folder: Path) -> None:
    """Load a Hugging Face checkpoint into a rank's shard of a module, in the parameters' dtype. Raises InputError."""
    checkpoint, parameters = hugging_face_checkpoint(folder), dict(model.named_parameters())

    def read(name: str) -> Tensor:
        values, less = read_stacked(checkpoint, stored_names(name, spec)), stored_less(name, spec)
        return as_matrix(values.to(wide(values.dtype)) + less if less else values, parameters[name].dim())

    fill_from_full(parameters, parameter_splits(model), read, folder)


def as_matrix(values: Tensor, dims: int) -> Tensor:
    """A stored tensor with `dims` dimensions: a convolution's kernel (out, in, ...) is a matrix (out, inputs) here."""
    return values.flatten(dims - 1) if values.dim() > dims else values


def wide(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which numbers are added: float32 or better."""
    return torch.promote_types(dtype, torch.float32)


def require_checkpoint(specs: Sequence[Module], folder: Path) -> None:
    """Raises InputError unless the checkpoint has exactly the model's parameters; encoders may be missing."""
    checkpoint = hugging_face_checkpoint(folder)
    stored = [spec for spec in specs if is_stored(spec, checkpoint)]
    used = {name for spec in stored for name in required_names(spec, checkpoint, folder)}
    twins = TIED_COPIES if any(spec.ties_head for spec in stored) else set[str]()
    others = sorted(name for name in checkpoint.entries.keys() - used - twins if not name.endswith(COMPUTED_BUFFERS))
    unknown = [name for name in others if not any(is_unread(name, spec) for spec in stored)]
    if unknown:
        what = f"the checkpoint has {len(unknown)} tensors that the model has not, such as `{unknown[0]}`"
        raise InputError(what, where=str(folder), fix="make the model from its own config.json: planner import hf")


def require_same_function(specs: Mapping[str, Module], folder: Path, allowed: frozenset[str]) -> None:
    """Raises InputError where modules compute something else with the weights of a folder than its config.json says:
    another base of positions, eps, window. `allowed`: fields, or keys of the file, that may differ.
    """
    if not (folder / CONFIG).is_file():
        if CONFIG not in allowed:
            what = f"there is no {CONFIG}, so nothing says which function these weights are of"
            raise InputError(what, where=str(folder), fix=f"fetch it too, or --allow-different {CONFIG}")
        return
    imported, checkpoint = hf.read(folder), hugging_face_checkpoint(folder)
    found = [(key, f"{text}, which is not computed") for key, text in hf.uncomputed_keys(imported.notes)]
    for name, spec in specs.items():
        for theirs in imported.model.modules.values():
            if type(theirs) is type(spec) and is_stored(spec, checkpoint):
                found += [
                    (field, f"{field} {value_text(other)}, and `{name}` of the plan has {value_text(one)}")
                    for field, one, other in hf.function_differences(spec, theirs)
                ]
    refused = {key: text for key, text in found if allowed.isdisjoint({key, key.partition(".")[0]})}
    if refused:
        raise InputError(
            f"the plan's model is not that of these weights: {CONFIG} says {'; '.join(refused.values())}",
            where=str(folder / CONFIG),
            fix="plan with the model that planner import hf makes of it, or insist: "
            + " ".join(f"--allow-different {key}" for key in refused),
        )


def required_names(spec: Module, checkpoint: SafetensorsCheckpoint, folder: Path) -> Iterator[str]:
    """Yield the names under which a module's parameters are stored. Raises InputError where one has another shape, or
    is missing, or the kind of module is not stored.
    """
    weight_family(spec)
    for name, parameter in build(spec, device=META).named_parameters():
        stored = stored_names(name, spec)
        each = tuple(parameter.shape if len(stored) == 1 else parameter.shape[1:])
        for stored_name in stored:
            shape = checkpoint.shape(stored_name)
            kernel = len(shape) > len(each) and (*shape[: len(each) - 1], prod(shape[len(each) - 1 :])) == each
            if shape != each and not kernel:
                what = f"`{stored_name}` is {[*shape]}, the model has {[*each]}"
                raise InputError(what, where=str(folder), fix="give the weights of this very model")
            yield stored_name


def config_of(spec: Module, source: Path | None) -> Mapping[str, Any]:
    """The config.json of a module; `source`: a folder whose config.json it began with, which is kept where it still
    says what the module computes, and else its names, tokens and positions.
    """
    if source is None or not (source / CONFIG).is_file():
        return hf.to_config(spec)
    imported = hf.read(source)
    modules = [*imported.model.modules.values()]
    same = len(modules) == 1 and type(modules[0]) is type(spec) and not any(hf.function_differences(spec, modules[0]))
    same = same and imported.config["model_type"] not in hf.FUSED_KINDS
    return imported.config if same else hf.to_config_like(spec, imported.config)


def save_checkpoint_streamed(
    described: Mapping[str, TensorDescription],
    weights: Iterable[tuple[str, Tensor]],
    spec: Module,
    folder: Path,
    source: Path | None = None,
) -> None:
    """Write full parameters that arrive one by one, with the shapes and in the order in which they are described.

    The files are config.json, which is that of the folder `source` where it may be, and model.safetensors. Raises
    InputError.
    """
    stored: dict[str, TensorDescription] = {}
    for name, (dtype, shape) in described.items():
        names = stored_names(name, spec)
        stored |= dict.fromkeys(names, TensorDescription(dtype, shape if len(names) == 1 else shape[1:]))
    config = dict(config_of(spec, source))
    (dtype, _), *_ = described.values()
    config |= dict.fromkeys(DTYPE_KEYS & config.keys(), str(dtype).removeprefix("torch."))
    files.write_text(folder / CONFIG, files.json_text(config) + "\n", durable=True)
    write_tensors_streamed(
        folder / SINGLE_FILE, stored, (each for name, values in weights for each in stored_tensors(name, values, spec))
    )


def stored_tensors(name: str, values: Tensor, spec: Module) -> Iterator[Tensor]:
    """The stored tensors of one parameter: itself, or that of each expert, `(experts, ...)` to `(...)`."""
    if len(stored_names(name, spec)) == 1:
        less = stored_less(name, spec)
        yield (values.to(wide(values.dtype)) - less).to(values.dtype) if less else values
    else:
        yield from values


def saveable(spec: Module) -> bool:
    """Whether a Hugging Face checkpoint can be written of this module."""
    try:
        hf.to_config(spec)
        weight_family(spec)
    except InputError:
        return False
    return True


def read_stacked(checkpoint: SafetensorsCheckpoint, names: tuple[str, ...]) -> Tensor:
    """One stored tensor, or those of all experts stacked to `(experts, ...)`."""
    if len(names) == 1:
        return checkpoint.read(names[0])
    return torch.stack([checkpoint.read(name) for name in names])
