"""Weights are written to a checkpoint and read back exactly, and give the same logits here as in transformers."""

import warnings
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F

from planner import hf
from planner.errors import InputError
from planner.models.build import build, init_weights
from planner.models.checkpoints.hugging_face import load_checkpoint, require_checkpoint
from planner.models.checkpoints.safetensors_files import SINGLE_FILE, SafetensorsCheckpoint
from planner.models.inputs.training_items import SyntheticSamples, batch_of_documents
from planner.models.sharding import EqualShard, ExpertShard, ModuleShard
from planner.specs.base import Layers, with_fields
from planner.specs.layers import Decoder, Vit
from planner.specs.layers.components import Experts, LinearAttention, StateSpace
from planner.specs.layers.rope_scaling import LinearScaling, Llama3Scaling, YarnScaling
from tests.checkpoint_files import save_checkpoint, write_tensors

PLAIN = {"layers": 3, "hidden": 32, "heads": 4, "ffn": 48, "vocab": 40}
SPECS = {
    "llama": Decoder(**PLAIN, kv_heads=2, rope_base=500.0, norm_eps=1e-3),
    "llama with biases": Decoder(**PLAIN, bias="all"),
    "llama, longer": Decoder(**PLAIN, rope_scaling=Llama3Scaling(factor=8, original=16)),
    "llama, interpolated": Decoder(**PLAIN, rope_scaling=LinearScaling(factor=3)),
    "qwen3, longer": Decoder(
        **PLAIN, qk_norm=True, rope_base=500.0, rope_scaling=YarnScaling(factor=4, fast=4, original=40)
    ),
    "mistral": Decoder(**PLAIN, kv_heads=2, window=5),
    "qwen2": Decoder(**PLAIN, kv_heads=1, bias="qkv", tied=True),
    "qwen3": Decoder(**PLAIN, kv_heads=2, head_dim=16, qk_norm=True),
    "mixtral": Decoder(**PLAIN, kv_heads=2, moe=Experts(experts=4, topk=2, ffn=48)),
    "qwen3_moe": Decoder(
        **PLAIN, qk_norm=True, moe=Experts(experts=6, topk=2, ffn=20, dense_layers=1, normalised=False)
    ),
}
ROUTED = {"experts": 6, "topk": 2, "ffn": 20, "router_bias": True, "scores": "sigmoid"}
SPECS |= {
    "olmo2": Decoder(**PLAIN, kv_heads=2, norms="behind", qk_norm="whole", rope_base=500.0),
    "glm4_moe": Decoder(
        **PLAIN, kv_heads=2, head_dim=16, bias="qkv", qk_norm=True, rotary_share=0.5,
        moe=Experts(**ROUTED, shared_ffn=40, dense_layers=1, scale=2.5, groups=3, group_topk=2),
    ),
}  # fmt: skip
LINEAR = LinearAttention(heads=4, key_heads=2, key_dim=6, value_dim=10, conv=3)
GATED = {"kv_heads": 2, "head_dim": 16, "attention_gate": True, "qk_norm": True, "rotary_share": 0.25}
SHARED = {"shared_ffn": 24, "shared_gate": True}
SPECS |= {
    "qwen3_next": Decoder(
        **PLAIN, **GATED, linear_attention=LINEAR, pattern="LE L- *E", moe=Experts(experts=6, topk=2, ffn=20, **SHARED)
    ),
    "qwen3_next with equal heads": Decoder(
        **PLAIN | {"layers": 2}, **GATED | {"qk_norm": True}, linear_attention=with_fields(LINEAR, key_heads=4),
        pattern="LE *E", moe=Experts(experts=4, topk=3, ffn=8, normalised=False, **SHARED),
    ),
}  # fmt: skip
SPACE = {"heads": 8, "head_dim": 8, "state": 5, "groups": 2, "chunk": 4}
SQUARED = {"gated": False, "activation": "relu2", "positions": "none", "kv_heads": 2}
SPECS |= {
    "nemotron_h": Decoder(**PLAIN | SQUARED, state_space=StateSpace(**SPACE, step_min=0.001), pattern="M * -"),
    "nemotron_h with experts": Decoder(
        **PLAIN | SQUARED | {"layers": 4, "head_dim": 16},
        state_space=StateSpace(**SPACE, conv=3, conv_bias=False, bias=True, step_min=0.02),
        moe=Experts(experts=6, topk=2, ffn=20, shared_ffn=12, router_bias=True, scores="sigmoid"),
        pattern="M E - *",
    ),
    "nemotron_h with latent experts": Decoder(
        **PLAIN | SQUARED, state_space=StateSpace(**SPACE, step_min=0.001), pattern="M E *",
        moe=Experts(experts=6, topk=2, ffn=20, shared_ffn=12, router_bias=True, scores="sigmoid", latent=12),
    ),
    "bamba": Decoder(
        **PLAIN, kv_heads=2, state_space=StateSpace(**SPACE | {"groups": 1}, bias=True), pattern="M- *- M-",
        rotary_share=0.5, rope_base=500.0, bias="attention",
    ),
    "bamba with limits": Decoder(
        **PLAIN, state_space=StateSpace(**SPACE, step_min=0.01, step_max=0.5), pattern="*- *- M-", rotary_share=0.5,
        tied=True,
    ),
}  # fmt: skip
DOCUMENTS = [(0, 9), (1, 4), (2, 17)]


