"""Activations: the equations of Korthikanti et al. (arXiv 2205.05198), and what recomputation saves."""

import numpy as np
import pytest

from planner.costs.layout_columns import LayoutColumns, stack_columns
from planner.costs.memory.activations import input_bytes, kept_block_bytes, layer_activations
from planner.specs import library
from planner.specs.base import with_fields
from planner.specs.framework.memory_coefficients import PLANNER_RUNTIME_MEMORY, MemoryCoefficients
from planner.specs.layers import Decoder, kind_counts
from planner.specs.layers.components import Experts, LatentAttentionShape
from planner.specs.model import Model
from planner.specs.parallelism import SELECTIVE_PARTS

PAPER = MemoryCoefficients(dropout=True, flash=False)
FLASH = MemoryCoefficients()
# Heads, hidden size, layers of its table 3; all at 2048 tokens.
SIZES = {"22B": (64, 6144, 48), "175B": (96, 12288, 96), "530B": (128, 20480, 105), "1T": (160, 25600, 128)}
LLAMA = Decoder(layers=4, hidden=64, heads=8, kv_heads=4, ffn=192, vocab=256)
MOE = with_fields(LLAMA, moe=Experts(experts=8, topk=2, ffn=32, shared_ffn=16))


def gpt(name):
    heads, hidden, layers = SIZES[name]
    shape = {"layers": layers, "hidden": hidden, "heads": heads, "ffn": 4 * hidden, "vocab": 51200}
    return Decoder(**shape, gated=False, norm="layer", bias="all", positions="learned", max_positions=2048)


def setup(**changes):
    return LayoutColumns(**{"ranks": 64, "seq": 2048, "batch": 64, **changes})


def kept(module, kind="dense", accounting=PAPER, **changes):
    return float(layer_activations(module, kind, setup(**changes), accounting).with_recompute)


def ratio(name):
    """5·a·s/h."""
    heads, hidden, _ = SIZES[name]
    return 5 * heads * 2048 / hidden


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("tp", [1, 2, 8])
def test_equations_of_one_layer(name, tp):
    hidden, scores = SIZES[name][1], ratio(name)
    assert kept(gpt(name)) == pytest.approx(hidden * (34 + scores))  # equation 1
    plain = kept(gpt(name), tp=tp, sequence_parallel=False)
    assert plain == pytest.approx(hidden * (10 + 24 / tp + scores / tp))  # equation 2
    assert kept(gpt(name), tp=tp) == pytest.approx(hidden * (34 + scores) / tp)  # equation 4
    selective = kept(gpt(name), tp=tp, recomputed_parts=frozenset({"attention"}))
    assert selective == pytest.approx(hidden * 34 / tp)  # equation 6
    assert input_bytes(gpt(name), setup(tp=tp)) == pytest.approx(2 * hidden / tp)  # table 2, full recomputation


def test_selective_recomputation_saves_what_is_printed():
    """70 % for GPT-3, where 5·a·s/h is 80, and 65 % for MT-NLG, where it is 64 (§5)."""
    assert (ratio("175B"), ratio("530B")) == (80, 64)
    for name, saved in {"175B": 0.70, "530B": 0.65}.items():
        share = 1 - kept(gpt(name), recomputed_parts=frozenset({"attention"})) / kept(gpt(name))
        assert share == pytest.approx(saved, abs=0.005)


@pytest.mark.parametrize("name", SIZES)
def test_both_together_take_a_fifth(name):
    """About five times less than tensor parallelism alone (§6.1, figure 7)."""
    baseline = kept(gpt(name), tp=8, sequence_parallel=False)
    both = kept(gpt(name), tp=8, recomputed_parts=frozenset({"attention"}))
    assert 4.8 <= baseline / both <= 6.3


def test_flash_attention_keeps_one_number_of_a_row():
    short, long = (kept(LLAMA, accounting=FLASH, seq=seq) for seq in (128, 4096))
    assert short == long
    assert kept(LLAMA, accounting=with_fields(FLASH, flash=False), seq=4096) == pytest.approx(long + 8 * (2 * 4096 - 4))


def test_half_of_the_products():
    """Of Llama 3 8B, in elements: input 4096, q 4096, v 1024, attention 4096, the gate 14336, the MLP's output 4096."""
    llama = Decoder(layers=32, hidden=4096, heads=32, kv_heads=8, ffn=14336, vocab=128256)
    ops = with_fields(FLASH, selective="ops")
    assert kept(llama, "dense", ops, recomputed_parts=frozenset({"mlp"})) == 2 * (3 * 4096 + 4096 + 1024 + 14336)
    assert kept(llama, "dense", ops) == kept(llama, "dense", FLASH)


def test_a_fused_gate_keeps_its_inputs_only():
    unfused = with_fields(FLASH, fused=False)
    assert kept(LLAMA, accounting=unfused) - kept(LLAMA, accounting=FLASH) == 2 * 192
    assert kept(gpt("22B"), accounting=unfused) == kept(gpt("22B"), accounting=FLASH)


