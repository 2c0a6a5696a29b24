"""What a record says in words: of exchanges that are hidden, of experts, of memory."""

import pytest

from planner.costs.memory import FRAGMENTED
from planner.published.case_memory import adjusted_accounting
from planner.published.exchange_settings import exchange_settings
from planner.specs import library
from planner.specs.framework.memory_coefficients import MemoryCoefficients
from planner.specs.layers import Decoder
from planner.specs.layers.components import Experts
from planner.specs.model import Model

DENSE = library.read_named("llama-3-8b", Model)[0].modules["llm"]
SPARSE = Decoder(layers=2, hidden=64, heads=4, ffn=64, vocab=64, moe=Experts(experts=4, topk=2, ffn=64))
USUAL = MemoryCoefficients()


@pytest.mark.parametrize(
    ("words", "overlap"),
    [
        ("torch.compile; async tp", {"tp"}),
        ("tp2, ep8, pp8, zero/tp overlap", {"tp"}),
        ("hybridep; force balance; ep overlap on", {"ep"}),
        ("dispatcher deepep; +1f1b overlap", {"ep"}),
        ("hybridep; ep overlap off", set()),
        ("vanilla tp", set()),
    ],
)
def test_what_runs_beside_compute_is_said(words, overlap):
    assert exchange_settings(words, SPARSE).overlap == overlap


@pytest.mark.parametrize(
    ("words", "dispatch", "imbalance"),
    [
        ("deepep, capacity=1", "node_level", 0.0),
        ("dropless", "all_to_all", 1.0),
        ("dropless; forced balance", "all_to_all", 0.0),
        ("dataset=c4; aux_loss=0.0; method=laer", "all_to_all", 0.0),
        ("flexmoe (baseline); aux_loss=0.0", "all_to_all", 0.5),
        ("section: ep load imbalance", "all_to_all", 1.0),
        ("", "all_to_all", 0.0),
    ],
)
def test_how_tokens_go_to_experts_is_said(words, dispatch, imbalance):
    found = exchange_settings(words, SPARSE)
    assert (found.dispatch, found.imbalance) == (dispatch, imbalance)
    assert exchange_settings(words, DENSE).imbalance == 0.0  # there is nothing to balance


def test_the_allocators_segments_are_said():
    assert (
        adjusted_accounting("baseline, without expandable_segments", "nemo", "flash2", USUAL).fragmentation
        == FRAGMENTED
    )
    assert adjusted_accounting("baseline + expandable_segments", "nemo", "flash2", USUAL).fragmentation == 0.0
    assert adjusted_accounting("expandable_segments: false", "nemo", "flash2", USUAL).fragmentation == FRAGMENTED
    assert adjusted_accounting("more pp", "nemo", "flash2", USUAL) == USUAL


def test_megatrons_arguments_say_what_they_leave_out():
    """Its dropout is 0.1 unless told otherwise."""
    assert adjusted_accounting("transformer-impl=transformer_engine", "megatron", "flash2", USUAL).dropout
    for words in ("transformer-impl=te; hidden-dropout=0.0; x", "transformer-impl=te; hidden-dropout=0", "bf16"):
        assert not adjusted_accounting(words, "megatron", "flash2", USUAL).dropout
    assert not adjusted_accounting("transformer-impl=te", "torchtitan", "flash2", USUAL).dropout


def test_compiled_and_eager_are_told_apart():
    compiled = adjusted_accounting(
        "fsdp + torch.compile", "torchtitan", "flash2", MemoryCoefficients(fused=False, logit_bytes=14.0)
    )
    assert compiled.fused and compiled.logit_bytes == 13.0
    later = adjusted_accounting("torch.compile", "torchtitan", "flash2", USUAL, month="2025-06")
    assert compiled.logit_bytes > later.logit_bytes == 4.0
    assert not adjusted_accounting("eager", "torchtitan", "flash2", MemoryCoefficients(fused=False)).fused


@pytest.mark.parametrize(
    ("words", "software", "logit_bytes"),
    [
        ("llm-foundry (composer, pytorch fsdp)", "fsdp", 4.0),
        ("liger kernels", "deepspeed", 0.0),
        ("fused linear cross entropy", "fsdp", 0.0),
        ("torch.compile; chunked loss", "torchtitan", 2.0),
        ("cross-entropy-fusion-impl=te", "megatron", 2.0),
        ("cross-entropy-loss-fusion=true; cross-entropy-fusion-impl=native", "megatron", 10.0),
        ("bf16", "megatron", USUAL.logit_bytes),
    ],
)
def test_how_the_loss_is_computed_is_what_a_logit_takes(words, software, logit_bytes):
    assert adjusted_accounting(words, software, "flash2", USUAL).logit_bytes == logit_bytes


def test_what_attention_and_the_optimizer_keep_is_said():
    assert not adjusted_accounting("bf16", "fsdp", "stored", USUAL).flash
    assert adjusted_accounting("grad-reduce-in-bf16=true", "megatron", "flash2", USUAL).gradient_bytes == 2.0
    assert adjusted_accounting("exp-avg-dtype=bf16", "megatron", "flash2", USUAL).optimizer_bytes == 8.0
