"""Weights of a Hugging Face checkpoint in the zoo, and back: the same numbers under other names."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from planner import files, hf
from planner.errors import InputError
from planner.hf.names import kind_of, stored_names
from planner.models.build import build, init_weights
from planner.models.held import splits_of
from planner.models.named import fill, load_named
from planner.models.safetensors import ONE, Checkpoint, Described, write_in_turn
from planner.specs.layers import Module

CONFIG = "config.json"
META = torch.device("meta")
UNUSED = ("rotary_emb.inv_freq", "embeddings.position_ids")  # that older checkpoints hold, and everybody computes
TWINS = {"lm_head.weight", *(f"cls.predictions.decoder.{leaf}" for leaf in ("weight", "bias"))}  # that some repeat


@dataclass(frozen=True, slots=True)
class First:
    """What training starts from."""

    seed: int = 0  # of weights that are drawn
    weights: Path | None = None  # instead of them, where a module is a decoder: a checkpoint of Hugging Face
    named: Path | None = None  # instead of both: a file of all parameters under the zoo's own names


def first_weights(model: nn.Module, spec: Module, first: First) -> None:
    """Into whatever part of the module this rank holds. Raises InputError."""
    if first.named is not None:
        load_named(model, first.named)
    elif first.weights is not None and not spec.gives:
        load_weights(model, spec, first.weights)
    else:
        init_weights(model, first.seed)


def load_weights(model: nn.Module, spec: Module, folder: Path) -> None:
    """Into whatever part of the decoder this rank holds: layers, shards, parts of matrices. Raises InputError.

    Values are cast to the parameters' dtype.
    """
    checkpoint = Checkpoint(folder)

    def read(name: str) -> Tensor:
        return stacked(checkpoint, stored_names(name, spec))

    fill(dict(model.named_parameters()), splits_of(model), read, folder)


def require_weights(spec: Module, folder: Path) -> None:
    """The checkpoint has the parameters of the whole model, so shaped, and no others. Raises InputError."""
    kind_of(spec)  # of a kind that is stored
    checkpoint = Checkpoint(folder)
    used: set[str] = set()
    for name, parameter in build(spec, device=META).named_parameters():
        stored = stored_names(name, spec)
        each = tuple(parameter.shape if len(stored) == 1 else parameter.shape[1:])
        for one in stored:
            if checkpoint.shape(one) != each:
                what = f"`{one}` is {[*checkpoint.shape(one)]}, the model has {[*each]}"
                raise InputError(what, where=str(folder), fix="give the weights of this very model")
        used.update(stored)
    twins = TWINS if spec.ties else set[str]()
    more = sorted(name for name in checkpoint.entries.keys() - used - twins if not name.endswith(UNUSED))
    if more:
        what = f"the checkpoint has {len(more)} tensors that the model has not, such as `{more[0]}`"
        raise InputError(what, where=str(folder), fix="make the model from its own config.json: planner import hf")


def save_weights(weights: Mapping[str, Tensor], spec: Module, folder: Path) -> None:
    """Whole parameters, by the zoo's names, as config.json and model.safetensors. Raises InputError."""
    described = {name: Described(values.dtype, tuple(values.shape)) for name, values in weights.items()}
    save_in_turn(described, weights.items(), spec, folder)


def save_in_turn(
    described: Mapping[str, Described], weights: Iterable[tuple[str, Tensor]], spec: Module, folder: Path
) -> None:
    """The same of parameters that come one by one, in the order in which they are described."""
    stored: dict[str, Described] = {}
    for name, (dtype, shape) in described.items():
        names = stored_names(name, spec)
        stored |= dict.fromkeys(names, Described(dtype, shape if len(names) == 1 else shape[1:]))
    files.write_text(folder / CONFIG, files.json_text(hf.to_config(spec)) + "\n", lasting=True)
    write_in_turn(folder / ONE, stored, (each for name, values in weights for each in apart(name, values, spec)))


def apart(name: str, values: Tensor, spec: Module) -> Iterator[Tensor]:
    """One tensor, or that of each expert."""
    if len(stored_names(name, spec)) == 1:
        yield values
    else:
        yield from values


def require_saveable(spec: Module) -> None:
    """Raises InputError where no checkpoint is written of such a module."""
    hf.to_config(spec)
    kind_of(spec)


def saveable(spec: Module) -> bool:
    try:
        require_saveable(spec)
    except InputError:
        return False
    return True


def stacked(checkpoint: Checkpoint, names: tuple[str, ...]) -> Tensor:
    """One tensor, or those of all experts one behind the other."""
    if len(names) == 1:
        return checkpoint.read(names[0])
    return torch.stack([checkpoint.read(name) for name in names])
