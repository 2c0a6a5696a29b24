"""Names of the model zoo's parameters in a Hugging Face checkpoint."""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from planner.errors import InputError
from planner.hf.write_config import decoder_family
from planner.specs.layers import Audio, Decoder, Module, TextEncoder, Vit
from planner.specs.layers.head_widths import kv_heads
from planner.specs.layers.vit import Projector

ATTENTION_NAMES = {
    "query": "q_proj",
    "key": "k_proj",
    "value": "v_proj",
    "output": "o_proj",
    "query_norm": "q_norm",
    "key_norm": "k_norm",
}
MLP_NAMES = {"gate": "gate_proj", "up": "up_proj", "down": "down_proj"}
LATENT_NAMES = {"latent_down": "fc1_latent_proj", "latent_up": "fc2_latent_proj"}
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
    above_one: tuple[str, ...] = ()  # endings of names of norms here whose stored weights are less by one
    unread: tuple[str, ...] = ()  # beginnings of names that such files have and such modules do without
    may_end_early: bool = False  # whether a module may do without the last layers


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
GLM4_MOE = QWEN3_MOE._replace(router={"weight": "mlp.gate.weight", "bias": "mlp.gate.e_score_correction_bias"})
QWEN3_NEXT = QWEN3_MOE._replace(
    blocks=LLAMA.blocks | {"linear_attention_norm": "input_layernorm", "linear_attention": "linear_attn"},
    parts={
        "attention": ATTENTION_NAMES,
        "mlp": MLP_NAMES | {"shared": "shared_expert", "shared_gate": "shared_expert_gate.weight"},
        "linear_attention": {
            "into": "in_proj_qkvz", "steps": "in_proj_ba", "convolution": "conv1d", "decay_log": "A_log",
            "step_bias": "dt_bias", "out": "out_proj",
        },
    },
    above_one=("attention_norm.weight", "mlp_norm.weight", "query_norm.weight", "key_norm.weight"),
)  # fmt: skip
OLMO2 = LLAMA._replace(
    blocks={
        "attention": "self_attn",
        "attention_output_norm": "post_attention_layernorm",
        "mlp": "mlp",
        "mlp_output_norm": "post_feedforward_layernorm",
    }
)
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
ENCODER_ATTENTION_NAMES = ATTENTION_NAMES | {"output": "out_proj"}
ENCODER_MLP_NAMES = {"up": "fc1", "down": "fc2"}
CLIP = WeightNames(  # and SigLIP, which has some of these, within LLaVA
    blocks={"attention_norm": "layer_norm1", "attention": "self_attn", "mlp_norm": "layer_norm2", "mlp": "mlp"},
    ends={
        "patch": "vision_tower.embeddings.patch_embedding",
        "class_token": "vision_tower.embeddings.class_embedding",
        "position": "vision_tower.embeddings.position_embedding",
        "input_norm": "vision_tower.pre_layrnorm",
        "norm": "vision_tower.post_layernorm",
        "projector.up": "multi_modal_projector.linear_1",
        "projector.down": "multi_modal_projector.linear_2",
    },
    layers="vision_tower.encoder.layers",
    parts={"attention": ENCODER_ATTENTION_NAMES, "mlp": ENCODER_MLP_NAMES},
    unread=("vision_tower.post_layernorm.", "vision_tower.head."),
    may_end_early=True,
)
WHISPER = WeightNames(  # within Qwen2-Audio
    blocks={
        "attention_norm": "self_attn_layer_norm",
        "attention": "self_attn",
        "mlp_norm": "final_layer_norm",
        "mlp": "",  # its parts are on the level of attention
    },
    ends={
        "sounds": "audio_tower.conv1",
        "halved": "audio_tower.conv2",
        "norm": "audio_tower.layer_norm",
        "projector": "multi_modal_projector.linear",
    },
    layers="audio_tower.layers",
    parts={"attention": ENCODER_ATTENTION_NAMES, "mlp": ENCODER_MLP_NAMES},
    unread=("audio_tower.embed_positions.",),  # which are computed
)
QWEN2_5_VISION = WeightNames(  # within Qwen2.5-VL
    blocks={"attention_norm": "norm1", "attention": "attn", "mlp_norm": "norm2", "mlp": "mlp"},
    ends={
        "patch": "visual.patch_embed.proj",
        "norm": "visual.merger.ln_q",
        "projector.up": "visual.merger.mlp.0",
        "projector.down": "visual.merger.mlp.2",
    },
    layers="visual.blocks",
    parts={"attention": {"query": "q", "key": "k", "value": "v", "output": "proj"}, "mlp": MLP_NAMES},
)
QWEN2_VISION = QWEN2_5_VISION._replace(parts=QWEN2_5_VISION.parts | {"mlp": ENCODER_MLP_NAMES})  # within Qwen2-VL
QWEN3_VISION = QWEN2_VISION._replace(  # within Qwen3-VL
    ends={
        "patch": "visual.patch_embed.proj",
        "place_table": "visual.pos_embed",
        "norm": "visual.merger.norm",
        "projector.up": "visual.merger.linear_fc1",
        "projector.down": "visual.merger.linear_fc2",
        "deep_projectors.norm": "visual.deepstack_merger_list.{}.norm",
        "deep_projectors.up": "visual.deepstack_merger_list.{}.linear_fc1",
        "deep_projectors.down": "visual.deepstack_merger_list.{}.linear_fc2",
    },
    parts=QWEN2_5_VISION.parts | {"mlp": {"up": "linear_fc1", "down": "linear_fc2"}},
)
FAMILY_NAMES = {
    "llama": LLAMA, "mistral": LLAMA, "qwen2": LLAMA, "qwen3": LLAMA, "mixtral": MIXTRAL, "qwen3_moe": QWEN3_MOE,
    "bamba": BAMBA, "glm4_moe": GLM4_MOE, "olmo2": OLMO2, "nemotron_h": NEMOTRON_H, "bert": BERT,
    "clip": CLIP, "whisper": WHISPER, "qwen2_vision": QWEN2_VISION, "qwen2_5_vision": QWEN2_5_VISION,
    "qwen3_vision": QWEN3_VISION, "qwen3_next": QWEN3_NEXT, "phi3": LLAMA,
}  # fmt: skip
FAMILY_OF_MODULE: dict[type, Callable[[Any], str | None]] = {
    Decoder: decoder_family,
    TextEncoder: lambda spec: "bert" if spec.input_norm and spec.post_norm and not spec.gated else None,
    Vit: lambda spec: tower_family(spec),  # which is below
    Audio: lambda spec: None if spec.gated else "whisper",
}
PART_NAMES = {
    "attention": ATTENTION_NAMES,
    "mlp": MLP_NAMES | LATENT_NAMES | {"shared": "shared_experts"},
    "state_space": STATE_SPACE_NAMES,
}


