"""The module that a record trains: from its shape columns, else the shipped spec of that name.

BERT and T5 are as Megatron trains them: a text encoder alone, and an encoder with a decoder that attends to it. Both
are pre-norm with learned positions (megatron/core/models/{bert,T5}); BERT has two segments, a language-model head, and
a binary head over pairs.
"""

import re
from dataclasses import replace
from functools import lru_cache
from typing import Any

from planner.errors import InputError
from planner.published import megatron_arguments
from planner.published.batch_sizes import sequence_length
from planner.published.fed_model import TrainedModel, fed_model
from planner.published.model_names import (
    RECURRENT_LAYERS,
    SEVERAL_MODULES,
    plain_words,
    spec_name,
    undescribed_layers,
)
from planner.published.published_case import CaseEncoder
from planner.published.record_files import PublishedRecord, UnusableRecord
from planner.published.shipped_profiles import model_names, shipped_model
from planner.specs.base import with_fields
from planner.specs.layers import Decoder, Module, TextEncoder
from planner.specs.layers.components import Experts
from planner.specs.model import Model
from planner.specs.parameters import parameter_counts

SHAPE = ("layers", "hidden", "heads")
PARAMETER_TOLERANCE = 0.3  # by which parameters of the shape may differ from the stated number
MOST_LAYERS = 10_000  # the limit of model files
GPT = {"gated": False, "norm": "layer", "bias": "all", "positions": "learned", "tied": True}
LLAMA = {"gated": True, "norm": "rms", "bias": "none", "positions": "rope", "tied": False}
MPT = {"gated": False, "norm": "layer", "bias": "none", "positions": "rope", "tied": True}  # ALiBi: no table either
# Pattern of family or model name: fields of its layers, and its vocabulary where the record states none.
# GPT-2's 50,257 tokens, padded to a multiple of 128 on each of 8 ranks (Megatron-LM), are 51,200.
STYLES: tuple[tuple[str, dict[str, Any], int], ...] = (
    (r"\bmpt\b", MPT, 50368),
    (r"llama [34]\b", LLAMA, 128256),
    (r"qwen (?:1(?: 5)?|2(?: 5)?)\b", {**LLAMA, "bias": "qkv"}, 151936),
    (r"qwen 3\b", {**LLAMA, "qk_norm": True}, 151936),
    (r"qwen", LLAMA, 151936),
    (r"intern ?lm", LLAMA, 103168),
    (r"deep ?seek|kimi|moonlight", LLAMA, 129280),
    (r"grok", {**LLAMA, "tied": True}, 131072),
    (r"\byi\b", LLAMA, 64000),
    (r"llama|mistral|mixtral|vicuna|baichuan|aquila", LLAMA, 32000),
    (r"gpt|megatron|bloom|opt\b|turing|mt nlg", GPT, 51200),
)
# Of Megatron's usual tokenizers: BertWordPieceLowerCase; BertWordPieceCase with T5's hundred sentinel tokens.
BERT_TOKENS, T5_TOKENS = 30522, 28996 + 100
T5_DECODED = 128  # tokens: --decoder-seq-length of Megatron-LM's examples/t5, beside 512 of the encoder


def model_of_record(record: PublishedRecord) -> TrainedModel:
    """The model of a record, from its columns or its name. Raises UnusableRecord."""
    family, model = record.text("family"), record.text("model")
    shipped, other = named_model(model, family), undescribed_layers(family, model, record.text("task"))
    if other == SEVERAL_MODULES and not shipped:
        raise UnusableRecord("no spec of the model", f"{model}: {other}")
    if other and not (shipped and describes(shipped, other)):
        raise UnusableRecord("layers of a kind that is not described", f"{model}: {other}")
    text = plain_words(family, model)
    if re.search(r"\bt 5\b", text):
        return t5_encoder_decoder(record)
    if re.search(r"\bbert\b", text):
        return TrainedModel(bert_encoder(record), ("vocab",))
    if shipped and len(shipped.modules) > 1:
        found = fed_model(record, shipped, other == SEVERAL_MODULES)
        return replace(found, module=with_stated_layers(record, found.module))
    shape = {name: record.count(name) for name in SHAPE}
    if all(shape.values()):
        return model_from_columns(record)
    if shipped is None:
        raise UnusableRecord("no spec of the model", model or "not stated")
    return TrainedModel(with_stated_layers(record, shipped_module(shipped.name)))


