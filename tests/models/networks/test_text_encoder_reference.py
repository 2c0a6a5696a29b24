"""Text encoders, and decoders that attend to them, have the losses and gradients of transformers' BERT and T5."""

import importlib
import warnings
from dataclasses import replace
from functools import partial
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F

from planner.hf import HfConfig, read_modules
from planner.hf.encoders import t5
from planner.hf.weight_names import stored_names
from planner.models.batch import CrossAttentionMemory
from planner.models.build import build
from planner.models.checkpoints.hugging_face import load_checkpoint, require_checkpoint
from planner.models.inputs.training_items import synthetic_batch
from planner.models.kernels.relative_positions import MAX_DISTANCE, bucket_indices
from planner.specs.base import with_fields
from tests.models.checkpoints.test_hugging_face import varied
from tests.models.networks.test_state_space_reference import Wide

READ, DOCUMENTS = [(4, 12), (1, 150), (2, 5)], [(0, 9), (1, 4), (2, 140)]
BERT = {"vocab_size": 40, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 20}
T5 = {"vocab_size": 40, "d_model": 24, "d_kv": 5, "d_ff": 20, "num_layers": 2, "num_decoder_layers": 3, "num_heads": 4}
PARTS = {"query": "q", "key": "k", "value": "v", "output": "o", "gate": "wi_0", "down": "wo"}


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    """Transformers computes in float64 throughout, without dropout."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for kind in ("bert", "t5"):
            monkeypatch.setattr(importlib.import_module(f"transformers.models.{kind}.modeling_{kind}"), "torch", Wide())


def theirs_of(kind, config):
    import transformers

    torch.manual_seed(3)
    model = getattr(transformers, kind)(config)
    return varied(model.double().eval())


def filled(spec, theirs, name):
    """The module here with their weights."""
    model, stored = build(spec, dtype=torch.float64), dict(theirs.named_parameters())
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            parameter.copy_(stored[name(key)])
    return model


def assert_alike(ours, theirs, names, unseen=()):
    """Gradients here, by their names there, equal theirs; and there are no others."""
    found = {}
    for name, parameter in ours:  # copies of one of theirs have a part of its gradient each
        found[names[name]] = found.get(names[name], 0) + parameter.grad
    want = {name: parameter.grad for name, parameter in theirs.named_parameters()}
    assert found.keys() == want.keys()
    floor = 1e-3 * max(gradient.norm() for gradient in want.values() if gradient is not None)
    for name, gradient in found.items():
        if name in unseen:
            assert want[name] is None and not gradient.any(), name
        else:
            wanted = want[name]
            assert (gradient - wanted).norm() <= 1e-10 * max(wanted.norm(), floor), name


def bert(config, kind):
    return read_modules(HfConfig(config.to_dict() | {"architectures": [kind]}, "config.json"))["encoder"]


@pytest.mark.parametrize("kind", ["BertForMaskedLM", "BertForPreTraining"])
def test_a_checkpoint_of_bert_is_read(kind, tmp_path):
    from transformers import BertConfig

    config = BertConfig(**BERT, max_position_embeddings=9)
    spec, theirs = (
        bert(config, kind),
        theirs_of(kind, config),
    )
    theirs.save_pretrained(tmp_path)
    require_checkpoint([spec], tmp_path)
    model, want = build(spec, dtype=torch.float64), dict(theirs.named_parameters())
    load_checkpoint(model, spec, tmp_path)
    assert all(torch.equal(values, want[stored_names(name, spec)[0]]) for name, values in model.named_parameters())


@pytest.mark.parametrize("kind", ["BertForMaskedLM", "BertForPreTraining"])
def test_bert(kind):
    from transformers import BertConfig

    config = BertConfig(**BERT, max_position_embeddings=160, layer_norm_eps=1e-3)
    spec = bert(config, kind)
    theirs = theirs_of(kind, config)
    theirs.get_input_embeddings().padding_idx = None  # the row of padding would have no gradient
    model = filled(spec, theirs, lambda name: stored_names(name, spec)[0])
    batch = synthetic_batch(spec, DOCUMENTS, seed=5)
    loss = model(batch)
    loss.backward()
    want = 0.0
    for first, last in pairwise(batch.cu_seqlens.tolist()):
        logits = theirs(batch.inputs[None, first:last])
        logits = logits.logits if kind == "BertForMaskedLM" else logits.prediction_logits
        want = want + F.cross_entropy(logits[0], batch.targets[first:last], reduction="sum")
    want.backward()
    torch.testing.assert_close(loss, want, rtol=1e-12, atol=0)
    names = {name: stored_names(name, spec)[0] for name, _ in model.named_parameters()}
    unseen = [stored for name, stored in names.items() if name.startswith(("pooler", "classes"))]
    assert_alike(model.named_parameters(), theirs, names, unseen)


def t5_name(half, ours, gated):
    """The name of a parameter of one half of T5."""
    ends = {
        "embedding.weight": "shared.weight",
        "relative.weight": f"{half}.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
        "norm.weight": f"{half}.final_layer_norm.weight",
    }
    if ours in ends:
        return ends[ours]
    _, layer, block, *rest = ours.split(".")
    kind = block.removesuffix("_norm")
    place = {"attention": 0, "cross_attention": 1, "mlp": 1 if half == "encoder" else 2}[kind]
    there = {"attention": "SelfAttention", "cross_attention": "EncDecAttention", "mlp": "DenseReluDense"}[kind]
    parts = PARTS | {"up": "wi_1" if gated else "wi"}
    route = [parts[rest[0]], rest[1]] if len(rest) > 1 else rest
    return ".".join([half, "block", layer, "layer", str(place), "layer_norm" if "_norm" in block else there, *route])


def both_halves(encoder, decoder, read, batch):
    """The loss of a decoder that attends to an encoder's outputs of other documents."""
    encoder.feeds_module = True
    memory = CrossAttentionMemory(encoder(read), read.cu_seqlens)
    return decoder(replace(batch, memory=memory))


