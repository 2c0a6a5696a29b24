"""Text encoders, alone (BERT) or with a decoder that attends to them (T5)."""

from typing import Any

from planner.hf.decoders import MOST_LAYERS
from planner.hf.hf_config import HfConfig
from planner.specs.layers import Decoder, Module, TextEncoder

BERT_HEADS = {  # (predicts, pooled, classes)
    "BertForMaskedLM": (True, False, 0),
    "BertForPreTraining": (True, True, 2),
    "BertModel": (False, True, 0),
}
T5_ACTIVATIONS = {"relu": (False, "relu"), "gated-gelu": (True, "gelu_tanh")}  # (gated, activation)


def bert(config: HfConfig) -> TextEncoder:
    """BERT (arXiv 1810.04805); its architecture decides which heads it has: without one, the pooler alone."""
    config.assume(vocab_size=30522, hidden_size=768, num_hidden_layers=12, num_attention_heads=12)
    config.assume(intermediate_size=3072, max_position_embeddings=512, type_vocab_size=2, layer_norm_eps=1e-12)
    config.assume(hidden_act="gelu", architectures=None, is_decoder=False)
    config.expect("hidden_act", ("gelu",))
    if config.flag("is_decoder"):
        raise config.key_error("is_decoder", "a causal BERT cannot be expressed", "give an encoder's config.json")
    kind = (config.value("architectures") or ["BertModel"])[0]
    if kind not in BERT_HEADS:
        raise config.key_error(
            "architectures", f"the heads of `{kind}` are not known", f"one of {', '.join(BERT_HEADS)}"
        )
    predicts, pooled, classes = BERT_HEADS[kind]
    return TextEncoder(
        layers=config.count("num_hidden_layers", MOST_LAYERS),
        hidden=config.count("hidden_size"),
        heads=config.count("num_attention_heads"),
        ffn=config.count("intermediate_size"),
        vocab=config.count("vocab_size"),
        max_positions=config.count("max_position_embeddings"),
        segments=config.count_or_none("type_vocab_size") or 0,
        input_norm=True,
        post_norm=True,
        predicts=predicts,
        pooled=pooled,
        classes=classes,
        norm_eps=config.number("layer_norm_eps"),
    )


def t5(config: HfConfig) -> dict[str, Module]:
    """T5 (arXiv 1910.10683): both halves share one embedding, and each has its own relative positions."""
    config.assume(vocab_size=32128, d_model=512, d_kv=64, d_ff=2048, num_layers=6, num_heads=8)
    config.assume(num_decoder_layers=None, relative_attention_num_buckets=32, relative_attention_max_distance=128)
    config.assume(layer_norm_epsilon=1e-6, feed_forward_proj="relu", tie_word_embeddings=True)
    config.expect("relative_attention_max_distance", (128,))
    config.read_keys |= {"dense_act_fn", "is_gated_act", "scale_decoder_outputs"}
    projection = config.text("feed_forward_proj")
    if projection not in T5_ACTIVATIONS:
        raise config.key_error(
            "feed_forward_proj", f"`{projection}` is not known", f"one of {', '.join(T5_ACTIVATIONS)}"
        )
    gated, activation = T5_ACTIVATIONS[projection]
    hidden, layers = config.count("d_model"), config.count("num_layers", MOST_LAYERS)
    shape: dict[str, Any] = {
        "hidden": hidden, "heads": config.count("num_heads"), "head_dim": config.count("d_kv"),
        "ffn": config.count("d_ff"), "vocab": config.count("vocab_size"), "gated": gated, "activation": activation,
        "norm": "rms", "bias": "none", "positions": "relative",
        "buckets": config.count("relative_attention_num_buckets"), "norm_eps": config.number("layer_norm_epsilon"),
    }  # fmt: skip
    return {
        "encoder": TextEncoder(layers=layers, shared_words=True, **shape),
        "llm": Decoder(
            layers=config.count_or_none("num_decoder_layers") or layers,
            cross=hidden,
            tied=config.flag("tie_word_embeddings"),
            scaled_head=config.flag("tie_word_embeddings"),
            **shape,
        ),
    }
