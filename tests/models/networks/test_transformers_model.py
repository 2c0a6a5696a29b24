"""A model of transformers over packed documents, and over two ranks, equals that model by itself."""

import warnings
from itertools import pairwise

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F

from planner.errors import InputError
from planner.launch.communication.communication_meter import CommunicationMeter
from planner.launch.communication.process_groups import ProcessGroups
from planner.launch.communication.ulysses import UlyssesAttention
from planner.launch.processes import launch
from planner.launch.worker import joined_world
from planner.models.inputs.training_items import SyntheticSamples, batch_of_documents
from planner.models.networks.transformers_model import TransformersModel, current_batch, transformers_attention
from planner.specs.layers import Decoder

SPEC = Decoder(layers=2, hidden=32, heads=4, kv_heads=2, ffn=48, vocab=40)
SHAPE = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 40,
}  # fmt: skip
KINDS = {
    "llama": SHAPE,
    "qwen3": {**SHAPE, "head_dim": 16},
    "mistral": {**SHAPE, "sliding_window": 5},
    "granite": {**SHAPE, "attention_multiplier": 0.3, "residual_multiplier": 0.5},  # it scales attention and residuals
}
DOCUMENTS = [(0, 9), (1, 4), (2, 17)]


@pytest.fixture(scope="module")
def transformers():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import transformers
    return transformers


def made(kind, attention):
    """The same weights each time, in float64."""
    import transformers

    config = transformers.CONFIG_MAPPING[kind](**KINDS[kind], attn_implementation=attention)
    torch.manual_seed(1)
    return transformers.AutoModelForCausalLM.from_config(config).double().train()


def by_document(kind):
    """Document by document with torch's own attention: summed loss and gradients."""
    model, batch = made(kind, "sdpa"), batch_of_documents(SyntheticSamples(2), SPEC, DOCUMENTS)
    total = 0.0
    for first, last in pairwise(batch.cu_seqlens.tolist()):
        logits = model(input_ids=batch.inputs[None, first:last], use_cache=False).logits[0]
        total = total + F.cross_entropy(logits, batch.targets[first:last], reduction="sum")
    total.backward()
    return total.item(), {name: parameter.grad for name, parameter in model.named_parameters()}


def error(loss, gradients, wanted):
    """The worst relative error of loss and gradients; norms and rotary tables of transformers are float32."""
    want, want_gradients = wanted
    floor = 1e-3 * max(gradient.norm() for gradient in want_gradients.values())
    errors = [
        (gradients[name] - gradient).norm() / max(gradient.norm(), floor) for name, gradient in want_gradients.items()
    ]
    return max(abs(loss / want - 1), *map(float, errors))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.filterwarnings("ignore")
def test_packing_changes_nothing(transformers, kind):
    hosted = TransformersModel(made(kind, "eager"))
    loss = hosted(batch_of_documents(SyntheticSamples(2), SPEC, DOCUMENTS))
    loss.backward()
    gradients = {name: parameter.grad for name, parameter in hosted.model.named_parameters()}
    assert error(loss.item(), gradients, by_document(kind)) <= 1e-7


def over_two(worker):
    with joined_world(worker, timeout_s=60):
        group, found = (0, 1), {}
        groups = ProcessGroups([group])
        for kind in ("llama", "mistral"):
            hosted = TransformersModel(made(kind, "eager"))
            exchange = UlyssesAttention(groups[group], (19, 11), CommunicationMeter())
            loss = hosted(batch_of_documents(SyntheticSamples(2), SPEC, DOCUMENTS, sequence_parallel=exchange))
            loss.backward()
            summed = [loss.detach(), *(parameter.grad for parameter in hosted.model.parameters())]
            for tensor in summed:
                dist.all_reduce(tensor)
            names = [name for name, _ in hosted.model.named_parameters()]
            found[kind] = error(summed[0].item(), dict(zip(names, summed[1:], strict=True)), by_document(kind))
        return found


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_two_ranks_equal_one(transformers):
    for found in launch(over_two, 2):
        assert found.keys() == {"llama", "mistral"} and max(found.values()) <= 1e-7


@pytest.mark.parametrize("wish", ["dropout", "softcap"])
def test_unsupported_options_are_refused(wish):
    q = torch.zeros(1, 4, 30, 8)
    token = current_batch.set(batch_of_documents(SyntheticSamples(2), SPEC, DOCUMENTS))
    with pytest.raises(InputError, match=wish):
        transformers_attention(torch.nn.Module(), q, q, q, None, **{wish: 0.1})
    assert transformers_attention(torch.nn.Module(), q, q, q, None, scaling=1.0)[0].shape == (1, 30, 4, 8)
    current_batch.reset(token)


def test_missing_transformers_is_reported():
    try:
        import transformers  # noqa: F401
    except ImportError:
        with pytest.raises(InputError, match="needs that package"):
            TransformersModel(torch.nn.Module())
