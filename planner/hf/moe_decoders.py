"""Experts and latent attention as the keys of a config.json say them: blocks of decoders (hf/decoders.py)."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

from planner.hf.decoders import MOST_LAYERS, Block, Fields, counts, one_of
from planner.hf.hf_config import HfConfig
from planner.specs.layers.components import Experts, Indexer, LatentAttentionShape

Scores = Literal["softmax", "sigmoid"]
SparseRule = Callable[[HfConfig, int], tuple[list[bool], str]]  # layers with experts, and the key that says so


class ExpertKeys(NamedTuple):
    """The keys of a family's experts."""

    number: str = "num_experts|num_local_experts"
    topk: str = "num_experts_per_tok"
    width: str = "moe_intermediate_size"
    sparse: SparseRule | None = None  # None: every layer
    shared: str = ""  # the width of shared experts; or their number, each of the width above, where it begins with "n_"
    shared_gate: bool = False
    scores: str = "softmax"  # or the key of it
    bias: bool | str = False  # of the router; or the key of topk_method, by which experts are balanced by biases
    normalised: bool | str = True  # or the key of it
    scale: str = ""
    groups: tuple[str, str] | None = None  # the keys of groups of experts, and of those that a token chooses from
    latent: str = ""  # the width of experts' inputs and outputs


def experts(keys: ExpertKeys) -> Block:
    """The spec's `moe`; none where the file has none."""

    def read(config: HfConfig) -> Fields:
        if config.positive_or_none(keys.number) is None and keys.number != "num_local_experts":  # such have some always
            return {}
        placed: dict[str, int] = {}
        if keys.sparse:
            sparse, key = keys.sparse(config, config.count("num_hidden_layers", MOST_LAYERS))
            if not any(sparse) and key == "decoder_sparse_step":
                return {}
            placed = moe_layer_fields(config, sparse, key)
        width, latent = config.count(keys.width), keys.latent and config.count_or_none(keys.latent)
        fields = {**placed, **shared_fields(config, keys, width), **router_fields(config, keys), "latent": latent or 0}
        shape = counts(experts=keys.number, topk=keys.topk)(config)
        return {"moe": config.made(Experts, keys.topk, ffn=width, **shape, **fields)}

    return read


def shared_fields(config: HfConfig, keys: ExpertKeys, width: int) -> Fields:
    """Fields of the shared experts."""
    read = config.positive_or_none if keys.shared_gate else config.count_or_none
    stated = read(keys.shared) or 0 if keys.shared else 0
    shared = stated * width if keys.shared.startswith("n_") else stated
    return {"shared_ffn": shared, "shared_gate": keys.shared_gate and shared > 0}


def router_fields(config: HfConfig, keys: ExpertKeys) -> Fields:
    """Fields of the router: its scores and biases, weights of the chosen, and groups that they are chosen from."""
    scores: Any = keys.scores if keys.scores in ("softmax", "sigmoid") else one_of(config, keys.scores, Scores)
    biased = config.text(keys.bias) == "noaux_tc" if isinstance(keys.bias, str) else keys.bias
    fields: Fields = {
        "scores": scores,
        "router_bias": biased,
        "normalised": config.flag(keys.normalised) if isinstance(keys.normalised, str) else keys.normalised,
    }
    scale = config.assume(**{keys.scale: 1.0}).number(keys.scale) if keys.scale else 1.0
    if scale:
        fields["scale"] = scale
    groups = (config.count_or_none(keys.groups[0]) or 1) if keys.groups else 1
    config.read_keys |= {*(keys.groups or ())}
    if keys.groups and groups > 1:
        chosen = config.count(keys.groups[1])
        if biased:
            fields |= {"groups": groups, "group_topk": chosen}
        else:
            config.leave_out(f"choosing experts from {chosen} of {groups} groups of them by their best score")
    return fields


def dense_first(first: str = "first_k_dense_replace", step: str = "moe_layer_freq") -> SparseRule:
    """Experts behind the first dense layers."""

    def rule(config: HfConfig, layers: int) -> tuple[list[bool], str]:
        dense, every = config.count_or_none(first) or 0, config.assume(**{step: 1}).count(step)
        return [layer >= dense and layer % every == 0 for layer in range(layers)], first

    return rule


