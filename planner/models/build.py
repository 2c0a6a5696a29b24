"""Builds the torch module of a spec, and its initial weights, by random streams that depend on their names alone."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from planner.errors import InputError
from planner.models.kernels.rotary_positions import rotary_dim
from planner.models.networks.audio_network import AudioNetwork
from planner.models.networks.decoder_network import DecoderNetwork
from planner.models.networks.network import Network
from planner.models.networks.text_network import TextEncoderNetwork
from planner.models.networks.vision_network import VitNetwork
from planner.models.sharding import (
    FULL_MODULE,
    EqualShard,
    ModuleShard,
    ParameterSplit,
    copy_to_parameter,
    expert_parameters,
    full_shape,
    parameter_splits,
    take_shard,
)
from planner.specs.layers import Audio, Decoder, Module, TextEncoder, Vit

CPU = torch.device("cpu")
PROJECTORS = ("projector.", "deep_projectors.")  # what names of their parameters begin with
STATE_SPACE_INITIALISERS: dict[str, Callable[[Tensor], Tensor]] = {  # of uniform numbers in [0, 1), by element
    "decay_log": lambda x: (1 + 15 * x).log(),  # of 1 to 16
    "step_bias": lambda x: (0.001 * 100**x).expm1().log(),  # whose softplus is 0.001 to 0.1, uniform in its logarithm
}
NETWORKS: dict[type, Callable[[Any, torch.dtype, ModuleShard], Network]] = {
    Decoder: DecoderNetwork,
    Vit: VitNetwork,
    Audio: AudioNetwork,
    TextEncoder: TextEncoderNetwork,
}


def build(
    spec: Module, *, dtype: torch.dtype = torch.float32, device: torch.device = CPU, shard: ModuleShard = FULL_MODULE
) -> Network:
    """The network of a spec, or the shard of it that a rank holds, with uninitialised weights (see `init_weights`). The
    device may be meta. Raises InputError for specs that cannot be run.
    """
    reason = unsupported(spec)
    if reason:
        raise InputError(reason, fix="plan and simulate it, or choose another model to run")
    if spec.has_whole_qk_norm and shard.tp.count > 1:
        message = f"norms of all heads' queries together are not computed over tp = {shard.tp.count} ranks"
        raise InputError(message, fix="tp: 1 for this module")
    with torch.device("meta"):  # elsewhere torch would initialise the weights, in vain
        network = NETWORKS[type(spec)](spec, dtype, shard)
    freeze(network, spec)
    return network if device.type == "meta" else network.to_empty(device=device)


def freeze(network: nn.Module, spec: Module) -> None:
    """Turn gradients off for all parameters that the module does not train."""
    for name, parameter in network.named_parameters():
        parameter.requires_grad_(spec.trained == "all" or (spec.trained == "projector" and name.startswith(PROJECTORS)))


def unsupported(spec: Module) -> str | None:
    """Why a module of this spec can be planned but not run, as `what is wrong | what to do`; None where it can."""
    if type(spec) not in NETWORKS:
        kind = type(spec).__struct_config__.tag
        return f"no network of a module of the kind `{kind}` is known | plan and simulate it, or run another model"
    reason = unbuilt_part(spec)
    if reason:
        return f"{reason} | plan and simulate it, or run another model"
    if spec.adapters:
        return "runs train no low-rank adapters | say all, none or projector under trained, or only simulate the plan"
    if spec.rotates and rotary_dim(spec) % 2:
        name = "rope_dim" if spec.latent_attention else "head_dim"
        odd = f"rotary positions turn pairs of numbers, and {name} {rotary_dim(spec)} is odd"
        return f"{odd} | an even one, by other heads; or only simulate the plan"
    return None


def unbuilt_part(spec: Module) -> str:
    """What a spec has that no block of the runtime computes yet, by name; empty: nothing."""
    if spec.token_indexer:
        return "the runtime has no sparse attention by an indexer"
    return "the runtime has no layers that predict more tokens ahead" if spec.predicted_tokens > 1 else ""


@torch.no_grad()
def init_weights(model: nn.Module, seed: int) -> None:
    """Initialise all parameters by their names, drawn in float32: matrices normal with variance 1 / width, norms and
    skips one, biases zero, attention sinks and class tokens standard normal, decays and steps of state spaces as in
    Mamba-2.

    Every rank that holds some of a parameter, or of one expert's, draws all of it and keeps its shard. So the weights
    depend on neither the sharding nor the dtype.
    """
    splits, experts = parameter_splits(model), expert_parameters(model)
    for name, parameter in model.named_parameters():
        draw = initial_expert_values if name in experts else initial_values
        values = draw(name, parameter.shape, splits.get(name, ()), seed, parameter.device)
        copy_to_parameter(parameter, values)


def initial_values(
    name: str, shape: Sequence[int], splits: Sequence[ParameterSplit], seed: int, device: torch.device
) -> Tensor:
    """The initial values of a shard, of shape `shape`, of a parameter."""
    full = full_shape(shape, splits)
    values = torch.empty(full, dtype=torch.float32, device=device)
    draw = STATE_SPACE_INITIALISERS.get(name.rpartition(".")[2])
    if draw is not None:
        values.copy_(draw(values.uniform_(generator=named_generator(device, seed, name))))
    elif name.endswith("bias"):
        values.fill_(0.0)
    elif len(full) == 1 and not name.endswith(("sinks", "class_token")):
        values.fill_(1.0)
    else:
        deviation = 1.0 if len(full) == 1 else full[-1] ** -0.5
        values.normal_(0.0, deviation, generator=named_generator(device, seed, name))
    return take_shard(values, splits)


def initial_expert_values(
    name: str, shape: Sequence[int], splits: Sequence[ParameterSplit], seed: int, device: torch.device
) -> Tensor:
    """The initial values of stacked experts, of shape `shape` = `(local experts, ...)`, drawn one expert at a time."""
    ep_shard = next((split.shard for split in splits if split.dim == 0), EqualShard())
    other_splits = [replace(split, dim=split.dim - 1) for split in splits if split.dim]
    numbers = range(*ep_shard.span(ep_shard.count * shape[0]))
    return torch.stack(
        [initial_values(f"{number}.{name}", shape[1:], other_splits, seed, device) for number in numbers]
    )


def named_generator(device: torch.device, *names: str | int) -> torch.Generator:
    """A random generator on the device whose stream is a function of the names."""
    digest = hashlib.sha256("/".join(map(str, names)).encode()).digest()
    return torch.Generator(device).manual_seed(int.from_bytes(digest[:4], "big"))  # the CPU generator uses only 32 bits
