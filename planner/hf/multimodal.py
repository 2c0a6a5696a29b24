"""Multimodal models: an encoder whose tokens a decoder reads."""

from collections.abc import Callable
from typing import Any, TypeVar

from planner.hf.decoders import build_decoder, llama, llama_fields, mistral, qwen2, qwen3
from planner.hf.encoders import (
    activation,
    audio_encoder,
    clip,
    mllama_vision,
    qwen2_5_vision,
    qwen2_vision,
    read_layers,
    siglip,
)
from planner.hf.hf_config import HfConfig
from planner.specs.base import with_fields
from planner.specs.layers import Decoder, Module, Vit
from planner.specs.layers.head_widths import head_dim
from planner.specs.layers.vit import Projector

Modules = dict[str, Module]
Family = TypeVar("Family")
MLLAMA_ADDED_WORDS = 8  # rows that the embedding has for images, and the head has not: a constant in the code
MLLAMA_TEXT: dict[str, Any] = {  # what a text_config may leave out
    "vocab_size": 128256,
    "hidden_size": 4096,
    "num_hidden_layers": 40,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "cross_attention_layers": [3, 8, 13, 18, 23, 28, 33, 38],
}
TEXT_READERS: dict[str, Callable[[HfConfig], Decoder]] = {
    "llama": llama,
    "mistral": mistral,
    "qwen2": qwen2,
    "qwen3": qwen3,
}
VISION_READERS: dict[str, Callable[[HfConfig, int | None], Vit]] = {
    "clip_vision_model": clip,
    "siglip_vision_model": siglip,
}


def llava(config: HfConfig) -> Modules:
    """LLaVA (arXiv 2304.08485): an image tower, of which one layer's patches are read, two linears, a decoder."""
    config.assume(multimodal_projector_bias=True, projector_hidden_act="gelu", vision_feature_layer=-2)
    config.assume(vision_feature_select_strategy="default")
    text, part = read_text(config), config.section("vision_config")
    vision = reader_for(part, VISION_READERS)(part, text.hidden)
    part.read_keys |= {"vocab_size"}  # of the tower's twin for text
    config.read_keys |= {"image_token_index", "image_token_id", "image_seq_length"}
    config.expect("vision_feature_select_strategy", ("default" if vision.class_token else "full",))
    layer = config.value("vision_feature_layer")
    if type(layer) is not int:
        raise config.wrong_value("vision_feature_layer", "the number of one layer")
    between = activation(config, "projector_hidden_act") or "gelu"
    projector = Projector(inner="out", activation=between, bias=config.flag("multimodal_projector_bias"))
    return {"vision": with_fields(read_layers(config, vision, layer), projector=projector), "llm": text}


def qwen2_vl(config: HfConfig) -> Modules:
    """Qwen2-VL (arXiv 2409.12191): a vision tower and a Qwen2 decoder."""
    return with_vision(config, qwen2_vision)


def qwen2_5_vl(config: HfConfig) -> Modules:
    """Qwen2.5-VL (arXiv 2502.13923): a vision tower with windows and a Qwen2 decoder."""
    return with_vision(config, qwen2_5_vision)


def with_vision(config: HfConfig, tower: Callable[[HfConfig], Vit]) -> Modules:
    """A Qwen decoder with a vision tower. Its keys are at the top of older files, in a mapping of newer ones."""
    config.read_keys |= {"image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id"}
    config.read_keys |= {"vision_token_id"}
    whole = "text_config" not in config.values
    text = sectioned(config.assume(rope_theta=1e6)) if whole else read_text(config, sectioned)
    part = config.section("vision_config")
    vision = tower(part)
    if vision.out != text.hidden:
        key = "out_hidden_size" if "out_hidden_size" in part.values else "hidden_size"
        raise part.wrong_value(key, f"the decoder's width, {text.hidden}")
    return {"vision": vision, "llm": text}


def sectioned(config: HfConfig) -> Decoder:
    """A Qwen2 decoder whose rotary pairs rotate by time, row and column, in the sections that the file gives."""
    text = qwen2(config)
    key = next((key for key in ("rope_parameters", "rope_scaling") if config.values.get(key)), None)
    if key is None:
        return text
    part = config.section(key).assume(mrope_section=[])
    part.read_keys |= {*part.values}  # the others are read with those of the decoder
    sections, pairs = part.numbers("mrope_section"), head_dim(text) // 2
    if sections and (len(sections) != 3 or sum(sections) != pairs or not all(sections)):
        raise part.wrong_value("mrope_section", f"three numbers that add up to {pairs}")
    return with_fields(text, rope_sections=tuple(sections))


def qwen2_audio(config: HfConfig) -> Modules:
    """Qwen2-Audio (arXiv 2407.10759): Whisper's encoder, pairs of its tokens averaged, one linear, a decoder."""
    text, part = read_text(config), config.section("audio_config")
    config.read_keys |= {"audio_token_index", "audio_token_id", "ignore_index"}
    part.assume(num_mel_bins=128, encoder_layers=32, encoder_attention_heads=20, encoder_ffn_dim=5120, d_model=1280)
    return {"audio": audio_encoder(part, text.hidden, pool=2), "llm": text}


def mllama(config: HfConfig) -> Modules:
    """Llama 3.2 Vision (arXiv 2407.21783, section 7): some decoder layers attend to images, of a tower over tiles."""
    config.read_keys |= {"image_token_index", "image_token_id"}
    text = read_text(config, mllama_text)
    return {"vision": mllama_vision(config.section("vision_config"), text.hidden), "llm": text}


def mllama_text(config: HfConfig) -> Decoder:
    """The decoder alone: cross_attention_layers have that in place of attention, norms of its heads, and gates."""
    config.assume(**MLLAMA_TEXT)
    fields, words = llama_fields(config), config.numbers("cross_attention_layers")
    if not words or words[-1] >= fields["layers"] or sorted({*words}) != words:
        raise config.wrong_value("cross_attention_layers", f"a rising list of layers below {fields['layers']}")
    pattern = " ".join("X-" if layer in words else "*-" for layer in range(fields["layers"]))
    own = {"added_words": MLLAMA_ADDED_WORDS, "cross": fields["hidden"], "pattern": pattern}
    return build_decoder(config, {**fields, **own, "cross_norms": True, "cross_gates": True})


def read_text(config: HfConfig, family: Callable[[HfConfig], Decoder] | None = None) -> Decoder:
    """The decoder in `text_config`; tied if the whole file says so, or says nothing and the text config does."""
    part = config.section("text_config")
    if family is not None:
        part.assume(rope_theta=1e6)
    text = (family or reader_for(part, TEXT_READERS))(part)
    tied = config.assume(tie_word_embeddings=text.tied).flag("tie_word_embeddings")
    return with_fields(text, tied=tied)


def reader_for(part: HfConfig, families: dict[str, Family]) -> Family:
    """The reader for the `model_type` of a part. Raises InputError where there is none."""
    kind = part.text("model_type")
    if kind not in families:
        raise part.key_error("model_type", f"a {kind} is not read here", f"one of {', '.join(families)}")
    return families[kind]
