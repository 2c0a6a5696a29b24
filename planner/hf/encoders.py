"""Vision and audio encoders; parameters of theirs that a spec does not have are counted in notes."""

from typing import Any

from planner.hf.decoders import ACTIVATIONS, MOST_LAYERS
from planner.hf.hf_config import HfConfig
from planner.specs.base import with_fields
from planner.specs.layers import Audio, Vit
from planner.specs.layers.head_widths import norm_parameters
from planner.specs.layers.resize import CanvasResize, FixedResize
from planner.specs.layers.stack import Activation
from planner.specs.layers.vit import Projector
from planner.specs.parameters import layer_parameters

GELU = ("gelu",)
QWEN_EPS = 1e-6  # a constant in the code of Qwen's vision towers


def clip(config: HfConfig, out: int | None = None) -> Vit:
    """CLIP's (arXiv 2103.00020): a class token, learned positions, a norm before the layers."""
    config.assume(hidden_act="quick_gelu", layer_norm_eps=1e-5)
    return with_table(config, plain_vit(config, out, usual_patch=32), class_token=True, input_norm=True)


def siglip(config: HfConfig, out: int | None = None) -> Vit:
    """SigLIP's (arXiv 2303.15343): learned positions, and for a whole image's vector attention by one query."""
    config.assume(hidden_act="gelu_pytorch_tanh", layer_norm_eps=1e-6, vision_use_head=True)
    module = with_table(config, plain_vit(config, out, usual_patch=16), patch_bias=True)
    hidden, ffn = module.hidden, module.ffn
    if config.flag("vision_use_head"):
        attention, mlp = 4 * hidden**2 + 4 * hidden, 2 * hidden * ffn + ffn + hidden
        config.leave_out("the pooling head", hidden + attention + 2 * hidden + mlp)
    return module


def plain_vit(config: HfConfig, out: int | None, usual_patch: int) -> Vit:
    """Fields that CLIP and SigLIP have in common; without a decoder, the projector's output is as wide as layers."""
    config.assume_within(hidden_size=768, intermediate_size=3072, num_hidden_layers=12, num_attention_heads=12)
    config.assume_within(patch_size=usual_patch, image_size=224).assume(num_channels=3)
    module = Vit(
        layers=config.count("num_hidden_layers", MOST_LAYERS),
        hidden=config.count("hidden_size"),
        heads=head_count(config, "num_attention_heads", "hidden_size"),
        ffn=config.count("intermediate_size"),
        activation=activation(config, "hidden_act"),
        patch=config.count("patch_size"),
        channels=config.count("num_channels"),
        out=out or config.count("hidden_size"),
        norm_eps=config.number("layer_norm_eps"),
    )
    if out is None:
        config.add("the projector that each vit has", projector_parameters(module))
    return module


def with_table(config: HfConfig, module: Vit, **fields: Any) -> Vit:
    """A tower for images of one size, cut to whole patches; with positions of the patches and of a class token."""
    sides = config.count("image_size") // module.patch
    if not sides:
        raise config.wrong_value("image_size", f"a size of at least one patch, {module.patch}")
    count = sides**2 + fields.get("class_token", False)
    square = FixedResize(pixels=sides * module.patch)
    return with_fields(module, positions="learned", max_positions=count, resize=square, **fields)


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


def activation(config: HfConfig, key: str) -> Activation | None:
    """An activation function that is no gate's; None: gelu. Others are noted."""
    config.expect(key, tuple(ACTIVATIONS))
    return ACTIVATIONS.get(config.text(key))


def mllama_vision(config: HfConfig, out: int) -> Vit:
    """Llama 3.2 Vision's: layers within an image of several tiles, and more behind them whose blocks are gated."""
    config.assume(num_hidden_layers=32, num_global_layers=8, attention_heads=16, hidden_size=1280, hidden_act="gelu")
    config.assume(intermediate_size=5120, image_size=448, patch_size=14, num_channels=3, max_num_tiles=4)
    config.assume(norm_eps=1e-5, intermediate_layers_indices=[3, 7, 15, 23, 30], vision_output_dim=7680)
    config.assume(supported_aspect_ratios=8 * [[1, 1]])
    config.expect("hidden_act", GELU)
    gated, tiles, pixels = config.count("num_global_layers"), config.count("max_num_tiles"), config.count("image_size")
    module = Vit(
        layers=config.count("num_hidden_layers", MOST_LAYERS) + gated,
        hidden=config.count("hidden_size"),
        heads=head_count(config, "attention_heads", "hidden_size"),
        ffn=config.count("intermediate_size"),
        bias="none",
        patch=config.count("patch_size"),
        channels=config.count("num_channels"),
        out=out,
        gated_layers=gated,
        resize=CanvasResize(pixels=pixels, most=tiles),
        norm_eps=config.number("norm_eps"),
    )
    note_mllama_vision(config, module, tiles, pixels)
    return module


