"""BERT and T5 as Megatron trains them: a text encoder alone, and an encoder with a decoder that attends to it.

Both are pre-norm with learned positions (megatron/core/models/{bert,T5}); BERT has two segments, a language-model head,
and a binary head over pairs.
"""

from typing import Any, NamedTuple

from planner.published import megatron_arguments
from planner.published.record_files import PublishedRecord, UnusableRecord
from planner.specs.layers import Decoder, TextEncoder

# Of Megatron's usual tokenizers: BertWordPieceLowerCase; BertWordPieceCase with T5's hundred sentinel tokens.
BERT_TOKENS, T5_TOKENS = 30522, 28996 + 100
T5_DECODED = 128  # tokens: --decoder-seq-length of Megatron-LM's examples/t5, beside 512 of the encoder


class EncoderDecoder(NamedTuple):
    """A decoder, its tokens of a sequence, and the encoder that it attends to."""

    decoder: Decoder
    decoder_tokens: int
    encoder: TextEncoder


def bert_encoder(record: PublishedRecord) -> TextEncoder:
    """BERT of a record's columns. Raises UnusableRecord."""
    stated_arguments = megatron_arguments.arguments_of(record)
    positions = stated_arguments.max_positions or record.count("seq_len") or 512
    more: dict[str, Any] = {} if stated_arguments.is_set("bert-no-binary-head") else {"pooled": True, "classes": 2}
    return TextEncoder(
        **shared_fields(record, BERT_TOKENS, record.count("layers")),
        max_positions=positions,
        segments=2,
        predicts=True,
        **more,
    )


def t5_encoder_decoder(record: PublishedRecord) -> EncoderDecoder:
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
    return EncoderDecoder(decoder, tokens, encoder)


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
