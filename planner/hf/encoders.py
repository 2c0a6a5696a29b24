"""Families of vision, audio and text encoders: rows of blocks, as those of decoders (hf/families.py). Parameters of
theirs that a spec does not have are counted in notes.
"""

from math import prod
from typing import Any

from planner.hf.decoders import (
    Block,
    Family,
    Fields,
    activated,
    counts,
    equal_heads,
    family,
    fixed,
    flags,
    numbers,
    read_module,
)
from planner.hf.hf_config import HfConfig
from planner.specs.base import with_fields
from planner.specs.layers import Audio, Decoder, Module, TextEncoder, Vit
from planner.specs.layers.head_widths import norm_parameters
from planner.specs.layers.resize import CanvasResize, FixedResize
from planner.specs.layers.vit import Projector
from planner.specs.parameters import layer_parameters

GELU = ("gelu",)
SHAPE_KEYS = {"layers": "num_hidden_layers", "hidden": "hidden_size", "ffn": "intermediate_size"}
PLAIN = (counts(**SHAPE_KEYS, patch="patch_size", channels="num_channels"), equal_heads())
SHAPE_768: dict[str, Any] = {
    "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12,
    "image_size": 224,
}  # fmt: skip


def square_images(class_token: bool, **fields: Any) -> Block:
    """For images of one size, cut to whole patches; with positions of the patches and of a class token."""

    def read(config: HfConfig) -> Fields:
        patch = config.count("patch_size")
        sides = config.count("image_size") // patch
        if not sides:
            raise config.wrong_value("image_size", f"a size of at least one patch, {patch}")
        places = {"positions": "learned", "max_positions": sides**2 + class_token, "class_token": class_token}
        return {**places, "resize": FixedResize(pixels=sides * patch), **fields}

    return read


def with_pooling(config: HfConfig, module: Vit) -> Vit:
    """SigLIP's head for a whole image's vector: attention by one query."""
    hidden, ffn = module.hidden, module.ffn
    if config.flag("vision_use_head"):
        attention, mlp = 4 * hidden**2 + 4 * hidden, 2 * hidden * ffn + ffn + hidden
        config.leave_out("the pooling head", hidden + attention + 2 * hidden + mlp)
    return module


def projector_parameters(module: Vit) -> int:
    """Parameters of a vit's projector."""
    return sum(weight.parameters for weight in module.projector_weights)


def alone(config: HfConfig, tower: Family) -> Module:
    """A tower without a decoder, whose projector's output is as wide as its layers."""
    width = "d_model" if tower.kind is Audio else "hidden_size"
    module = read_module(config, tower, out=config.count(width))
    if module.input_unit == "patches":
        config.add("the projector that each vit has", projector_parameters(module))
        return module  # type: ignore[no-any-return]
    ffn, layers, width = config.count("decoder_ffn_dim"), config.count("decoder_layers"), module.hidden
    attention, mlp = 4 * width**2 + 3 * width, 2 * width * ffn + ffn + width
    tables = config.count("vocab_size") + config.assume(max_target_positions=448).count("max_target_positions")
    config.leave_out("the decoder", layers * (2 * attention + mlp + 6 * width) + tables * width + 2 * width)
    config.add("the projector that each audio encoder has", (width + 1) * width)
    return module  # type: ignore[no-any-return]


def read_layers(config: HfConfig, module: Vit, state: int) -> Vit:
    """A tower of which a reader takes the hidden state of this number: 0 is the first layer's input, negative ones
    count from the end. Layers behind it, and the norm after the last one, are read by nobody. Raises InputError.
    """
    layers = state if state >= 0 else module.layers + 1 + state
    if not 1 <= layers <= module.layers:
        states = f"from 1 to {module.layers}, or from -{module.layers} to -1"
        raise config.key_error("vision_feature_layer", f"{state} is the output of no layer", f"one {states}")
    unread = module.layers - layers
    if unread:
        words = f"the last {unread} of the tower's {module.layers} layers, which nothing reads"
        config.leave_out(words, unread * layer_parameters(module))
    config.leave_out("a norm after the tower's last layer, which nothing reads", norm_parameters(module, module.hidden))
    return with_fields(module, layers=layers, final_norm=False)


def gated_behind(config: HfConfig) -> Fields:
    """Layers within an image of several tiles, and more behind them whose blocks are gated."""
    gated, tiles = config.count("num_global_layers"), config.count("max_num_tiles")
    shape = counts(layers="num_hidden_layers")(config)
    canvas = CanvasResize(pixels=config.count("image_size"), most=tiles)
    return {"layers": shape["layers"] + gated, "gated_layers": gated, "resize": canvas, "bias": "none"}


