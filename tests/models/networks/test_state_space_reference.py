"""Hybrids, OLMo 2, GLM-4.5 and Qwen3-Next have the losses and gradients of transformers' own over three steps, computed
in float64 throughout.
"""

import importlib
import re
import warnings
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F

from planner.hf.weight_names import stored_names
from planner.models.inputs.training_items import synthetic_batch
from tests.checkpoint_files import save_checkpoint
from tests.models.checkpoints.test_hugging_face import DOCUMENTS, SPECS, network, state, varied
from tests.models.networks.test_network import loss_and_gradients


class Wide:
    """A stand-in for torch in which float32 is float64."""

    float32 = float = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)


@pytest.fixture
def reference(monkeypatch, tmp_path):
    """Transformers' module with these weights."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import transformers

    def made(spec, model, kind):
        module = importlib.import_module(f"transformers.models.{kind}.modeling_{kind}")
        save_checkpoint(state(model), spec, tmp_path)
        theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float64)
        theirs.set_experts_implementation("eager")
        theirs.get_input_embeddings().padding_idx = None  # the row of padding would have no gradient
        monkeypatch.setattr(module, "torch", Wide())
        monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)
        if rotary := getattr(theirs.model, "rotary_emb", None):
            rotary.inv_freq, _ = rotary.compute_default_rope_parameters(theirs.config)
        return theirs.train()

    return made


def their_name(name, spec):
    """The name of a parameter there: in memory they too stack all experts, and have another root."""
    stored = stored_names(name, spec)[0].replace("backbone.", "model.")
    return re.sub(r"\.experts\.0\.(\w+)\.weight", r".experts.\1", stored)


def separate(gradients):
    """Gates and up projections apart, which gated experts have in one tensor there."""
    for key, gradient in gradients.items():
        if key.endswith(".gate_up_proj"):
            for part, half in zip(("gate", "up"), gradient.chunk(2, 1), strict=True):
                yield key.replace("gate_up", part), half
        else:
            yield key, gradient


@pytest.mark.parametrize(
    "name",
    [
        "nemotron_h",
        "nemotron_h with experts",
        "nemotron_h with latent experts",
        "bamba",
        "bamba with limits",
        "olmo2",
        "glm4_moe",
        "qwen3_next",
        "qwen3_next with equal heads",
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_gradients_equal_those_of_transformers(reference, name):
    spec = SPECS[name]
    model = varied(network(spec, torch.float64))
    theirs = reference(spec, model, name.partition(" ")[0])
    for step in range(3):
        compare_step(spec, model, theirs, synthetic_batch(spec, DOCUMENTS, seed=step))


def compare_step(spec, model, theirs, batch):
    """Losses and gradients are equal; then both take a step, each by its own gradients."""
    loss, gradients = loss_and_gradients(model, [batch])
    want = 0.0
    theirs.zero_grad()
    for first, last in pairwise(batch.cu_seqlens.tolist()):
        logits = theirs(batch.inputs[None, first:last], use_cache=False).logits[0]
        want = want + F.cross_entropy(logits, batch.targets[first:last], reduction="sum")
    want.backward()
    torch.testing.assert_close(loss, want.detach(), rtol=1e-11, atol=0)
    wanted = dict(separate({key: parameter.grad for key, parameter in theirs.named_parameters()}))
    ours = {their_name(key, spec): gradient for key, gradient in gradients.items()}
    assert wanted.keys() == {key for key in ours if "e_score" not in key}
    floor = 1e-3 * max(gradient.norm() for gradient in wanted.values())
    for key, gradient in wanted.items():
        assert (ours[key] - gradient).norm() <= 1e-10 * max(gradient.norm(), floor), key
    with torch.no_grad():
        for network in (model, theirs):
            for parameter in network.parameters():
                parameter.sub_(0.01 * (0 if parameter.grad is None else parameter.grad))