@pytest.mark.parametrize("forward", ["relu", "gated-gelu"])
def test_t5(forward):
    from transformers import T5Config

    gated = forward != "relu"
    config = T5Config(**T5, feed_forward_proj=forward, layer_norm_epsilon=1e-3, dropout_rate=0.0)
    specs = t5(HfConfig(config.to_dict(), "config.json"))
    theirs = theirs_of("T5ForConditionalGeneration", config)
    specs["encoder"] = with_fields(specs["encoder"], shared_words=False)  # each half has a copy of the table
    halves = {
        half: filled(spec, theirs, partial(t5_name, half, gated=gated))
        for half, spec in (("encoder", specs["encoder"]), ("decoder", specs["llm"]))
    }
    read = synthetic_batch(specs["encoder"], READ, seed=5)
    batch = synthetic_batch(specs["llm"], DOCUMENTS, seed=6)
    loss = both_halves(*halves.values(), read, batch)
    loss.backward()
    want = 0.0
    for words, own in zip(pairwise(read.cu_seqlens.tolist()), pairwise(batch.cu_seqlens.tolist()), strict=True):
        ids = (each.inputs[None, slice(*span)] for each, span in ((read, words), (batch, own)))
        logits = theirs(input_ids=next(ids), decoder_input_ids=next(ids), use_cache=False).logits[0]
        want = want + F.cross_entropy(logits, batch.targets[slice(*own)], reduction="sum")
    want.backward()
    torch.testing.assert_close(loss, want, rtol=1e-12, atol=0)
    ours = [(f"{half}.{name}", p) for half, model in halves.items() for name, p in model.named_parameters()]
    names = {name: t5_name(*name.split(".", 1), gated) for name, _ in ours}
    assert_alike(ours, theirs, names)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("count", [4, 6, 32])
def test_buckets(causal, count):
    from transformers.models.t5.modeling_t5 import T5Attention

    distances = torch.arange(-2 * MAX_DISTANCE, 2 * MAX_DISTANCE)
    want = T5Attention._relative_position_bucket(distances, not causal, count, MAX_DISTANCE)
    assert torch.equal(bucket_indices(distances, count, causal), want)
