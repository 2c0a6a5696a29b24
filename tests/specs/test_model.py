"""What a file may say of a model's parts, and the widths that follow."""

import pytest

from planner.errors import InputError
from planner.files import dump, parse
from planner.specs.layers import Decoder
from planner.specs.layers.components import LatentAttentionShape
from planner.specs.layers.head_widths import head_dim, kv_heads, value_dim
from planner.specs.model import Model

HEAD = (
    "format: planner.model/1\nname: m\nsource: here\nmodules:\n  llm: {kind: decoder, layers: 4, hidden: 64, heads: 8, "
)


def model(rest: str) -> Model:
    return parse(HEAD + rest + "}\n", Model, "m.yaml")


def test_parts_read_back_and_absent_ones_are_not_written() -> None:
    plain = model("ffn: 8, vocab: 9")
    for word in ("moe", "latent", "window", "full_every", "qk_norm", "sinks"):
        assert word not in dump(plain)
    parts = "moe: {experts: 8, topk: 2, ffn: 4, every: 2}, latent: {kv_rank: 8, rope_dim: 2, nope_dim: 4, value_dim: 4}"
    rich = model(f"ffn: 8, vocab: 9, window: 5, full_every: 2, {parts}")
    assert rich.modules["llm"].moe.every == 2
    assert parse(dump(rich), Model, "again") == rich


@pytest.mark.parametrize(
    "rest",
    [
        "ffn: 8, vocab: 9, moe: {experts: 8, topk: 2}",  # no width
        "ffn: 8, vocab: 9, moe: {experts: 0, topk: 2, ffn: 4}",
        "ffn: 8, vocab: 9, moe: {experts: 8, topk: 2, ffn: 4, shared: 1}",
        "ffn: 8, vocab: 9, latent: {q_rank: 8}",
        "ffn: 8, vocab: 9, window: 0",
        "ffn: 8, vocab: 9, moe: {experts: 8, topk: 9, ffn: 4}",
        "ffn: 8, vocab: 9, full_every: 2",  # of no window
        "ffn: 8, vocab: 9, bias: all_but_key",  # of audio encoders alone
    ],
)
def test_what_is_no_part_is_named_where_it_stands(rest: str) -> None:
    with pytest.raises(InputError) as refused:
        model(rest)
    assert refused.value.where.startswith("m.yaml")


def test_latent_attention_has_its_own_widths_and_as_many_keys_as_heads() -> None:
    latent = LatentAttentionShape(kv_rank=8, rope_dim=4, nope_dim=12, value_dim=10)
    module = Decoder(layers=1, hidden=64, heads=8, kv_heads=2, head_dim=32, ffn=8, vocab=9, latent=latent)
    assert (kv_heads(module), head_dim(module), value_dim(module)) == (8, 16, 10)
    plain = Decoder(layers=1, hidden=64, heads=8, kv_heads=2, head_dim=32, ffn=8, vocab=9)
    assert (kv_heads(plain), head_dim(plain), value_dim(plain)) == (2, 32, 32)


SPACE = "state_space: {heads: 4, head_dim: 8, state: 2"


@pytest.mark.parametrize(
    ("rest", "words"),
    [
        (f'{SPACE}}}, pattern: "M - M"', "pattern has 3 words for 4 layers"),
        (f'{SPACE}}}, pattern: "M - M +"', "`+` in pattern is no block"),
        (f'{SPACE}}}, pattern: "M - M M*M"', "`M*M` in pattern has a block twice"),
        (f'{SPACE}}}, pattern: "M - M -E"', "`-E` in pattern has a block twice"),
        ('pattern: "M - M -"', "`M` in pattern needs state_space"),
        ('pattern: "*E - * -"', "`E` in pattern needs moe"),
        (f'{SPACE}}}, pattern: "* - * -"', "no layer has the state_space"),
        (f"{SPACE}}}", "no layer has the state_space"),
        ('moe: {experts: 4, topk: 1, ffn: 8}, pattern: "* - * -"', "pattern says which layers have experts"),
        ('moe: {experts: 4, topk: 1, ffn: 8, every: 2}, pattern: "* - * E"', "pattern says which layers have experts"),
        ('pattern: "*- X- *- X-"', "`X` in pattern needs cross"),
        ('cross: 8, pattern: "*- *- *- *-"', "no layer has the cross attention"),
        ('cross: 8, moe: {experts: 4, topk: 1, ffn: 8}, pattern: "* E XE E"', "with cross attention has a dense MLP"),
        ("cross_gates: true", "norms and gates are of cross attention"),
        ("tied: true, added_words: 2", "a tied head has all rows of the embedding"),
        (f'{SPACE}, groups: 3}}, pattern: "M - M -"', "heads 4 is not divisible by groups 3"),
        (f'{SPACE}, step_min: 2, step_max: 1}}, pattern: "M - M -"', "step_max 1 is below step_min 2"),
        ("rotary_share: 0.1", "rotary_share 0.1 of heads 8 wide"),
        ("rotary_share: 0", "rotary_share 0 of heads 8 wide"),
    ],
)
def test_a_pattern_that_does_not_fit_is_named_where_it_stands(rest: str, words: str) -> None:
    with pytest.raises(InputError) as refused:
        model(f"ffn: 8, vocab: 9, {rest}")
    assert words in refused.value.message
    assert refused.value.where.startswith("m.yaml")
    assert refused.value.fix
