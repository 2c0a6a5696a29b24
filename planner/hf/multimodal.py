"""Multimodal models: an encoder whose tokens a decoder reads."""

from collections.abc import Callable, Collection
from typing import Any

from planner.hf.decoders import activated, read_module
from planner.hf.encoders import ENCODERS, read_layers
from planner.hf.families import DECODERS
from planner.hf.hf_config import HfConfig
from planner.specs.base import with_fields
from planner.specs.layers import Decoder, Module
from planner.specs.layers.head_widths import head_dim
from planner.specs.layers.vit import Projector

Modules = dict[str, Module]
Whole = Callable[[HfConfig], Modules]
IMAGE_KEYS = {
    "boi_token_index", "eoi_token_index", "ignore_index", "image_token_id", "image_token_index",
    "media_placeholder_token_id", "use_unified_vision_chunk", "video_placeholder", "video_token_id",
    "vision_end_token_id", "vision_start_token_id", "vision_token_id",
}  # fmt: skip
USUAL_SECTIONS = {  # of rotary pairs, in families in which they are interleaved
    "qwen3_vl_text": [24, 20, 20], "qwen3_vl_moe_text": [24, 20, 20],
    "qwen3_5_text": [11, 11, 10], "qwen3_5_moe_text": [11, 11, 10],
}  # fmt: skip
LLAVA_TOWERS = ("clip_vision_model", "siglip_vision_model")


def llava(config: HfConfig) -> Modules:
    """LLaVA (arXiv 2304.08485): an image tower, of which one layer's patches are read, two linears, a decoder."""
    config.assume(multimodal_projector_bias=True, projector_hidden_act="gelu", vision_feature_layer=-2)
    config.assume(vision_feature_select_strategy="default")
    text, part = read_text(config), config.section("vision_config")
    vision = read_module(part, ENCODERS[known_kind(part, part.text("model_type"), LLAVA_TOWERS)], out=text.hidden)
    part.read_keys |= {"vocab_size"}  # of the tower's twin for text
    config.read_keys |= {"image_token_index", "image_token_id", "image_seq_length"}
    config.expect("vision_feature_select_strategy", ("default" if vision.class_token else "full",))
    layer = config.value("vision_feature_layer")
    if type(layer) is not int:
        raise config.wrong_value("vision_feature_layer", "the number of one layer")
    between: Any = activated("projector_hidden_act")(config)["activation"] or "gelu"
    projector = Projector(inner="out", activation=between, bias=config.flag("multimodal_projector_bias"))
    return {"vision": with_fields(read_layers(config, vision, layer), projector=projector), "llm": text}


def qwen_vl(tower: str, family: str) -> Whole:
    """A Qwen decoder with a vision tower. Its keys are at the top of older files, in a mapping of newer ones: Qwen2-VL
    (arXiv 2409.12191), Qwen2.5-VL (arXiv 2502.13923), Qwen3-VL (arXiv 2511.21631), Qwen3.5.
    """

    def read(config: HfConfig) -> Modules:
        config.read_keys |= IMAGE_KEYS
        whole = "text_config" not in config.values and family == "qwen2"
        text = sectioned(config.assume(rope_theta=1e6), family) if whole else read_text(config, family, sectioned)
        part = config.section("vision_config")
        vision = read_module(part, ENCODERS[tower])
        if vision.out != text.hidden:
            key = "out_hidden_size" if "out_hidden_size" in part.values else "hidden_size"
            raise part.wrong_value(key, f"the decoder's width, {text.hidden}")
        return {"vision": vision, "llm": text}

    return read


