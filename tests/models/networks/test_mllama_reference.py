"""A decoder with cross attention in some layers has the logits, losses and gradients of transformers' Mllama."""

import warnings
from dataclasses import replace
from itertools import accumulate, pairwise

import pytest
import torch
import torch.nn.functional as F

from planner.hf.decoders import read_module
from planner.hf.families import DECODERS
from planner.hf.hf_config import HfConfig
from planner.models.batch import Batch, CrossAttentionMemory
from planner.models.build import build
from planner.models.inputs.training_items import synthetic_batch
from tests.models.checkpoints.test_hugging_face import varied

TEXT = {"vocab_size": 40, "hidden_size": 32, "num_hidden_layers": 5, "num_attention_heads": 4, "num_key_value_heads": 2,
        "intermediate_size": 24, "cross_attention_layers": [1, 3], "pad_token_id": 0}  # fmt: skip
DOCUMENTS, READ = [(0, 9), (1, 14), (2, 6), (3, 11)], (7, 0, 12, 0)  # documents without images among others
PARTS = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "o_proj", "query_norm": "q_norm",
         "key_norm": "k_norm", "gate": "gate_proj", "up": "up_proj", "down": "down_proj"}  # fmt: skip
BLOCKS = {"attention": "self_attn", "cross_attention": "cross_attn", "mlp": "mlp", "attention_norm": "input_layernorm",
          "cross_attention_norm": "input_layernorm", "mlp_norm": "post_attention_layernorm",
          "cross_attention_gate": "cross_attn_attn_gate", "mlp_gate": "cross_attn_mlp_gate"}  # fmt: skip
ENDS = {
    "embedding.weight": "model.embed_tokens.weight",
    "norm.weight": "model.norm.weight",
    "head.weight": "lm_head.weight",
}


def stored_name(ours):
    """The name there of a parameter here."""
    if ours in ENDS:
        return ENDS[ours]
    _, layer, block, *rest = ours.split(".")
    return ".".join(["model.layers", layer, BLOCKS[block], *(PARTS.get(part, part) for part in rest)])


@pytest.fixture(scope="module")
def both():
    """Transformers' model with random weights, gates among them, and the module here with the same."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformers.models.mllama.configuration_mllama import MllamaTextConfig
        from transformers.models.mllama.modeling_mllama import MllamaForCausalLM

    config = MllamaTextConfig(**TEXT, rope_parameters={"rope_type": "default", "rope_theta": 500000.0})
    torch.manual_seed(3)
    theirs = varied(MllamaForCausalLM(config).eval())
    theirs.get_input_embeddings().padding_idx = None
    spec = read_module(HfConfig(config.to_dict(), "config.json"), DECODERS["mllama_text_model"])
    ours, stored = build(spec), dict(theirs.named_parameters())
    with torch.no_grad():
        for name, parameter in ours.named_parameters():
            parameter.copy_(stored[stored_name(name)])
    assert {*map(stored_name, dict(ours.named_parameters()))} == {*stored}
    return spec, ours, theirs


def batch_of(spec) -> Batch:
    ends = torch.tensor([0, *accumulate(READ)], dtype=torch.int32)
    values = torch.randn(sum(READ), spec.cross_attention_width, generator=torch.Generator().manual_seed(5))
    return replace(synthetic_batch(spec, DOCUMENTS, seed=5), memory=CrossAttentionMemory(values, ends))


def their_logits(theirs, batch):
    """Document by document; one that reads nothing is a text alone, which passes over layers of cross attention."""
    spans = zip(pairwise(batch.cu_seqlens.tolist()), pairwise(batch.memory.cu_seqlens.tolist()), strict=True)
    for (first, last), (begin, end) in spans:
        read = {}
        if begin < end:  # without a mask it would be causal
            read["cross_attention_states"] = batch.memory.values[None, begin:end]
            read["cross_attention_mask"] = torch.zeros(1, 1, last - first, end - begin)
        yield theirs(batch.inputs[None, first:last], **read, use_cache=False).logits[0]


@pytest.mark.slow
def test_logits_losses_and_gradients(both):
    spec, ours, theirs = both
    batch = batch_of(spec)
    x = ours.embed(batch)
    encoding = ours.position_encoding(x, batch)
    for layer in ours.layers.values():
        x = layer(x, encoding, batch)
    logits, want = ours.logits(ours.norm(x)), torch.cat([*their_logits(theirs, batch)])
    torch.testing.assert_close(logits, want, rtol=1e-5, atol=1e-5)
    loss, wanted = ours(batch), F.cross_entropy(want, batch.targets, reduction="sum")
    torch.testing.assert_close(loss, wanted, rtol=1e-5, atol=0)
    loss.backward()
    wanted.backward()
    stored = dict(theirs.named_parameters())
    for name, parameter in ours.named_parameters():
        gradient = stored[stored_name(name)].grad
        assert gradient.any(), name
        assert (parameter.grad - gradient).norm() <= 1e-4 * gradient.norm(), name


@pytest.mark.slow
def test_a_batch_without_images_is_a_text_model(both):
    spec, ours, theirs = both
    batch = synthetic_batch(spec, DOCUMENTS, seed=5)
    ours.zero_grad()
    loss = ours(batch)
    spans = pairwise(batch.cu_seqlens.tolist())
    logits = torch.cat([theirs(batch.inputs[None, first:last], use_cache=False).logits[0] for first, last in spans])
    torch.testing.assert_close(loss, F.cross_entropy(logits, batch.targets, reduction="sum"), rtol=1e-5, atol=0)
    loss.backward()
    skipped = {name: parameter.grad for name, parameter in ours.named_parameters() if name.startswith("layers.1.")}
    assert skipped and not any(gradient.any() for gradient in skipped.values())