def qwen_layers(config: HfConfig, layers: int) -> tuple[list[bool], str]:
    """Experts in every k-th layer, except for layers that are listed."""
    config.assume(decoder_sparse_step=1, mlp_only_layers=None)
    step, dense = config.count("decoder_sparse_step"), config.numbers("mlp_only_layers")
    sparse = [layer not in dense and (layer + 1) % step == 0 for layer in range(layers)]
    return sparse, "mlp_only_layers" if dense and any(sparse) else "decoder_sparse_step"


def llama4_layers(config: HfConfig, layers: int) -> tuple[list[bool], str]:
    """Experts in every k-th layer, or in those that are listed."""
    step = config.assume(interleave_moe_layer_step=1, moe_layers=None).count("interleave_moe_layer_step")
    listed = config.value("moe_layers") is not None
    named = config.numbers("moe_layers") if listed else [layer for layer in range(layers) if (layer + 1) % step == 0]
    return [layer in named for layer in range(layers)], "moe_layers" if listed else "interleave_moe_layer_step"


def latent_attention(config: HfConfig) -> Fields:
    """Latent attention (DeepSeek-V2, arXiv 2405.04434), whose heads have widths of their own."""
    config.read_keys |= {"num_key_value_heads", "head_dim", "qk_head_dim"}  # which follow from the others
    config.assume(num_key_value_heads=None)
    scaling = config.values.get("rope_scaling") or config.values.get("rope_parameters")
    if isinstance(scaling, dict) and scaling.get("mscale_all_dim"):  # beside the rotated part, all scores are scaled
        config.leave_out(f"the scale of attention scores by mscale_all_dim {scaling['mscale_all_dim']}")
    shape = counts(kv_rank="kv_lora_rank", rope_dim="qk_rope_head_dim", nope_dim="qk_nope_head_dim")(config)
    q_rank, value_dim = config.count_or_none("q_lora_rank") or 0, config.count("v_head_dim")
    latent = LatentAttentionShape(q_rank=q_rank, value_dim=value_dim, **shape)
    return {"heads": config.count("num_attention_heads"), "latent": latent}


def indexer(config: HfConfig) -> Fields:
    """The indexer of sparse attention (DeepSeek-V3.2, arXiv 2512.02556)."""
    config.read_keys |= {"indexer_rope_interleave"}
    config.assume(index_n_heads=64, index_head_dim=128, index_topk=2048, indexer_types=None)
    types = config.value("indexer_types")
    if types is not None and (not isinstance(types, list) or {*map(str, types)} != {"full"}):
        fix = "planner import hf --build"
        raise config.key_error("indexer_types", "layers without an indexer of their own cannot be expressed", fix)
    return {"indexer": Indexer(**counts(heads="index_n_heads", dim="index_head_dim", topk="index_topk")(config))}


def moe_layer_fields(config: HfConfig, sparse: list[bool], key: str) -> dict[str, int]:
    """`dense_layers` and `every` for these MoE layers. Raises InputError naming `key` where no such rule gives them."""
    pattern = moe_layer_rule(sparse) if any(sparse) else None
    if pattern is None:
        fix = "a spec has experts in every k-th layer behind the first dense ones; or planner import hf --build"
        raise config.key_error(key, "these layers with experts cannot be expressed", fix)
    return {"dense_layers": pattern[0], "every": pattern[1]}


def moe_layer_rule(sparse: Sequence[bool]) -> tuple[int, int] | None:
    """(dense_layers, every) such that exactly these layers (at least one) have experts; None where no such rule exists.

    Layer i, from 0, has experts where i + 1 - dense_layers is a positive multiple of `every`.
    """
    first = sparse.index(True)
    rest = [layer for layer, has in enumerate(sparse) if has and layer > first]
    every = rest[0] - first if rest else max(1, len(sparse) - first)
    dense = first + 1 - every
    fits = dense >= 0 and all(
        has == (layer >= dense and (layer + 1 - dense) % every == 0) for layer, has in enumerate(sparse)
    )
    return (dense, every) if fits else None
