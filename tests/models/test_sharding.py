"""The shards of a module together are the module: their weights, their parameters, the key heads that each reads."""

import pytest
import torch

from planner.models.build import build, init_weights
from planner.models.layers.grouped_query_attention import ReplicatedKeyHeads, key_value_projection, local_key_heads
from planner.models.networks.word_prediction import VocabularyEmbedding
from planner.models.sharding import EqualShard, ModuleShard, parameter_splits
from planner.specs.layers import Decoder, Vit

SHAPE = {"layers": 2, "hidden": 24, "heads": 12, "head_dim": 2, "ffn": 36, "vocab": 48}
SHAPES = {
    "llama": Decoder(**SHAPE, kv_heads=4, bias="qkv"),
    "odd": Decoder(**{**SHAPE, "ffn": 37, "vocab": 50}, kv_heads=2, bias="all"),
    "gpt": Decoder(**SHAPE, gated=False, norm="layer", bias="all", positions="learned", max_positions=20, tied=True),
    "vit": Vit(layers=2, hidden=24, heads=12, ffn=36, patch=2, merge=2, out=6),
}
REPLICATED = {  # what is replicated over four ranks, besides norms and biases of sums
    "llama": set(),
    "odd": {"key.weight", "key.bias", "value.weight", "value.bias", "gate.weight", "up.weight", "down.weight",
            "gate.bias", "up.bias", "embedding.weight", "head.weight"},
    "gpt": {"position.weight"},
    "vit": {"patch.weight"},
}  # fmt: skip


@pytest.mark.parametrize("name", SHAPES)
def test_shards_are_drawn_from_full_parameters(name):
    whole = build(SHAPES[name])
    init_weights(whole, 3)
    found = {key: torch.full_like(value, torch.nan) for key, value in whole.named_parameters()}
    for index in range(4):
        part = build(SHAPES[name], shard=ModuleShard(tp=EqualShard(index, 4)))
        init_weights(part, 3)
        splits = parameter_splits(part)
        for key, value in part.named_parameters():
            target = found[key]
            for split in splits.get(key, ()):
                assert (split.shard, split.mesh_dim) == (EqualShard(index, 4), "tp")
                target = target.narrow(split.dim, index * value.shape[split.dim], value.shape[split.dim])
            target.copy_(value)
    for key, value in whole.named_parameters():
        assert torch.equal(found[key], value), key


@pytest.mark.parametrize("name", SHAPES)
def test_whatever_divides_is_sharded(name):
    model = build(SHAPES[name], device=torch.device("meta"), shard=ModuleShard(tp=EqualShard(1, 4)))
    alike = {key for key, _ in model.named_parameters()} - parameter_splits(model).keys()
    sums = {"output.bias", "down.bias", "projector.down.bias"}
    named = {key for key in alike if "norm" not in key and not any(key.endswith(end) for end in sums)}
    assert {key for key in named if not any(key.endswith(end) for end in REPLICATED[name])} == set()
    assert {end for end in REPLICATED[name] if any(key.endswith(end) for key in named)} == REPLICATED[name]


def test_with_one_rank_nothing_is_split():
    assert all(parameter_splits(build(spec, device=torch.device("meta"))) == {} for spec in SHAPES.values())


@pytest.mark.parametrize("heads", [1, 6, 8, 12])
def test_every_query_head_reads_its_own_key(heads):
    for shared in (n for n in range(1, heads + 1) if heads % n == 0):
        for ranks in (n for n in range(1, heads + 1) if heads % n == 0):
            for index in range(ranks):
                part = EqualShard(index, ranks)
                wanted = local_key_heads(heads, shared, part)
                each = part.size(heads) // len(wanted)
                assert each * len(wanted) == part.size(heads)
                read = [wanted[place // each] for place in range(part.size(heads))]
                assert read == [head // (heads // shared) for head in range(*part.span(heads))]
                if shared % ranks == 0:
                    assert wanted == tuple(range(*part.span(shared)))


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("kv_heads", "ranks"), [(1, 4), (2, 4), (3, 2), (3, 4)])
def test_keys_of_some_heads_are_those_of_the_whole_matrix(kv_heads, ranks, bias):
    spec = Decoder(**SHAPE, kv_heads=kv_heads)
    for index in range(ranks):
        made = key_value_projection(spec, bias, torch.float64, EqualShard(index, ranks))
        assert isinstance(made, ReplicatedKeyHeads) and made.weight.shape == (2 * kv_heads, 24)
        x = torch.randn(5, 24, dtype=torch.float64)
        every = torch.nn.functional.linear(x, made.weight, made.bias).view(5, kv_heads, 2)
        torch.testing.assert_close(made(x).view(5, -1, 2), every[:, list(made.head_indices)], rtol=1e-12, atol=1e-12)
        assert made(x[:0]).shape == (0, 2 * len(made.head_indices))


def test_a_vocabulary_is_sharded_by_words():
    assert [VocabularyEmbedding(12, 3, torch.float32, EqualShard(index, 4)).first_word for index in range(4)] == [
        0,
        3,
        6,
        9,
    ]
