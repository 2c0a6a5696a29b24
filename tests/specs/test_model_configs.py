"""Shipped shapes are those of the published configuration files."""

import csv
from pathlib import Path

import pytest

from planner.specs import library
from planner.specs.layers import Decoder, kind_counts
from planner.specs.layers.head_widths import head_dim, kv_heads
from planner.specs.model import Model
from tests.write_models import MADE, config_of, shipped_model

SAME = {
    "llama-3-8b": "meta-llama/Meta-Llama-3.1-8B",
    "llama-3-70b": "meta-llama/Meta-Llama-3.1-70B",
    "llama-3.1-405b": "meta-llama/Meta-Llama-3.1-405B",
    "llama-4-scout": "meta-llama/Llama-4-Scout-17B-16E-Instruct",
    "llama-4-maverick": "meta-llama/Llama-4-Maverick-17B-128E-Instruct",
    "mixtral-8x7b": "mistralai/Mixtral-8x7B-v0.1",
    "mixtral-8x22b": "mistralai/Mixtral-8x22B-v0.1",
    "qwen3-8b": "Qwen/Qwen3-8B",
    "qwen3-32b": "Qwen/Qwen3-32B",
    "qwen3-30b-a3b": "Qwen/Qwen3-30B-A3B",
    "qwen3-235b-a22b": "Qwen/Qwen3-235B-A22B",
    "deepseek-v2-lite": "ModelZoo/DeepSeek-V2-Lite",
    "deepseek-v3": "deepseek-ai/DeepSeek-V3",
    "kimi-k2": "moonshotai/Kimi-K2-Instruct",
    "gpt-oss-20b": "openai/gpt-oss-20b",
    "gpt-oss-120b": "openai/gpt-oss-120b",
    "mpt-7b": "mpt-7b",
    "nemotron-h-56b": "nvidia/Nemotron-H-56B-Base-8K",
}


IN_CASES = {"olmo-2-32b": "OLMo-2-32B", "phi-4": "Phi-4"}


def published(shared: Path) -> dict[str, dict[str, str]]:
    with (shared / "published/models.csv").open(encoding="utf-8") as text:
        return {row["model"]: row for row in csv.DictReader(text)}


def stated(row: dict[str, str]) -> dict[str, int]:
    """The row's numbers; the cells that are empty or hold words say nothing that can be compared."""
    return {key: int(text) for key, text in row.items() if text.isdigit()}


@pytest.mark.parametrize("name", SAME)
def test_a_shipped_shape_is_its_published_configuration(shared: Path, name: str) -> None:
    row = stated(published(shared)[SAME[name]])
    module = library.read_named(name, Model)[0].modules["llm"]
    assert isinstance(module, Decoder)
    moe = module.routed_experts
    ours = {"layers": module.layers, "hidden": module.hidden, "heads": module.heads, "vocab": module.vocab}
    ours |= {"kv_heads": kv_heads(module)}
    if module.latent is None:
        ours |= {"head_dim": head_dim(module)}
    if moe is None:
        ours |= {"ffn": module.ffn}
    else:
        ours |= {"experts": moe.experts, "topk": moe.topk, "moe_ffn": moe.ffn}
        ours |= {"first_dense": kind_counts(module).get("dense", 0)} if moe.dense_layers else {}
    both = ours.keys() & row.keys()
    assert {"layers", "hidden", "heads"} <= both
    assert {key: ours[key] for key in both} == {key: row[key] for key in both}


@pytest.mark.parametrize("name", MADE)
def test_what_is_made_of_a_config_is_shipped_as_it_is_made(shared: Path, name: str) -> None:
    config = config_of(name, shared / "data/hf_configs")
    if not config.is_file():
        config = shared / "cases/08-new-kinds" / IN_CASES.get(name, "") / "config.json"
    if not config.is_file():
        pytest.skip("its config.json is not there")
    assert library.read_named(name, Model)[0] == shipped_model(name, config)