def note_mllama_vision(config: HfConfig, module: Vit, tiles: int, pixels: int) -> None:
    """Notes what the tower has and the spec does not, and that the spec's projector stands for another."""
    hidden, places = module.hidden, (pixels // module.patch) ** 2 + 1
    ratios, joined = config.value("supported_aspect_ratios"), config.numbers("intermediate_layers_indices")
    grids = (len(ratios) if isinstance(ratios, list) else 0) + 1
    tables = places * hidden + grids * tiles * (places + 2) * hidden + 3
    config.leave_out(f"learned positions of {places} patches, of tiles and of grids of them", tables)
    config.leave_out("biases of its MLPs", module.layers * (module.ffn + hidden))
    config.leave_out("a class token, and a norm before the first layer", 3 * hidden)
    wide = config.count("vision_output_dim")
    own = wide * module.out + module.out
    if wide != hidden * (1 + len(joined)):
        raise config.wrong_value("vision_output_dim", f"{1 + len(joined)} times hidden_size")
    what = f"its projector is one linear of the last output joined with those of layers {', '.join(map(str, joined))}"
    config.leave_out(what, own - projector_parameters(module))


def projector_parameters(module: Vit) -> int:
    """Parameters of a vit's projector."""
    return sum(weight.parameters for weight in module.projector_weights)


def qwen2_vision(config: HfConfig) -> Vit:
    """Qwen2-VL's (arXiv 2409.12191): any size of image, 2 x 2 patches to a token."""
    config.assume(mlp_ratio=4, hidden_act="quick_gelu", temporal_patch_size=2, spatial_merge_size=2, embed_dim=1280)
    width = config.count("embed_dim")
    ratio = config.number("mlp_ratio")
    return Vit(
        layers=config.count("depth", MOST_LAYERS),
        hidden=width,
        heads=head_count(config, "num_heads", "embed_dim"),
        ffn=int(width * ratio),
        activation=activation(config, "hidden_act"),
        out=config.count("hidden_size"),
        **patch_fields(config),
        norm_eps=QWEN_EPS,
    )


def qwen2_5_vision(config: HfConfig) -> Vit:
    """Qwen2.5-VL's (arXiv 2502.13923): gated, and most layers attend within windows."""
    config.assume(hidden_act="silu", temporal_patch_size=2, spatial_merge_size=2, window_size=112)
    config.assume(fullatt_block_indexes=[7, 15, 23, 31])
    config.expect("hidden_act", ("silu",))
    side, rest = divmod(config.count("window_size"), config.count("patch_size"))
    if rest or not side or side % config.count("spatial_merge_size"):
        raise config.wrong_value("window_size", "a multiple of patch_size * spatial_merge_size")
    return Vit(
        layers=config.count("depth", MOST_LAYERS),
        hidden=config.count("hidden_size"),
        heads=head_count(config, "num_heads", "hidden_size"),
        ffn=config.count("intermediate_size"),
        gated=True,
        norm="rms",
        out=config.count("out_hidden_size"),
        **patch_fields(config),
        window=side**2,
        full_layers=tuple(sorted(config.numbers("fullatt_block_indexes"))),
        norm_eps=QWEN_EPS,
    )


def qwen3_vision(config: HfConfig) -> Vit:
    """Qwen3-VL's (arXiv 2511.21631): a table of positions beside rotary ones, and features of several depths."""
    config.assume(hidden_act="gelu_pytorch_tanh", temporal_patch_size=2, spatial_merge_size=2, depth=27)
    config.assume(num_position_embeddings=2304, deepstack_visual_indexes=None, num_heads=16, patch_size=16)
    return Vit(
        layers=config.count("depth", MOST_LAYERS),
        hidden=config.count("hidden_size"),
        heads=head_count(config, "num_heads", "hidden_size"),
        ffn=config.count("intermediate_size"),
        activation=activation(config, "hidden_act"),
        out=config.count("out_hidden_size"),
        **patch_fields(config),
        patch_bias=True,
        place_table=config.count("num_position_embeddings"),
        deep_layers=tuple(config.numbers("deepstack_visual_indexes")),
        norm_eps=QWEN_EPS,
    )


KIMI_KEYS = {"hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27, "num_attention_heads": 16}


def kimi_vision(config: HfConfig, out: int) -> Vit:
    """Kimi-K2.5's MoonViT (arXiv 2504.07491): a table of positions beside rotary ones."""
    config.assume(**KIMI_KEYS, **{f"vt_{key}": value for key, value in KIMI_KEYS.items()})
    config.assume(patch_size=14, init_pos_emb_height=64, init_pos_emb_width=64, merge_kernel_size=[2, 2])
    config.assume(projector_hidden_act="gelu").expect("projector_hidden_act", GELU)
    config.expect("merge_kernel_size", ([2, 2],))
    config.read_keys |= {
        "mm_hidden_size", "mm_projector_type", "text_hidden_size", "init_pos_emb_time", "merge_type", "pos_emb_type",
        "projector_ln_eps", "video_attn_type",
    }  # fmt: skip
    layers, hidden, heads, ffn = (
        f"vt_{key}" if f"vt_{key}" in config.values else key
        for key in ("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size")
    )
    module = Vit(
        layers=config.count(layers, MOST_LAYERS),
        hidden=config.count(hidden),
        heads=head_count(config, heads, hidden),
        ffn=config.count(ffn),
        activation="gelu_tanh",
        patch=config.count("patch_size"),
        patch_bias=True,
        merge=2,
        positions="rope_2d",
        place_table=config.count("init_pos_emb_height") * config.count("init_pos_emb_width"),
        out=out,
    )
    config.leave_out("a norm in front of the projector", 2 * module.hidden)
    return module


def llama4_vision(config: HfConfig, out: int) -> Vit:
    """Llama 4's: a table of positions beside rotary ones; 2 x 2 patches to a token, by three linears."""
    config.assume(hidden_size=768, hidden_act="gelu", num_hidden_layers=34, num_attention_heads=16, num_channels=3)
    config.assume(intermediate_size=5632, vision_output_dim=7680, image_size=448, patch_size=14, norm_eps=1e-5)
    config.assume(pixel_shuffle_ratio=0.5, projector_input_dim=4096, projector_output_dim=4096)
    config.expect("hidden_act", GELU)
    config.expect("pixel_shuffle_ratio", (0.5,))
    config.read_keys |= {"multi_modal_projector_bias", "projector_dropout", "vision_feature_layer"}
    config.read_keys |= {"vision_feature_select_strategy", "rope_theta"}
    places = (config.count("image_size") // config.count("patch_size")) ** 2 + 1
    module = Vit(
        layers=config.count("num_hidden_layers", MOST_LAYERS),
        hidden=config.count("hidden_size"),
        heads=head_count(config, "num_attention_heads", "hidden_size"),
        ffn=config.count("intermediate_size"),
        patch=config.count("patch_size"),
        channels=config.count("num_channels"),
        merge=2,
        positions="rope_2d",
        place_table=places,
        input_norm=True,
        out=out,
        norm_eps=config.number("norm_eps"),
        projector=Projector(inner="out", bias=False),
    )
    inner, last = config.count("projector_input_dim"), config.count("projector_output_dim")
    own = config.count("intermediate_size") * inner + last**2 + config.count("vision_output_dim") * out
    config.leave_out("a class token", module.hidden)
    config.leave_out("the widths of its three linears, of which two stand here", own - projector_parameters(module))
    return module


def patch_fields(config: HfConfig) -> dict[str, Any]:
    """Fields of Qwen's patches, which have rows and columns."""
    channels = "in_chans" if "in_chans" in config.values else "in_channels"
    config.assume(in_channels=3)
    if config.values.get("rope_parameters"):
        rotary = config.section("rope_parameters").assume(rope_theta=10000.0, rope_type="axial")
        rotary.expect("rope_theta", (10000.0, 10000))
        rotary.expect("rope_type", ("axial",))
    return {
        "patch": config.count("patch_size"),
        "frames": config.count("temporal_patch_size"),
        "channels": config.count(channels),
        "merge": config.count("spatial_merge_size"),
        "positions": "rope_2d",
    }


def head_count(config: HfConfig, key: str, width: str) -> int:
    """A number of heads. Raises InputError where it does not divide the width."""
    count = config.count(key)
    if config.count(width) % count:
        raise config.wrong_value(key, f"a number of heads that divides {width}")
    return count


def whisper(config: HfConfig) -> Audio:
    """The encoder of Whisper (arXiv 2212.04356); its decoder is left out."""
    module = audio_encoder(config)
    width, ffn, layers = module.hidden, config.count("decoder_ffn_dim"), config.count("decoder_layers")
    attention, mlp = 4 * width**2 + 3 * width, 2 * width * ffn + ffn + width
    tables = config.count("vocab_size") + config.assume(max_target_positions=448).count("max_target_positions")
    config.read_keys |= {"decoder_attention_heads", "tie_word_embeddings"}
    config.leave_out("the decoder", layers * (2 * attention + mlp + 6 * width) + tables * width + 2 * width)
    config.add("the projector that each audio encoder has", (width + 1) * width)
    return module


def audio_encoder(config: HfConfig, out: int | None = None, pool: int = 1) -> Audio:
    """The encoder of Whisper and Qwen2-Audio; without a decoder, the projector's output is as wide as the layers."""
    config.assume(activation_function="gelu", max_source_positions=1500)
    config.expect("activation_function", GELU)
    width, positions = config.count("d_model"), config.count("max_source_positions")
    config.read_keys |= {"num_hidden_layers"}  # which repeats encoder_layers
    config.leave_out(f"the fixed table of {positions} positions, which is computed", positions * width)
    return Audio(
        layers=config.count("encoder_layers", MOST_LAYERS),
        hidden=width,
        heads=head_count(config, "encoder_attention_heads", "d_model"),
        ffn=config.count("encoder_ffn_dim"),
        mels=config.count("num_mel_bins"),
        pool=pool,
        out=out or width,
    )