def describes(model: Model, kind: str) -> bool:
    """Whether a spec has the layers that the name of a model tells of."""
    if kind == SEVERAL_MODULES:
        return len(model.modules) > 1
    return kind == RECURRENT_LAYERS and any(module.scan_groups for module in model.modules.values())


@lru_cache(maxsize=4096)
def named_model(name: str, family: str) -> Model | None:
    """The shipped model that a name means; None where there is none."""
    spec = spec_name(name, family, model_names())
    return shipped_model(spec) if spec else None


def shipped_module(name: str) -> Module:
    """The only module of a shipped model. Raises UnusableRecord."""
    modules = list(shipped_model(name).modules.values())
    if len(modules) > 1 or modules[0].feature_width:
        raise UnusableRecord("layers of a kind that is not described", f"{name}: several modules")
    return modules[0]


def with_stated_layers(record: PublishedRecord, module: Module) -> Module:
    """The module with the stated number of layers, as benchmarks shorten models; of several modules one number is the
    LLM's. Raises UnusableRecord.
    """
    of_each = re.search(r"\+", record.text("layers"))
    layers = None if of_each else record.count("layers")
    return module if layers in (None, module.layers) else build_decoder(module, layers=layers)


def model_from_columns(record: PublishedRecord) -> TrainedModel:
    """The model of the shape columns, with the layers of its family. Raises UnusableRecord."""
    style, vocab, assumed = family_style(record)
    hidden, ffn, experts = record.count("hidden") or 0, record.count("ffn"), record.count("experts")
    stated_arguments = megatron_arguments.arguments_of(record)
    fields: dict[str, Any] = {**style, **stated_arguments.decoder_fields(style["positions"] == "learned")}
    ffn = ffn or stated_arguments.gated_ffn(hidden)
    expert_ffn = stated_arguments.positive_integer("moe-ffn-hidden-size")
    positions = stated_arguments.positive_integer("max-position-embeddings")
    if ffn is None and fields["gated"] and not (experts and expert_ffn):
        raise UnusableRecord("shape of the model not stated", "ffn")
    if fields["positions"] == "learned":
        fields["max_positions"] = positions or record.count("seq_len") or 2048
    width = ffn or 4 * hidden
    if experts and experts > 1:
        topk = record.count("topk") or stated_arguments.positive_integer("moe-router-topk")
        if not topk:
            raise UnusableRecord("shape of the model not stated", "topk")
        fields["moe"] = stated_arguments.with_stated_experts(
            Experts(experts=experts, topk=min(topk, experts), ffn=expert_ffn or width),
            record.count("layers") or 1,
        )
    fields |= {"layers": record.count("layers"), "hidden": hidden, "heads": record.count("heads"), "ffn": width}
    tokens = stated_arguments.padded_vocab(record.count("vocab"), record.count("tp") or 1)
    fields |= {"kv_heads": record.count("kv_heads"), "vocab": tokens or vocab}
    module = build_decoder(None, **{name: value for name, value in fields.items() if value is not None})
    require_parameter_count(record, module)
    return TrainedModel(module, assumed if record.count("vocab") else ("vocab", *assumed))


def family_style(record: PublishedRecord) -> tuple[dict[str, Any], int, tuple[str, ...]]:
    """Fields of the family's layers, its vocabulary, and what of these is assumed. Raises UnusableRecord.

    Of an unknown family, an MLP four times as wide as the model is a GPT's, and any other is gated.
    """
    for name in ("family", "model"):
        text = plain_words(record.text(name))
        for words, style, vocab in STYLES:
            if re.search(words, text):
                return style, vocab, ()
    ffn, hidden = record.count("ffn"), record.count("hidden")
    if ffn is None or hidden is None:
        raise UnusableRecord("no spec of the model", f"{record.text('model')}: of what family")
    return (GPT, 51200, ("family",)) if ffn == 4 * hidden else (LLAMA, 32000, ("family",))


