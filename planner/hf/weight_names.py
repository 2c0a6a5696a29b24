"""Names of the model zoo's parameters in a Hugging Face checkpoint."""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from planner.errors import InputError
from planner.hf.write_config import decoder_family
from planner.specs.layers import Decoder, Module, TextEncoder

ATTENTION_NAMES = {
    "query": "q_proj",
    "key": "k_proj",
    "value": "v_proj",
    "output": "o_proj",
    "query_norm": "q_norm",
    "key_norm": "k_norm",
}
MLP_NAMES = {"gate": "gate_proj", "up": "up_proj", "down": "down_proj"}
STATE_SPACE_NAMES = {
    "into": "in_proj",
    "convolution": "conv1d",
    "decay_log": "A_log",
    "skip": "D",
    "step_bias": "dt_bias",
    "norm": "norm",
    "out": "out_proj",
}


class WeightNames(NamedTuple):
    """Parameter names of one family: of blocks in a layer, and of parts in a block."""

    blocks: dict[str, str]  # blocks of a layer, by the zoo's names
    ends: dict[str, str]
    layers: str = "model.layers"
    router: dict[str, str] = {}
    experts: str = ""  # prefix of the experts, which the zoo has in one parameter
    expert: dict[str, str] = MLP_NAMES
    parts: dict[str, dict[str, str]] = {}  # of a block, where they differ from PART_NAMES


LLAMA = WeightNames(
    blocks={
        "attention_norm": "input_layernorm",
        "attention": "self_attn",
        "mlp_norm": "post_attention_layernorm",
        "mlp": "mlp",
    },
    ends={"embedding": "model.embed_tokens", "norm": "model.norm", "head": "lm_head"},
)
MIXTRAL = LLAMA._replace(
    router={"weight": "block_sparse_moe.gate.weight"},
    experts="block_sparse_moe.experts",
    expert={"gate": "w1", "up": "w3", "down": "w2"},
)
QWEN3_MOE = LLAMA._replace(router={"weight": "mlp.gate.weight"}, experts="mlp.experts")
BAMBA = WeightNames(
    blocks={
        "attention_norm": "input_layernorm",
        "attention": "self_attn",
        "state_space_norm": "input_layernorm",
        "state_space": "mamba",
        "mlp_norm": "pre_ff_layernorm",
        "mlp": "feed_forward",
    },
    ends=LLAMA.ends | {"norm": "model.final_layernorm"},
)
NEMOTRON_H = WeightNames(
    blocks={
        f"{block}{norm}": "norm" if norm else "mixer"
        for block in ("attention", "state_space", "mlp")
        for norm in ("_norm", "")
    },
    ends={"embedding": "backbone.embeddings", "norm": "backbone.norm_f", "head": "lm_head"},
    layers="backbone.layers",
    router={"weight": "mixer.gate.weight", "bias": "mixer.gate.e_score_correction_bias"},
    experts="mixer.experts",
)
BERT = WeightNames(
    blocks={
        "attention": "attention",
        "attention_norm": "attention.output.LayerNorm",
        "mlp": "",  # its parts are on the level of attention
        "mlp_norm": "output.LayerNorm",
    },
    ends={
        "embedding": "bert.embeddings.word_embeddings",
        "position": "bert.embeddings.position_embeddings",
        "segment": "bert.embeddings.token_type_embeddings",
        "input_norm": "bert.embeddings.LayerNorm",
        "transform": "cls.predictions.transform.dense",
        "transform_norm": "cls.predictions.transform.LayerNorm",
        "head": "cls.predictions",
        "pooler": "bert.pooler.dense",
        "classes": "cls.seq_relationship",
    },
    layers="bert.encoder.layer",
    parts={
        "attention": {"query": "self.query", "key": "self.key", "value": "self.value", "output": "output.dense"},
        "mlp": {"up": "intermediate.dense", "down": "output.dense"},
    },
)
FAMILY_NAMES = {
    "llama": LLAMA, "mistral": LLAMA, "qwen2": LLAMA, "qwen3": LLAMA, "mixtral": MIXTRAL, "qwen3_moe": QWEN3_MOE,
    "bamba": BAMBA, "nemotron_h": NEMOTRON_H, "bert": BERT,
}  # fmt: skip
FAMILY_OF_MODULE: dict[type, Callable[[Any], str | None]] = {
    Decoder: decoder_family,
    TextEncoder: lambda spec: "bert" if spec.input_norm and spec.post_norm and not spec.gated else None,
}
PART_NAMES = {
    "attention": ATTENTION_NAMES,
    "mlp": MLP_NAMES | {"shared": "shared_experts"},
    "state_space": STATE_SPACE_NAMES,
}


def weight_family(spec: Module) -> str:
    """The family in whose names a module's weights are read and written. Raises InputError where none fits."""
    named = FAMILY_OF_MODULE.get(type(spec))
    kind = named(spec) if named else None
    if kind not in FAMILY_NAMES:
        fix = f"a module as one of {', '.join(FAMILY_NAMES)}, or leave the weights out"
        where = type(spec).__name__.lower()
        raise InputError("no names are known for the weights of such a module", where=where, fix=fix)
    return kind


def stored_names(name: str, spec: Module) -> tuple[str, ...]:
    """The checkpoint names of a parameter: one, or, of a parameter that holds all experts, one for each expert in
    order.

    Raises InputError where no family fits the module.
    """
    names = FAMILY_NAMES[weight_family(spec)]
    layer = re.fullmatch(r"layers\.(\d+)\.(.+)", name)
    if not layer:
        module, _, leaf = name.rpartition(".")
        return (f"{names.ends[module]}.{leaf}",)
    prefix, rest = f"{names.layers}.{layer[1]}", layer[2]
    experts = re.fullmatch(r"\w+\.experts\.(gate|up|down)", rest)
    if experts and spec.routed_experts:
        stored = f"{names.expert[experts[1]]}.weight"
        return tuple(f"{prefix}.{names.experts}.{expert}.{stored}" for expert in range(spec.routed_experts.experts))
    router = re.fullmatch(r"\w+\.router\.(weight|bias)", rest)
    if router:
        return (f"{prefix}.{names.router[router[1]]}",)
    block, *parts = rest.split(".")
    renamed = (names.parts or PART_NAMES).get(block, {})
    return (".".join(filter(None, [prefix, names.blocks[block], *(renamed.get(part, part) for part in parts)])),)
