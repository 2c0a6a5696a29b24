"""Weights of a Hugging Face checkpoint in the zoo, and back: the same numbers under other names."""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from planner import files, hf
from planner.errors import InputError
from planner.hf.names import stored_names
from planner.models.build import build, init_weights
from planner.models.held import copy_into, part_of, splits_of, whole_shape
from planner.models.safetensors import ONE, Checkpoint, write
from planner.specs.model import Decoder, Module

META = torch.device("meta")
UNUSED = ("rotary_emb.inv_freq",)  # that older checkpoints hold, and everybody computes


def first_weights(model: nn.Module, spec: Module, seed: int, folder: Path | None) -> None:
    """What training starts from: a checkpoint, where there is one and the module is a decoder, else what is drawn."""
    if folder is not None and isinstance(spec, Decoder):
        load_weights(model, spec, folder)
    else:
        init_weights(model, seed)


@torch.no_grad()
def load_weights(model: nn.Module, spec: Module, folder: Path) -> None:
    """Into whatever part of the decoder this rank holds: layers, shards, parts of matrices. Raises InputError.

    Values are cast to the parameters' dtype.
    """
    decoder = require_decoder(spec)
    checkpoint, splits = Checkpoint(folder), splits_of(model)
    for name, parameter in model.named_parameters():
        values = stacked(checkpoint, stored_names(name, decoder))
        shape = whole_shape(parameter.shape, splits.get(name, ()))
        if list(values.shape) != shape:
            what = f"`{stored_names(name, decoder)[0]}` makes {[*values.shape]}, the model has {shape}"
            raise InputError(what, where=str(folder), fix="give the weights of this very model")
        copy_into(parameter, part_of(values, splits.get(name, ())).to(parameter.device, parameter.dtype))


def require_weights(spec: Module, folder: Path) -> None:
    """The checkpoint has the parameters of the whole model, so shaped, and no others. Raises InputError."""
    decoder, checkpoint = require_decoder(spec), Checkpoint(folder)
    used: set[str] = set()
    for name, parameter in build(decoder, device=META).named_parameters():
        stored = stored_names(name, decoder)
        each = tuple(parameter.shape if len(stored) == 1 else parameter.shape[1:])
        for one in stored:
            if checkpoint.shape(one) != each:
                what = f"`{one}` is {[*checkpoint.shape(one)]}, the model has {[*each]}"
                raise InputError(what, where=str(folder), fix="give the weights of this very model")
        used.update(stored)
    twin = {"lm_head.weight"} if decoder.tied else set()  # which some checkpoints repeat
    more = sorted(name for name in checkpoint.entries.keys() - used - twin if not name.endswith(UNUSED))
    if more:
        what = f"the checkpoint has {len(more)} tensors that the model has not, such as `{more[0]}`"
        raise InputError(what, where=str(folder), fix="make the model from its own config.json: planner import hf")


def save_weights(weights: Mapping[str, Tensor], spec: Module, folder: Path) -> None:
    """Whole parameters, by the zoo's names, as config.json and model.safetensors. Raises InputError."""
    decoder = require_decoder(spec)
    stored: dict[str, Tensor] = {}
    for name, values in weights.items():
        names = stored_names(name, decoder)
        stored |= {names[0]: values} if len(names) == 1 else dict(zip(names, values, strict=True))
    files.write_text(folder / "config.json", files.json_text(hf.to_config(decoder)) + "\n")
    write(folder / ONE, stored)


def require_saveable(spec: Module) -> None:
    """Raises InputError where no checkpoint is written of such a module."""
    decoder = require_decoder(spec)
    hf.to_config(decoder)
    stored_names("norm.weight", decoder)


def require_decoder(spec: Module) -> Decoder:
    if not isinstance(spec, Decoder):
        what = "weights are read and written of decoders alone"
        raise InputError(what, where=type(spec).__name__.lower(), fix="leave the weights out")
    return spec


def stacked(checkpoint: Checkpoint, names: tuple[str, ...]) -> Tensor:
    """One tensor, or those of all experts one behind the other."""
    if len(names) == 1:
        return checkpoint.read(names[0])
    return torch.stack([checkpoint.read(name) for name in names])
