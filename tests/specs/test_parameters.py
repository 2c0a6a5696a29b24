"""Counts from shapes equal the published totals, and the closed forms they come from."""

from pathlib import Path

import pytest

from planner.files import read
from planner.specs import library
from planner.specs.base import with_fields
from planner.specs.layers import Audio, Decoder, Vit, kind_counts
from planner.specs.layers.components import Experts, LatentAttentionShape
from planner.specs.model import Model
from planner.specs.parameters import (
    active_parameters,
    attention_parameters,
    counts_text,
    expert_parameters,
    layer_parameters,
    mlp_parameters,
    model_parameters,
    parameter_counts,
    parameters_of_layers,
    shared_expert_parameters,
    whole_expert_parameters,
)

MODELS = Path(__file__).parents[2] / "profiles" / "models"

PUBLISHED = {
    "gpt-7b": 7_642_300_416,  # FlexSP's 7.1174468994140625 in units of 2³⁰
    "gpt-13b": 14_083_256_320,  # 13.11605453491211
    "gpt-30b": 33_849_860_096,  # 31.52513885498047
    "llama-3-8b": 8_030_261_248,
    "bert-large": 336_226_108,  # BertForPreTraining of google-bert/bert-large-uncased
    "t5-11b": 11_307_321_344,
    "llama-3-70b": 70_553_706_496,
    "k2-65b": 65_286_184_960,
    "qwen2.5-vl-7b": 8_292_166_656,
    # from here on, as the model's page at Hugging Face or, for mpt-7b, the table of llm-foundry's throughputs says
    "llama-2-7b": 6_738_415_616,
    "llama-2-13b": 13_015_864_320,
    "llama-2-70b": 68_976_648_192,
    "code-llama-34b": 33_743_970_304,
    "llama-3.1-405b": 405_853_388_800,
    "yi-34b": 34_388_917_248,
    "mpt-7b": 6_658_859_008,
    "qwen3-8b": 8_190_735_360,
    "qwen3-32b": 32_762_123_264,
    "qwen3-30b-a3b": 30_532_122_624,
    "qwen3-235b-a22b": 235_093_634_560,
    "mixtral-8x7b": 46_702_792_704,
    "mixtral-8x22b": 140_620_634_112,
    "deepseek-v2-lite": 15_706_484_224,
    "deepseek-v3": 671_026_419_200,  # without multi-token prediction
    "kimi-k2": 1_026_408_232_448,
    "gpt-oss-20b": 20_914_757_184,
    "gpt-oss-120b": 116_829_156_672,
    "llama-4-scout": 108_641_793_536 - 871_932_416,  # without its vision tower, which it shares with the next
    "llama-4-maverick": 401_583_781_376 - 871_932_416,
    "nemotron-h-8b": 8_100_852_736,
    "nemotron-h-56b": 56_324_350_464,  # 56 B
    "bamba-9b": 9_780_235_392,  # 9.78 B
    # as transformers 5.23 counts on the meta device, where the biases of routers are buffers
    "deepseek-v3.2": 671_877_929_216 + 58 * 256,
    "glm-5": 743_911_199_232 + 75 * 256,
    "minimax-m2.5": 228_689_748_992 + 62 * 256,
    "olmo-2-32b": 32_234_279_936,
    "phi-4": 14_659_507_200,
    "qwen3-vl-8b": 8_767_123_696,
    "qwen3-vl-30b-a3b": 31_070_754_032,
    "qwen3.5-122b-a10b": 122_562_817_776,
    "qwen2-audio-7b": 8_397_094_912 - 1500 * 1280,  # without the fixed table of positions, which the page counts
}

ROUNDED = {  # billions, as printed
    "gpt-530b": 529.6,  # Narayanan et al. (arXiv 2104.04473), table 1
    "gpt-1t": 1008.0,
}

ACTIVE = {  # billions that work on a token, as printed
    "mixtral-8x7b": 12.9,  # arXiv 2401.04088
    "mixtral-8x22b": 39,
    "qwen3-30b-a3b": 3,  # arXiv 2505.09388
    "qwen3-235b-a22b": 22,
    "llama-4-scout": 17,
    "llama-4-maverick": 17,
}

MOE = Decoder(
    layers=7, hidden=16, heads=4, kv_heads=2, ffn=40, vocab=30,
    moe=Experts(experts=6, topk=2, ffn=8, shared_ffn=4, dense_layers=2, every=2),
)  # fmt: skip


@pytest.mark.parametrize(("name", "total"), PUBLISHED.items())
def test_published_totals(name: str, total: int) -> None:
    assert model_parameters(read(MODELS / f"{name}.yaml", Model)) == total


@pytest.mark.parametrize(("name", "billions"), ROUNDED.items())
def test_published_totals_to_the_printed_digits(name: str, billions: float) -> None:
    assert round(model_parameters(library.read_named(name, Model)[0]) / 1e9, 1) == billions


