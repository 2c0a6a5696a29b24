"""What a parameter of the zoo is called in a checkpoint of Hugging Face."""

import re
from collections.abc import Callable
from typing import Any

from planner.errors import InputError
from planner.hf.written import family
from planner.specs.layers import Decoder, Module

ENDS = {"embedding": "model.embed_tokens", "norm": "model.norm", "head": "lm_head"}
IN_LAYER = {
    "attention_norm": "input_layernorm",
    "attention.query": "self_attn.q_proj",
    "attention.key": "self_attn.k_proj",
    "attention.value": "self_attn.v_proj",
    "attention.output": "self_attn.o_proj",
    "attention.query_norm": "self_attn.q_norm",
    "attention.key_norm": "self_attn.k_norm",
    "mlp_norm": "post_attention_layernorm",
    "mlp.gate": "mlp.gate_proj",
    "mlp.up": "mlp.up_proj",
    "mlp.down": "mlp.down_proj",
}
ROUTER = {"mixtral": "block_sparse_moe.gate", "qwen3_moe": "mlp.gate"}
EXPERT = {  # which there are so many of: the zoo has them in one parameter
    "mixtral": ("block_sparse_moe.experts", {"gate": "w1", "up": "w3", "down": "w2"}),
    "qwen3_moe": ("mlp.experts", {"gate": "gate_proj", "up": "up_proj", "down": "down_proj"}),
}
KINDS: dict[type, Callable[[Any], str | None]] = {Decoder: family}
LIKE_LLAMA = ("llama", "mistral", "qwen2", "qwen3", *ROUTER)


def kind_of(spec: Module) -> str:
    """The family in whose names a module's weights are read and written. Raises InputError where none is known."""
    named = KINDS.get(type(spec))
    kind = named(spec) if named else None
    if kind not in LIKE_LLAMA:
        fix = f"a decoder as one of {', '.join(LIKE_LLAMA)}, or leave the weights out"
        where = type(spec).__name__.lower()
        raise InputError("no names are known for the weights of such a module", where=where, fix=fix)
    return kind


def stored_names(name: str, spec: Module) -> tuple[str, ...]:
    """One name; of a parameter that holds all experts, that of each expert's, in their order. Raises InputError."""
    kind = kind_of(spec)
    layer = re.fullmatch(r"layers\.(\d+)\.(.+)", name)
    if not layer:
        part, _, leaf = name.rpartition(".")
        return (f"{ENDS[part]}.{leaf}",)
    prefix, rest = f"model.layers.{layer[1]}", layer[2]
    experts = re.fullmatch(r"\w+\.experts\.(gate|up|down)", rest)
    if experts and spec.routed:
        folder, leaves = EXPERT[kind]
        return tuple(f"{prefix}.{folder}.{expert}.{leaves[experts[1]]}.weight" for expert in range(spec.routed.experts))
    part, _, leaf = rest.rpartition(".")
    if part.endswith(".router"):
        return (f"{prefix}.{ROUTER[kind]}.{leaf}",)
    return (f"{prefix}.{IN_LAYER[part]}.{leaf}",)
