"""Phi-3 and Phi-4 have the loss and gradients of transformers' own in float64: fused projections are those of Llama."""

import json
import warnings

import pytest
import torch
import torch.nn.functional as F

from planner import hf
from planner.models.build import build
from planner.models.inputs.training_items import synthetic_batch
from tests.models.networks.test_network import loss_and_gradients

SMALL = {
    "model_type": "phi3", "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 40, "pad_token_id": 0, "rms_norm_eps": 1e-5, "rope_theta": 250000,
    "tie_word_embeddings": False, "sliding_window": None,
}  # fmt: skip


def fused(values, prefix):
    """Our matrices of a layer as one of queries, keys and values, and one of gates and up projections."""
    attention, mlp = f"{prefix}attention.", f"{prefix}mlp."
    yield "self_attn.qkv_proj", torch.cat([values[f"{attention}{part}.weight"] for part in ("query", "key", "value")])
    yield "self_attn.o_proj", values[f"{attention}output.weight"]
    yield "mlp.gate_up_proj", torch.cat([values[f"{mlp}gate.weight"], values[f"{mlp}up.weight"]])
    yield "mlp.down_proj", values[f"{mlp}down.weight"]
    yield "input_layernorm", values[f"{prefix}attention_norm.weight"]
    yield "post_attention_layernorm", values[f"{prefix}mlp_norm.weight"]


def theirs_of(values, layers):
    """Our values under the names of transformers."""
    found = {"model.embed_tokens.weight": values["embedding.weight"], "lm_head.weight": values["head.weight"]}
    found["model.norm.weight"] = values["norm.weight"]
    for layer in range(layers):
        for name, value in fused(values, f"layers.{layer}."):
            found[f"model.layers.{layer}.{name}.weight"] = value
    return found


@pytest.mark.filterwarnings("ignore")
def test_gradients_equal_those_of_transformers(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import transformers
    (tmp_path / "config.json").write_text(json.dumps(SMALL))
    spec = hf.read(tmp_path).model.modules["llm"]
    ours = build(spec, dtype=torch.float64)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in ours.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * 0.2)
    config = transformers.CONFIG_MAPPING["phi3"].from_dict(SMALL)
    network = transformers.AutoModelForCausalLM.from_config(config).double().train()
    network.get_input_embeddings().padding_idx = None
    network.load_state_dict(theirs_of({name: each.detach() for name, each in ours.named_parameters()}, spec.layers))
    batch = synthetic_batch(spec, [(0, 13)], seed=5)
    loss, gradients = loss_and_gradients(ours, [batch])
    logits = network(batch.inputs[None], use_cache=False).logits[0]
    want = F.cross_entropy(logits, batch.targets, reduction="sum")
    want.backward()
    torch.testing.assert_close(loss, want.detach(), rtol=1e-6, atol=0)  # its norms and rotations are in float32
    wanted = {name: parameter.grad for name, parameter in network.named_parameters()}
    for name, gradient in theirs_of(gradients, spec.layers).items():
        torch.testing.assert_close(gradient, wanted[name], rtol=1e-4, atol=1e-5 * float(wanted[name].abs().max()))