@pytest.mark.parametrize(("name", "billions"), ACTIVE.items())
def test_published_active_parameters(name: str, billions: float) -> None:
    digits = 1 if isinstance(billions, float) else 0
    assert round(active_parameters(library.read_named(name, Model)[0].modules["llm"]) / 1e9, digits) == billions


@pytest.mark.parametrize(("name", "billions"), [("gpt-oss-20b", 3.61), ("gpt-oss-120b", 5.13)])
def test_gpt_oss_counts_active_parameters_without_its_embedding(name: str, billions: float) -> None:
    """arXiv 2508.10925, table 1."""
    module = library.read_named(name, Model)[0].modules["llm"]
    assert round((active_parameters(module) - module.vocab * module.hidden) / 1e9, 2) == billions


@pytest.mark.parametrize(
    ("name", "embeddings", "others"), [("nemotron-4-15b", 3.1, 12.5), ("nemotron-4-340b", 9.4, 331.6)]
)
def test_nemotron_splits_as_its_papers_say(name: str, embeddings: float, others: float) -> None:
    """arXiv 2402.16819 and 2406.11704: billions with and without embeddings."""
    module = library.read_named(name, Model)[0].modules["llm"]
    tables = 2 * module.vocab * module.hidden
    assert round(tables / 1e9, 1) == embeddings
    assert round((parameter_counts(module).total - tables) / 1e9, 1) == others


def test_sizes_that_are_only_named() -> None:
    """InternLM's two, and the 37 billion active of DeepSeek-V3 (arXiv 2412.19437), which is rounded down."""
    for name, billions in (("internlm-7b", 7), ("internlm-20b", 20)):
        assert round(model_parameters(library.read_named(name, Model)[0]) / 1e9) == billions
    assert int(active_parameters(library.read_named("deepseek-v3", Model)[0].modules["llm"]) / 1e9) == 37


def test_korthikanti_sizes() -> None:
    """arXiv 2205.05198, table 3: 22, 175 (GPT-3), 530 and 1000 billion."""
    for name, billions in (("gpt-22b", 22), ("gpt3-175b", 175), ("gpt-530b", 530)):
        assert round(model_parameters(library.read_named(name, Model)[0]) / 1e9) == billions


def test_whisper_large_v3_is_this_encoder_and_a_decoder() -> None:
    """1,543,490,560 on its page: a decoder's layer has two attentions, one of them over the encoder's output."""
    width, layers = 1280, 32
    encoder = Audio(layers=layers, hidden=width, heads=20, ffn=4 * width, mels=128, out=1)
    projector = width + 1
    attention, mlp, norm = 4 * width**2 + 3 * width, 8 * width**2 + 5 * width, 2 * width
    decoder = layers * (2 * attention + mlp + 3 * norm) + (51_866 + 448) * width + norm
    assert parameter_counts(encoder).total - projector + 1500 * width + decoder == 1_543_490_560


@pytest.mark.parametrize(("name", "billions"), [("gpt-7b", 7.117), ("gpt-13b", 13.116), ("gpt-30b", 31.525)])
def test_flexsp_counts_to_the_printed_digits(name: str, billions: float) -> None:
    assert round(model_parameters(read(MODELS / f"{name}.yaml", Model)) / 2**30, 3) == billions


def test_qwen_splits_into_its_published_modules() -> None:
    model = read(MODELS / "qwen2.5-vl-7b.yaml", Model)
    assert parameter_counts(model.modules["vision"]).total == 676_550_144
    assert parameter_counts(model.modules["llm"]).total == 7_615_616_512


@pytest.mark.parametrize("hidden", [64, 256])
def test_classic_layer_is_12_h_squared_and_13_h(hidden: int) -> None:
    gpt = Decoder(
        layers=3, hidden=hidden, heads=8, ffn=4 * hidden, vocab=10, gated=False, norm="layer", bias="all",
        positions="learned", max_positions=20,
    )  # fmt: skip
    assert parameter_counts(gpt).largest_layer == 12 * hidden**2 + 13 * hidden
    assert parameter_counts(gpt).embedding_head == (10 + 10 + 20) * hidden + 2 * hidden


def test_tying_saves_one_table_and_grouped_heads_save_keys() -> None:
    wide = Decoder(layers=2, hidden=64, heads=8, ffn=128, vocab=100)
    tied = Decoder(layers=2, hidden=64, heads=8, ffn=128, vocab=100, tied=True)
    grouped = Decoder(layers=2, hidden=64, heads=8, kv_heads=2, ffn=128, vocab=100)
    assert parameter_counts(wide).total - parameter_counts(tied).total == 100 * 64
    assert parameter_counts(wide).largest_layer - parameter_counts(grouped).largest_layer == 2 * 64 * (8 - 2) * 8