def note_mllama(config: HfConfig, module: Vit) -> Vit:
    """Notes what the tower has and the spec does not, and that the spec's projector stands for another."""
    hidden, tiles = module.hidden, config.count("max_num_tiles")
    places = (config.count("image_size") // module.patch) ** 2 + 1
    ratios, joined = config.value("supported_aspect_ratios"), config.numbers("intermediate_layers_indices")
    grids = (len(ratios) if isinstance(ratios, list) else 0) + 1
    tables = places * hidden + grids * tiles * (places + 2) * hidden + 3
    config.leave_out(f"learned positions of {places} patches, of tiles and of grids of them", tables)
    config.leave_out("biases of its MLPs", module.layers * (module.ffn + hidden))
    config.leave_out("a class token, and a norm before the first layer", 3 * hidden)
    wide = config.count("vision_output_dim")
    if wide != hidden * (1 + len(joined)):
        raise config.wrong_value("vision_output_dim", f"{1 + len(joined)} times hidden_size")
    what = f"its projector is one linear of the last output joined with those of layers {', '.join(map(str, joined))}"
    config.leave_out(what, wide * module.out + module.out - projector_parameters(module))
    return module


def qwen_patches(config: HfConfig) -> Fields:
    """Qwen's patches, which have rows and columns."""
    config.assume(in_channels=3, temporal_patch_size=2, spatial_merge_size=2)
    if config.values.get("rope_parameters"):
        rotary = config.section("rope_parameters").assume(rope_theta=10000.0, rope_type="axial")
        rotary.expect("rope_theta", (10000.0, 10000))
        rotary.expect("rope_type", ("axial",))
    keys = {"patch": "patch_size", "frames": "temporal_patch_size", "merge": "spatial_merge_size"}
    shape = counts(**keys, channels="in_channels|in_chans", layers="depth")(config)
    return {**shape, "positions": "rope_2d", "norm_eps": 1e-6}  # a constant in the code of Qwen's towers


def square_windows(config: HfConfig) -> Fields:
    """Most layers attend within windows."""
    side, rest = divmod(config.count("window_size"), config.count("patch_size"))
    if rest or not side or side % config.count("spatial_merge_size"):
        raise config.wrong_value("window_size", "a multiple of patch_size * spatial_merge_size")
    return {"window": side**2, "full_layers": tuple(sorted(config.numbers("fullatt_block_indexes")))}


def several_depths(config: HfConfig) -> Fields:
    """Features of several depths."""
    return {"deep_layers": tuple(config.numbers("deepstack_visual_indexes"))}


def place_table(*sides: str) -> Block:
    """A table of positions beside rotary ones: of as many rows as these keys say, multiplied."""

    def read(config: HfConfig) -> Fields:
        return {"place_table": prod(config.count(key) for key in sides)}

    return read


def tiled_table(config: HfConfig) -> Fields:
    """Llama 4's table of positions, with a row for the class token, beside rotary ones."""
    return {"place_table": (config.count("image_size") // config.count("patch_size")) ** 2 + 1}


def note_llama4(config: HfConfig, module: Vit) -> Vit:
    """Notes Llama 4's class token and three linears."""
    inner, last = config.count("projector_input_dim"), config.count("projector_output_dim")
    own = config.count("intermediate_size") * inner + last**2 + config.count("vision_output_dim") * module.out
    config.leave_out("a class token", module.hidden)
    config.leave_out("the widths of its three linears, of which two stand here", own - projector_parameters(module))
    return module


def note_kimi(config: HfConfig, module: Vit) -> Vit:
    """Notes MoonViT's norm."""
    config.leave_out("a norm in front of the projector", 2 * module.hidden)
    return module


def computed_table(config: HfConfig, module: Audio) -> Audio:
    """Notes the table of positions, which is computed."""
    width, positions = module.hidden, config.count("max_source_positions")
    config.leave_out(f"the fixed table of {positions} positions, which is computed", positions * width)
    return module


QWEN_TOWER = (qwen_patches, equal_heads("num_heads"), counts(hidden="hidden_size", ffn="intermediate_size"))
ENCODERS: dict[str, Family] = {  # by `model_type`
    # CLIP (arXiv 2103.00020): a class token, learned positions, a norm before the layers.
    "clip_vision_model": family(
        *PLAIN, activated(), numbers(norm_eps="layer_norm_eps"), square_images(True, input_norm=True), kind=Vit,
        within=SHAPE_768 | {"patch_size": 32}, num_channels=3, hidden_act="quick_gelu", layer_norm_eps=1e-5),
    # SigLIP (arXiv 2303.15343): learned positions.
    "siglip_vision_model": family(
        *PLAIN, activated(), numbers(norm_eps="layer_norm_eps"), square_images(False, patch_bias=True), kind=Vit,
        finish=with_pooling, within=SHAPE_768 | {"patch_size": 16}, num_channels=3, hidden_act="gelu_pytorch_tanh",
        layer_norm_eps=1e-6, vision_use_head=True),
    # Llama 3.2 Vision (arXiv 2407.21783, section 7).
    "mllama_vision_model": family(
        *PLAIN[:1], gated_behind, equal_heads("attention_heads"), numbers(norm_eps="norm_eps"), kind=Vit,
        finish=note_mllama, only={"hidden_act": GELU}, num_hidden_layers=32, num_global_layers=8, attention_heads=16,
        hidden_size=1280, intermediate_size=5120, image_size=448, patch_size=14, num_channels=3, max_num_tiles=4,
        norm_eps=1e-5, intermediate_layers_indices=[3, 7, 15, 23, 30], vision_output_dim=7680,
        supported_aspect_ratios=8 * [[1, 1]]),
    # Qwen2-VL (arXiv 2409.12191): any size of image, 2 x 2 patches to a token. Qwen2.5-VL (2502.13923): gated, and
    # most layers attend within windows. Qwen3-VL (2511.21631): features of several depths, and a table of positions.
    "qwen2_vl": family(
        qwen_patches, equal_heads("num_heads", "embed_dim"), counts(hidden="embed_dim", out="hidden_size"), activated(),
        lambda config: {"ffn": int(config.count("embed_dim") * config.number("mlp_ratio"))}, kind=Vit,
        mlp_ratio=4, hidden_act="quick_gelu", embed_dim=1280),
    "qwen2_5_vl": family(
        *QWEN_TOWER, counts(out="out_hidden_size"), square_windows, fixed(gated=True, norm="rms"), kind=Vit,
        only={"hidden_act": ("silu",)}, window_size=112, fullatt_block_indexes=[7, 15, 23, 31]),
    "qwen3_vl": family(
        *QWEN_TOWER, counts(out="out_hidden_size"), several_depths, place_table("num_position_embeddings"), activated(),
        fixed(patch_bias=True), kind=Vit, hidden_act="gelu_pytorch_tanh", depth=27, num_position_embeddings=2304,
        deepstack_visual_indexes=None, num_heads=16, patch_size=16),
    # Kimi-K2.5's MoonViT (arXiv 2504.07491) and Llama 4's tower: a table of positions beside rotary ones.
    "kimi_k25": family(
        counts(**{field: f"vt_{key}|{key}" for field, key in SHAPE_KEYS.items()}, patch="patch_size"),
        equal_heads("vt_num_attention_heads|num_attention_heads", "vt_hidden_size|hidden_size"),
        place_table("init_pos_emb_height", "init_pos_emb_width"),
        fixed(activation="gelu_tanh", patch_bias=True, merge=2, positions="rope_2d"), kind=Vit, finish=note_kimi,
        only={"projector_hidden_act": GELU, "merge_kernel_size": ([2, 2],)},
        unused={
            "mm_hidden_size", "mm_projector_type", "text_hidden_size", "init_pos_emb_time", "merge_type",
            "pos_emb_type", "projector_ln_eps", "video_attn_type",
        },
        vt_hidden_size=1152, vt_intermediate_size=4304, vt_num_hidden_layers=27, vt_num_attention_heads=16,
        patch_size=14, init_pos_emb_height=64, init_pos_emb_width=64),
    "llama4": family(
        *PLAIN, numbers(norm_eps="norm_eps"), tiled_table,
        fixed(merge=2, positions="rope_2d", input_norm=True, projector=Projector(inner="out", bias=False)), kind=Vit,
        finish=note_llama4, only={"hidden_act": GELU, "pixel_shuffle_ratio": (0.5,)},
        unused={
            "multi_modal_projector_bias", "projector_dropout", "vision_feature_layer",
            "vision_feature_select_strategy", "rope_theta",
        },
        hidden_size=768, num_hidden_layers=34, num_attention_heads=16, num_channels=3, intermediate_size=5632,
        vision_output_dim=7680, image_size=448, patch_size=14, norm_eps=1e-5, projector_input_dim=4096,
        projector_output_dim=4096),
    # Whisper's encoder (arXiv 2212.04356), as in Qwen2-Audio.
    "whisper": family(
        counts(layers="encoder_layers", hidden="d_model", ffn="encoder_ffn_dim", mels="num_mel_bins"),
        equal_heads("encoder_attention_heads", "d_model"), kind=Audio, finish=computed_table,
        only={"activation_function": GELU}, max_source_positions=1500,
        unused={"num_hidden_layers", "decoder_attention_heads", "tie_word_embeddings"}),
}  # fmt: skip

BERT_HEADS = {  # (predicts, pooled, classes)
    "BertForMaskedLM": (True, False, 0),
    "BertForPreTraining": (True, True, 2),
    "BertModel": (False, True, 0),
}
T5_ACTIVATIONS = {"relu": (False, "relu"), "gated-gelu": (True, "gelu_tanh")}  # (gated, activation)


def bert_heads(config: HfConfig) -> Fields:
    """Which heads BERT's architecture has: without one, the pooler alone."""
    if config.assume(is_decoder=False).flag("is_decoder"):
        raise config.key_error("is_decoder", "a causal BERT cannot be expressed", "give an encoder's config.json")
    named = config.assume(architectures=None).value("architectures") or ["BertModel"]
    if not isinstance(named, list) or str(named[0]) not in BERT_HEADS:
        what = f"the heads of `{named[0] if isinstance(named, list) else named}` are not known"
        raise config.key_error("architectures", what, f"one of {', '.join(BERT_HEADS)}")
    predicts, pooled, classes = BERT_HEADS[named[0]]
    heads = {"predicts": predicts, "pooled": pooled, "classes": classes}
    return {**heads, "segments": config.count_or_none("type_vocab_size") or 0, "input_norm": True, "post_norm": True}


def t5_mlp(config: HfConfig) -> Fields:
    """T5's MLP, by its word."""
    projection = config.text("feed_forward_proj")
    if projection not in T5_ACTIVATIONS:
        known = ", ".join(T5_ACTIVATIONS)
        raise config.key_error("feed_forward_proj", f"`{projection}` is not known", f"one of {known}")
    gated, activation = T5_ACTIVATIONS[projection]
    return {"gated": gated, "activation": activation, "norm": "rms", "bias": "none", "positions": "relative"}


BERT = family(  # arXiv 1810.04805
    counts(**SHAPE_KEYS, heads="num_attention_heads", vocab="vocab_size", max_positions="max_position_embeddings"),
    numbers(norm_eps="layer_norm_eps"), bert_heads, kind=TextEncoder, only={"hidden_act": GELU}, vocab_size=30522,
    hidden_size=768, num_hidden_layers=12, num_attention_heads=12, intermediate_size=3072, type_vocab_size=2,
    max_position_embeddings=512, layer_norm_eps=1e-12,
)  # fmt: skip
T5 = family(  # arXiv 1910.10683: both halves share one embedding, and each has its own relative positions
    counts(hidden="d_model", heads="num_heads", head_dim="d_kv", ffn="d_ff", vocab="vocab_size", layers="num_layers",
           buckets="relative_attention_num_buckets"),
    t5_mlp, numbers(norm_eps="layer_norm_epsilon"), kind=TextEncoder,
    only={"relative_attention_max_distance": (128,)}, unused={"dense_act_fn", "is_gated_act", "scale_decoder_outputs"},
    vocab_size=32128, d_model=512, d_kv=64, d_ff=2048, num_layers=6, num_heads=8, num_decoder_layers=None,
    relative_attention_num_buckets=32, layer_norm_epsilon=1e-6, feed_forward_proj="relu", tie_word_embeddings=True,
)  # fmt: skip
T5_DECODER = T5._replace(
    blocks=(*T5.blocks, flags(tied="tie_word_embeddings", scaled_head="tie_word_embeddings")), kind=Decoder
)


def t5(config: HfConfig) -> dict[str, Module]:
    """T5's encoder, and the decoder that attends to it."""
    encoder = read_module(config, T5, shared_words=True)
    layers = config.count_or_none("num_decoder_layers") or encoder.layers
    return {"encoder": encoder, "llm": read_module(config, T5_DECODER, layers=layers, cross=encoder.hidden)}
