"""Counts from shapes equal the published totals, and the closed forms they come from."""

from pathlib import Path

import pytest

from planner.files import read
from planner.specs.model import Decoder, Model, Vit
from planner.specs.parameters import counts_text, model_parameters, parameters

MODELS = Path(__file__).parents[2] / "profiles" / "models"

PUBLISHED = {
    "gpt-7b": 7_642_300_416,  # FlexSP's 7.1174468994140625 in units of 2³⁰
    "gpt-13b": 14_083_256_320,  # 13.11605453491211
    "gpt-30b": 33_849_860_096,  # 31.52513885498047
    "llama-3-8b": 8_030_261_248,
    "llama-3-70b": 70_553_706_496,
    "k2-65b": 65_286_184_960,
    "qwen2.5-vl-7b": 8_292_166_656,
}


@pytest.mark.parametrize(("name", "total"), PUBLISHED.items())
def test_published_totals(name: str, total: int) -> None:
    assert model_parameters(read(MODELS / f"{name}.yaml", Model)) == total


@pytest.mark.parametrize(("name", "billions"), [("gpt-7b", 7.117), ("gpt-13b", 13.116), ("gpt-30b", 31.525)])
def test_flexsp_counts_to_the_printed_digits(name: str, billions: float) -> None:
    assert round(model_parameters(read(MODELS / f"{name}.yaml", Model)) / 2**30, 3) == billions


def test_qwen_splits_into_its_published_modules() -> None:
    model = read(MODELS / "qwen2.5-vl-7b.yaml", Model)
    assert parameters(model.modules["vision"]).total == 676_550_144
    assert parameters(model.modules["llm"]).total == 7_615_616_512


@pytest.mark.parametrize("hidden", [64, 256])
def test_classic_layer_is_12_h_squared_and_13_h(hidden: int) -> None:
    gpt = Decoder(
        layers=3, hidden=hidden, heads=8, ffn=4 * hidden, vocab=10, gated=False, norm="layer", bias="all",
        positions="learned", max_positions=20,
    )  # fmt: skip
    assert parameters(gpt).layer == 12 * hidden**2 + 13 * hidden
    assert parameters(gpt).ends == (10 + 10 + 20) * hidden + 2 * hidden


def test_tying_saves_one_table_and_grouped_heads_save_keys() -> None:
    wide = Decoder(layers=2, hidden=64, heads=8, ffn=128, vocab=100)
    tied = Decoder(layers=2, hidden=64, heads=8, ffn=128, vocab=100, tied=True)
    grouped = Decoder(layers=2, hidden=64, heads=8, kv_heads=2, ffn=128, vocab=100)
    assert parameters(wide).total - parameters(tied).total == 100 * 64
    assert parameters(wide).layer - parameters(grouped).layer == 2 * 64 * (8 - 2) * 8


def test_counts_say_what_they_cover() -> None:
    vision = Vit(layers=1, hidden=8, heads=2, ffn=16, patch=4, out=8)
    assert counts_text(vision) == "layers, patch embedding, norms, projector, biases"
    assert counts_text(Decoder(layers=1, hidden=8, heads=2, ffn=16, vocab=5, tied=True)) == (
        "layers, embedding, tied head, norms"
    )