def test_fp8_keeps_products_inputs_in_a_byte():
    wide, narrow = (kept(LLAMA, accounting=FLASH, dtype=each) for each in ("bf16", "fp8"))
    assert wide - narrow == 2 * 64 + 192 - 64  # two norms' outputs and the MLP's, less attention's second copy
    closer = kept(LLAMA, accounting=with_fields(FLASH, fp8_pointwise=True), dtype="fp8")
    assert narrow - closer == 2 * 192
    assert kept(LLAMA, accounting=FLASH, dtype="float32") > wide


def test_experts_keep_what_their_tokens_keep():
    base = kept(MOE, "moe", FLASH)
    each = 2 * (64 + 3 * 32 + 64)  # a copy's way in, the MLP, its way out
    more = kept(with_fields(MOE, moe=with_fields(MOE.moe, topk=3)), "moe", FLASH)
    assert more - base == pytest.approx(each)
    fuller = kept(MOE, "moe", with_fields(FLASH, imbalance=1.5))
    assert fuller - base == pytest.approx(2 * each / 2)
    assert kept(MOE, "moe", FLASH, ep=8) == base  # as many tokens come as go
    split = kept(MOE, "moe", FLASH, etp=2)
    assert split - base == pytest.approx(2 * 2 * 64)  # the inputs are whole on both


def test_latent_attention_keeps_narrow_vectors_too():
    latent = LatentAttentionShape(q_rank=16, kv_rank=8, rope_dim=4, nope_dim=12, value_dim=16)
    wide = 8 * (16 + 16 + 16 + 16)  # queries, keys, values and output of all heads
    narrow = (16 + 8 + 4) + (16 + 8)  # as they come down, and normed
    plain = 2 * 64 + 2 * 32  # of LLAMA
    more = kept(with_fields(LLAMA, latent=latent), accounting=FLASH) - kept(LLAMA, accounting=FLASH)
    assert more == 2 * (wide + narrow - plain)


def test_many_at_once_are_each_by_itself():
    setups = [
        setup(tp=tp, etp=etp, sequence_parallel=sp) for tp, etp, sp in [(1, 1, True), (2, 2, False), (8, 1, True)]
    ]
    for accounting in (PAPER, FLASH):
        together = kept_block_bytes(MOE, "moe", stack_columns(setups), accounting, frozenset())
        assert together == pytest.approx(
            np.array([float(kept_block_bytes(MOE, "moe", each, accounting, frozenset())) for each in setups])
        )


@pytest.mark.parametrize("name", library.shipped_names(Model))
def test_recomputation_keeps_less(name):
    """Of every shipped model: all of a layer, what is dear to make again, its input; which is all of an MLP alone."""
    for module in library.read_named(name, Model)[0].modules.values():
        at = LayoutColumns(ranks=1, seq=4096, batch=1, recomputed_parts=SELECTIVE_PARTS)
        for kind in kind_counts(module):
            kept = layer_activations(module, kind, at, PLANNER_RUNTIME_MEMORY)
            least = input_bytes(module, at)
            assert kept.without_recompute > kept.with_recompute and (
                kept.with_recompute == least if kind == "mlp" else kept.with_recompute > least
            ), kind


@pytest.mark.parametrize(("topk", "ffn", "groups"), [(2, 14336, 4), (6, 1408, 8)])
def test_a_layer_of_experts_keeps_what_is_published_but_for_copies_around_exchanges(topk, ffn, groups):
    """MegaScale-MoE (arXiv 2505.11432), in elements over b·s·h/n, with f the width of an expert over h and m queries a
    key: (2n + 2k + 3kf + 12 + 5/m), and (2kf + 4 + 2/m) with norms, dispatch and the activated gate recomputed.

    Kept here without recomputation are 2k + 3kf + 6 + 2/m: not 2n of tokens that all ranks gather, nor 6 + 3/m of
    copies before and behind Ulysses' all-to-alls, norms and rotation, which fused kernels do not keep. With norms
    recomputed 4 + 2/m are left outside of the experts, as published.
    """
    hidden = 4096
    module = Decoder(
        layers=2, hidden=hidden, heads=32, kv_heads=32 // groups, ffn=1, vocab=512,
        moe=Experts(experts=64, topk=topk, ffn=ffn),
    )  # fmt: skip
    at, accounting = (
        LayoutColumns(ranks=8, seq=4096, batch=8, cp=8, ulysses=8, ep=8),
        MemoryCoefficients(fused_norms=False),
    )
    statistics = 32 * 4 + 2 * 64 * 4  # bytes of attention's and the router's float32 numbers

    def elements(recomputed):
        kept = kept_block_bytes(module, "moe", at, accounting, frozenset(recomputed))
        return (float(kept) - statistics) / 2 / hidden

    f, m = ffn / hidden, groups
    assert elements(()) == pytest.approx(2 * topk + 3 * topk * f + 6 + 2 / m)
    assert elements(("norm",)) == pytest.approx(2 * topk + 3 * topk * f + 4 + 2 / m)
    assert elements(("norm", "moe")) == pytest.approx(4 + 2 / m)