def network(spec, dtype=torch.float32, **held):
    model = build(spec, dtype=dtype, shard=ModuleShard(**held))
    init_weights(model, 3)
    return model


def varied(model):
    """Vary norms and biases too, so that no parameter can be confused with another."""
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


def state(model):
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.every(2)
def test_round_trip(tmp_path, name, dtype):
    spec = SPECS[name]
    model = varied(network(spec, dtype))
    saved = state(model)
    save_checkpoint(saved, spec, tmp_path)
    require_checkpoint([spec], tmp_path)
    assert hf.read(tmp_path).model.modules["llm"] == spec
    other = network(spec, dtype)
    load_checkpoint(other, spec, tmp_path)
    assert all(torch.equal(parameter, saved[key]) for key, parameter in other.named_parameters())


@pytest.mark.parametrize("name", ["llama", "qwen2", "qwen3_moe"])
def test_each_rank_loads_its_own_shard(tmp_path, name):
    spec = SPECS[name]
    whole = varied(network(spec))
    saved = state(whole)
    save_checkpoint(saved, spec, tmp_path)
    for index in range(2):
        part = EqualShard(index, 2)
        held = {"tp": part, "experts": dict.fromkeys((1, 2), ExpertShard(etp=part)), "layers": Layers((1, 2))}
        mine = network(spec, **held)
        load_checkpoint(mine, spec, tmp_path)
        for key, parameter in mine.named_parameters():
            want = saved[key]
            for dim, (ours, theirs) in enumerate(zip(parameter.shape, want.shape, strict=True)):
                if ours != theirs:
                    want = want.chunk(2, dim)[index]
            assert torch.equal(parameter, want), key
        assert any(parameter.numel() < saved[key].numel() for key, parameter in mine.named_parameters())


def test_checkpoints_of_another_model(tmp_path):
    spec = SPECS["llama"]
    saved = state(network(spec))
    save_checkpoint(saved, spec, tmp_path)
    stored = {name: SafetensorsCheckpoint(tmp_path).read(name) for name in SafetensorsCheckpoint(tmp_path).entries}
    norm = "model.norm.weight"
    for change, says in (
        ({norm: None}, "has no `model.norm.weight`"),
        ({norm: torch.zeros(31)}, r"`model.norm.weight` is \[31\], the model has \[32\]"),
        ({"model.layers.0.mlp.extra": torch.zeros(1)}, "has 1 tensors that the model has not"),
    ):
        write_tensors(
            tmp_path / SINGLE_FILE, {name: value for name, value in (stored | change).items() if value is not None}
        )
        with pytest.raises(InputError, match=says) as refused:
            require_checkpoint([spec], tmp_path)
        assert refused.value.where == str(tmp_path) and refused.value.fix
    write_tensors(tmp_path / SINGLE_FILE, stored | {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.zeros(4)})
    require_checkpoint([spec], tmp_path)
    write_tensors(tmp_path / SINGLE_FILE, stored | {norm: torch.zeros(31)})
    with pytest.raises(InputError, match=r"`norm.weight` is \[31\], the model has \[32\]"):
        load_checkpoint(network(spec), spec, tmp_path)


@pytest.mark.parametrize(
    "spec", [Vit(layers=1, hidden=8, heads=2, ffn=8, patch=2, out=8), Decoder(**PLAIN, sinks=True)]
)
def test_modules_without_known_names(tmp_path, spec):
    with pytest.raises(InputError):
        save_checkpoint({"norm.weight": torch.zeros(1)}, spec, tmp_path)


@pytest.fixture(scope="module")
def transformers():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import transformers
    return transformers


def logits(model, spec, documents):
    batch = batch_of_documents(SyntheticSamples(5), spec, documents)
    found = []
    handle = model.norm.register_forward_hook(lambda module, args, out: found.append(out))
    model(batch)
    handle.remove()
    head = model.embedding.weight if model.head is None else model.head.weight
    return batch, F.linear(found[0], head)


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.filterwarnings("ignore")
def test_logits_equal_those_of_transformers(transformers, tmp_path, name):
    spec = SPECS[name]
    model = varied(network(spec))
    save_checkpoint(state(model), spec, tmp_path)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32).eval()
    batch, ours = logits(model, spec, DOCUMENTS)
    ends = batch.cu_seqlens.tolist()
    with torch.no_grad():
        want = torch.cat([theirs(batch.inputs[None, a:b]).logits[0] for a, b in pairwise(ends)])
    torch.testing.assert_close(ours, want, rtol=1e-5, atol=1e-5 * want.abs().max().item())
    theirs.save_pretrained(tmp_path / "theirs")
    again = network(spec)
    load_checkpoint(again, spec, tmp_path / "theirs")
    saved = state(model)
    assert all(torch.equal(parameter, saved[key]) for key, parameter in again.named_parameters())