def tower_family(spec: Vit) -> str | None:
    """The family with such a tower; None where there is none."""
    if spec.positions == "rope_2d":
        if spec.projector != Projector() or spec.heads != kv_heads(spec) or spec.bias != "all":
            return None
        if spec.place_table or spec.patch_bias:
            return "qwen3_vision" if spec.place_table and spec.patch_bias and not spec.gated else None
        return "qwen2_5_vision" if spec.gated else "qwen2_vision"
    return "clip" if has_table(spec) and not spec.gated and spec.projector.inner == "out" else None


def has_table(spec: Vit) -> bool:
    """Whether a tower is for images of one size, none of whose patches are merged."""
    return spec.positions == "learned" and spec.merge == 1 and spec.projector.linears == 2


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
    if name in names.ends:
        return (names.ends[name],)
    if not layer:
        name, numbered = re.sub(r"\.(\d+)\.", ".", name), re.search(r"\.(\d+)\.", name)
        module, _, leaf = name.rpartition(".")
        return (f"{names.ends[module]}.{leaf}".format(numbered and numbered[1]),)
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


def stored_less(name: str, spec: Module) -> float:
    """How much less the stored values of a parameter are: 1 of norms that multiply by one and their weight."""
    names = FAMILY_NAMES[weight_family(spec)]
    return 1.0 if name.endswith(names.above_one) or (names.above_one and name == "norm.weight") else 0.0


def layer_prefix(spec: Module) -> str:
    """How the names of all tensors of a module's layers begin. Raises InputError where no family fits the module."""
    return f"{FAMILY_NAMES[weight_family(spec)].layers}."


def is_unread(name: str, spec: Module) -> bool:
    """Whether a stored tensor belongs to a part that a module does without, as nothing reads it: layers of a tower
    behind the one that is read, its last norm, its pooling head; or a table that is computed.
    """
    names = FAMILY_NAMES[weight_family(spec)]
    layer = re.match(r"(\d+)\.", name.removeprefix(layer_prefix(spec))) if names.may_end_early else None
    return name.startswith(names.unread) or (layer is not None and int(layer[1]) >= spec.layers)


def name_within(name: str) -> str:
    """The name of a tensor of a multimodal model in its module's own names, whichever of the layouts of such files it
    is from: `language_model.model.norm.weight` and `model.language_model.norm.weight` are `model.norm.weight`.
    """
    for pattern, within in WITHIN_MODELS:
        name = re.sub(pattern, within, name)
    return name


WITHIN_MODELS = (
    (r"^(model\.language_model|language_model\.model)\.", "model."),
    (r"^language_model\.lm_head\.", "lm_head."),
    (r"^model\.(vision_tower|audio_tower|multi_modal_projector)\.", r"\1."),
    (r"^vision_tower\.vision_model\.", "vision_tower."),
    (r"^model\.visual\.", "visual."),
)
