"""Phi-3 and Phi-4 have the losses and gradients of transformers' own in float64, by weights that it wrote: matrices
that are fused there are those of Llama here.
"""

import importlib
import re
import warnings
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F

from planner import hf
from planner.hf.weight_names import stored_names
from planner.models.build import build
from planner.models.checkpoints.hugging_face import load_checkpoint, require_checkpoint, saveable
from planner.models.inputs.training_items import synthetic_batch
from tests.checkpoint_files import save_checkpoint
from tests.models.checkpoints.test_hugging_face import DOCUMENTS, state, varied
from tests.models.networks.test_network import loss_and_gradients
from tests.models.networks.test_state_space_reference import Wide

FUSED = {"q_proj": "qkv_proj", "k_proj": "qkv_proj", "v_proj": "qkv_proj", "gate_proj": "gate_up_proj"}
FUSED["up_proj"] = "gate_up_proj"
SMALL = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 40, "pad_token_id": 0, "rms_norm_eps": 1e-5, "rope_theta": 250000,
    "tie_word_embeddings": False, "sliding_window": None,
}  # fmt: skip


def by_their_names(gradients, spec):
    """Our gradients, those of fused matrices one after the other, in the order of our parameters."""
    found = {}
    for name, gradient in gradients.items():
        (stored,) = stored_names(name, spec)
        stored = re.sub("|".join(FUSED), lambda part: FUSED[part[0]], stored)
        found[stored] = torch.cat([found[stored], gradient]) if stored in found else gradient
    return found


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("share", [1.0, 0.5])
def test_three_steps_equal_those_of_transformers(tmp_path, monkeypatch, share):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import transformers
    monkeypatch.setattr(importlib.import_module("transformers.models.phi3.modeling_phi3"), "torch", Wide())
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)
    theirs = transformers.Phi3ForCausalLM(transformers.Phi3Config(**SMALL, partial_rotary_factor=share)).double()
    varied(theirs).save_pretrained(tmp_path)
    theirs.get_input_embeddings().padding_idx = None
    spec = hf.read(tmp_path).model.modules["llm"]
    require_checkpoint([spec], tmp_path)
    ours = build(spec, dtype=torch.float64)
    load_checkpoint(ours, spec, tmp_path)
    for step in range(3):
        batch = synthetic_batch(spec, DOCUMENTS, seed=step)
        loss, gradients = loss_and_gradients(ours, [batch])
        theirs.zero_grad()
        spans = [slice(*ends) for ends in pairwise(batch.cu_seqlens.tolist())]
        logits = torch.cat([theirs(batch.inputs[None, span], use_cache=False).logits[0] for span in spans])
        want = F.cross_entropy(logits, batch.targets, reduction="sum")
        want.backward()
        torch.testing.assert_close(loss, want.detach(), rtol=1e-11, atol=0)
        found, wanted = by_their_names(gradients, spec), {name: each.grad for name, each in theirs.named_parameters()}
        assert found.keys() == wanted.keys()
        for name, gradient in wanted.items():
            torch.testing.assert_close(found[name], gradient, rtol=0, atol=1e-10 * float(gradient.abs().max()))
        with torch.no_grad():
            for parameter in (*ours.parameters(), *theirs.parameters()):
                parameter.sub_(0.01 * parameter.grad)
    if share < 1:
        assert not saveable(spec)  # no other family has it
        return
    save_checkpoint(state(ours), spec, tmp_path / "saved", source=tmp_path)
    assert hf.read(tmp_path / "saved").config["model_type"] == "llama"  # whose matrices are apart, as these
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "saved", dtype=torch.float64)
    theirs.save_pretrained(tmp_path / "theirs")
    other = build(spec, dtype=torch.float64)
    load_checkpoint(other, spec, tmp_path / "saved")
    assert all(torch.equal(one, two) for one, two in zip(other.parameters(), ours.parameters(), strict=True))
    with torch.no_grad():
        torch.testing.assert_close(
            again(batch.inputs[None]).logits, theirs(batch.inputs[None]).logits, rtol=0, atol=1e-5
        )