def build_decoder(module: Module | None, **fields: Any) -> Module:
    """`module` with these fields changed, or a new decoder of them. Raises UnusableRecord."""
    if (fields.get("layers") or 0) > MOST_LAYERS:
        raise UnusableRecord("impossible figures", f"{fields['layers']} layers")
    try:
        return with_fields(module, **fields) if module else Decoder(**fields)
    except (InputError, ValueError, TypeError) as error:
        raise UnusableRecord("impossible figures", str(error)) from error


def require_parameter_count(record: PublishedRecord, module: Module) -> None:
    """Raises UnusableRecord where the stated number of parameters differs from the shape's by over 30 %."""
    stated = record.positive("params_b")
    count = parameter_counts(module).total / 1e9
    if stated and not 1 / (1 + PARAMETER_TOLERANCE) <= count / stated <= 1 + PARAMETER_TOLERANCE:
        raise UnusableRecord("impossible figures", f"{count:.3g} billion parameters of its shape, {stated:g} as stated")


def bert_encoder(record: PublishedRecord) -> TextEncoder:
    """BERT of a record's columns. Raises UnusableRecord."""
    stated_arguments = megatron_arguments.arguments_of(record)
    positions = stated_arguments.positive_integer("max-position-embeddings") or record.count("seq_len") or 512
    more: dict[str, Any] = {} if stated_arguments.is_set("bert-no-binary-head") else {"pooled": True, "classes": 2}
    return TextEncoder(
        **shared_fields(record, BERT_TOKENS, record.count("layers")),
        max_positions=positions,
        segments=2,
        predicts=True,
        **more,
    )


def t5_encoder_decoder(record: PublishedRecord) -> TrainedModel:
    """T5 of a record's columns, with as many decoder layers as encoder layers by default. Raises UnusableRecord."""
    stated_arguments = megatron_arguments.arguments_of(record)
    layers = stated_arguments.positive_integer("encoder-num-layers") or record.count("layers")
    tokens = stated_arguments.positive_integer("decoder-seq-length") or T5_DECODED
    fields = shared_fields(record, T5_TOKENS, layers)
    encoder = TextEncoder(**fields, max_positions=record.count("seq_len") or 512, shared_words=True)
    fields |= {
        "layers": stated_arguments.positive_integer("decoder-num-layers") or layers,
        "norm": "layer",
        "bias": "all",
    }
    decoder = Decoder(
        **fields, gated=False, positions="learned", max_positions=tokens, tied=True, cross=fields["hidden"]
    )
    assumed, read = ("decoder's layers", "decoder's tokens", "vocab"), sequence_length(record)
    return TrainedModel(decoder, assumed, tokens, (CaseEncoder(encoder, read, 1.0 / tokens),), float(read))


def shared_fields(record: PublishedRecord, tokens: int, layers: int | None) -> dict[str, Any]:
    """Fields that BERT, and both halves of T5, take from the columns. Raises UnusableRecord."""
    hidden = record.count("hidden")
    heads = record.count("heads")
    stated_arguments = megatron_arguments.arguments_of(record)
    if not (layers and hidden and heads):
        raise UnusableRecord("no spec of the model", record.text("model") or "not stated")
    multiple = 128 * (record.count("tp") or 1)  # Megatron pads the vocabulary to a multiple of it
    fields = {"layers": layers, "hidden": hidden, "heads": heads, "ffn": record.count("ffn") or 4 * hidden}
    fields |= {"vocab": -(-(record.count("vocab") or tokens) // multiple) * multiple}
    return fields | ({"head_dim": stated_arguments.positive_integer("kv-channels") or 64} if hidden % heads else {})