def test_a_moe_layer_is_attention_router_experts_and_norms() -> None:
    expert = 3 * 16 * 8
    assert expert_parameters(MOE) == 6 * expert
    assert whole_expert_parameters(MOE) == 6 * 16
    assert shared_expert_parameters(MOE) == 3 * 16 * 4
    others = attention_parameters(MOE) + 2 * 16
    assert layer_parameters(MOE, "dense") == others + mlp_parameters(MOE) == others + 3 * 16 * 40
    assert layer_parameters(MOE, "moe") == others + 6 * expert + 6 * 16 + 3 * 16 * 4
    assert parameter_counts(MOE).largest_layer == max(layer_parameters(MOE, "dense"), layer_parameters(MOE, "moe"))


@pytest.mark.parametrize("name", library.shipped_names(Model))
def test_layers_and_ends_make_the_total_however_they_are_parted(name: str) -> None:
    for module in library.read_named(name, Model)[0].modules.values():
        count = parameter_counts(module)
        by_one = [parameters_of_layers(module, [layer]) for layer in range(module.layers)]
        assert max(by_one) == count.largest_layer
        assert (
            sum(by_one) + count.embedding_head
            == count.total
            == parameters_of_layers(module, range(module.layers)) + count.embedding_head
        )
        half = module.layers // 2
        halves = parameters_of_layers(module, range(half)) + parameters_of_layers(module, range(half, module.layers))
        assert halves == count.all_layers


def test_what_is_idle_is_the_experts_that_a_token_is_not_sent_to() -> None:
    idle = kind_counts(MOE)["moe"] * (6 - 2) * 3 * 16 * 8
    assert parameter_counts(MOE).total - active_parameters(MOE) == idle
    everywhere = with_fields(MOE, moe=with_fields(MOE.moe, topk=6))
    assert active_parameters(everywhere) == parameter_counts(everywhere).total == parameter_counts(MOE).total
    dense = with_fields(MOE, moe=None)
    assert active_parameters(dense) == parameter_counts(dense).total


def test_latent_attention_counts_the_matrices_of_its_paper() -> None:
    """arXiv 2405.04434, §2.1: down to the narrow vectors, a shared rotary key, up to the heads, and out."""
    latent = LatentAttentionShape(q_rank=5, kv_rank=6, rope_dim=2, nope_dim=4, value_dim=3)
    module = Decoder(layers=1, hidden=16, heads=4, ffn=8, vocab=10, latent=latent)
    queries = 16 * 5 + 5 * 4 * (4 + 2) + 5  # and a norm
    keys = 16 * 6 + 16 * 2 + 6 * 4 * (4 + 3) + 6
    assert attention_parameters(module) == queries + keys + 4 * 3 * 16
    at_once = with_fields(module, latent=with_fields(latent, q_rank=0))
    assert attention_parameters(at_once) == 16 * 4 * (4 + 2) + keys + 4 * 3 * 16


def test_biases_norms_and_sinks_of_attention() -> None:
    plain = Decoder(layers=1, hidden=16, heads=4, kv_heads=2, ffn=8, vocab=10)
    none = attention_parameters(plain)
    q, k, v, out = 16, 8, 8, 16
    assert attention_parameters(with_fields(plain, bias="qkv")) - none == q + k + v
    for bias in ("attention", "all"):
        assert attention_parameters(with_fields(plain, bias=bias)) - none == q + k + v + out
    assert attention_parameters(with_fields(plain, qk_norm=True)) - none == 2 * 4
    assert attention_parameters(with_fields(plain, sinks=True)) - none == 4
    encoder = Audio(layers=1, hidden=16, heads=4, ffn=8, mels=3, out=5)
    assert attention_parameters(encoder) - attention_parameters(with_fields(encoder, bias="none")) == 16 + 16 + 16


def test_counts_say_what_they_cover() -> None:
    vision = Vit(layers=1, hidden=8, heads=2, ffn=16, patch=4, out=8)
    assert counts_text(vision) == "layers, patch embedding, norms, projector, biases"
    assert counts_text(Decoder(layers=1, hidden=8, heads=2, ffn=16, vocab=5, tied=True)) == (
        "layers, embedding, tied head, norms"
    )
    assert counts_text(MOE) == f"layers, embedding, head, norms, experts ({active_parameters(MOE):,} active)"
    audio = Audio(layers=1, hidden=8, heads=2, ffn=16, mels=4, out=8)
    assert counts_text(audio) == "layers, convolutions, norms, projector, biases"


@pytest.mark.parametrize(
    ("name", "billions", "tolerance"),
    [  # counted on transformers' classes, with towers and projectors
        ("qwen2.5-vl-7b", 8.292, 1e-4),
        ("qwen2.5-vl-32b", 33.453, 1e-4),
        ("qwen2.5-vl-72b", 73.411, 1e-4),
        ("qwen2.5-omni-7b", 8.932, 1e-4),  # its thinker
        ("internvl3-8b", 7.944, 1e-4),
        ("llava-1.5-7b", 7.063 - 0.0126, 1e-4),  # without the layer that nothing reads
    ],
)
def test_models_of_several_modules_have_the_published_parameters(name: str, billions: float, tolerance: float) -> None:
    assert model_parameters(library.read_named(name, Model)[0]) / 1e9 == pytest.approx(billions, rel=tolerance)