def with_tower(name: str, tower: str, family: str, usual: dict[str, Any] | None = None, **fields: Any) -> Whole:
    """A decoder, and an encoder, with these `fields`, whose outputs are as wide as it: Llama 4 (of which a file may
    leave the tower's keys out), Kimi-K2.5, Llama 3.2 Vision (arXiv 2407.21783, section 7), Qwen2-Audio (2407.10759).
    """

    def read(config: HfConfig) -> Modules:
        config.read_keys |= {*IMAGE_KEYS, "audio_token_index", "audio_token_id"}
        text = read_text(config, family)
        part = config.assume(**{f"{name}_config": {}}).section(f"{name}_config").assume(**usual or {})
        return {name: read_module(part, ENCODERS[tower], out=text.hidden, **fields), "llm": text}

    return read


def sectioned(config: HfConfig, family: str) -> Decoder:
    """A decoder whose rotary pairs rotate by time, row and column, in the sections that the file gives, or as usual."""
    text: Decoder = read_module(config, DECODERS[family])
    key = next((key for key in ("rope_parameters", "rope_scaling") if config.values.get(key)), None)
    usual, pairs = USUAL_SECTIONS.get(family, []), int(head_dim(text) * text.rotary_share) // 2
    if key is None and sum(usual) != pairs:
        return text
    part = config.section(key) if key else HfConfig({}, config.name)
    part.assume(mrope_section=usual if sum(usual) == pairs else []).read_keys |= {
        *part.values
    }  # the others are read with those of the decoder
    sections = part.numbers("mrope_section")
    if sections and (len(sections) != 3 or sum(sections) != pairs or not all(sections)):
        raise part.wrong_value("mrope_section", f"three numbers that add up to {pairs}")
    return with_fields(text, rope_sections=tuple(sections), rope_interleaved=bool(usual and sections))


def read_text(config: HfConfig, family: str = "", read: Callable[[HfConfig, str], Decoder] | None = None) -> Decoder:
    """The decoder in `text_config`, of this family where it says none; tied if the whole file says so, or says nothing
    and the text config does.
    """
    part = config.section("text_config")
    kind = part.assume(model_type=family).text("model_type") if family else part.text("model_type")
    if read is not None and family == "qwen2":  # whose text says qwen2_vl_text, or the kind of the whole
        kind = family
        part.assume(rope_theta=1e6)
    known_kind(part, kind, DECODERS)
    text = read(part, kind) if read else read_module(part, DECODERS[kind])
    tied = config.assume(tie_word_embeddings=text.tied).flag("tie_word_embeddings")
    return with_fields(text, tied=tied)


def known_kind(part: HfConfig, kind: str, kinds: Collection[str]) -> str:
    """The kind of a part. Raises InputError where it is none of these."""
    if kind not in kinds:
        raise part.key_error("model_type", f"a {kind} is not read here", f"one of {', '.join(sorted(kinds))}")
    return kind


AUDIO_SHAPE = {
    "num_mel_bins": 128, "encoder_layers": 32, "encoder_attention_heads": 20, "encoder_ffn_dim": 5120, "d_model": 1280,
}  # fmt: skip
MULTIMODAL: dict[str, Whole] = {  # by `model_type`
    "llava": llava,
    "qwen2_vl": qwen_vl("qwen2_vl", "qwen2"),
    "qwen2_5_vl": qwen_vl("qwen2_5_vl", "qwen2"),
    "qwen3_vl": qwen_vl("qwen3_vl", "qwen3_vl_text"),
    "qwen3_vl_moe": qwen_vl("qwen3_vl", "qwen3_vl_moe_text"),
    "qwen3_5": qwen_vl("qwen3_vl", "qwen3_5_text"),
    "qwen3_5_moe": qwen_vl("qwen3_vl", "qwen3_5_moe_text"),
    "kimi_k25": with_tower("vision", "kimi_k25", "deepseek_v3"),
    "llama4": with_tower("vision", "llama4", "llama4_text"),
    "mllama": with_tower("vision", "mllama_vision_model", "mllama_text_model"),
    "qwen2_audio": with_tower("audio", "whisper", "qwen2", AUDIO_SHAPE, pool=2),
}
