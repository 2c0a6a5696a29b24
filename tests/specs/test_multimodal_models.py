"""Each module of the shipped multimodal models has the parameters that are published, or the size that is named."""

from pathlib import Path

import pytest

from planner.files import read
from planner.specs.layers import Audio, Module, Vit, kind_counts
from planner.specs.model import Model
from planner.specs.parameters import layer_parameters, model_parameters, parameter_counts

MODELS = Path(__file__).parents[2] / "profiles" / "models"

ROWS = 2 * 4096  # parameters that one more word adds to an embedding and a head of this width
LLMS = {  # as the page of the LLM alone says, with the words that the pair adds
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-32b": 32_763_876_352,
    "qwen2.5-72b": 72_706_203_648,
    "vicuna-7b": 6_738_415_616 + 64 * ROWS,
    "internlm2.5-7b": 7_737_708_544 + 9 * ROWS,
    "mistral-nemo": 12_247_782_400,
    "llama-2-70b": 68_976_648_192,
    "llama-3.2-11b-text": 9_775_192_080,  # transformers, on the meta device
    "llama-3.2-90b-text": 87_666_865_192,  # as its discussions on Hugging Face count too
}

EXACT = {
    "qwen2.5-vl-7b": "qwen2.5-7b",
    "qwen2.5-vl-32b": "qwen2.5-32b",
    "qwen2.5-vl-72b": "qwen2.5-72b",
    "qwen2.5-omni-7b": "qwen2.5-7b",
    "llava-1.5-7b": "vicuna-7b",
    "internvl2.5-8b": "internlm2.5-7b",
    "llama-3.2-vision-11b": "llama-3.2-11b-text",
    "llama-3.2-vision-90b": "llama-3.2-90b-text",
    "vit-1b-llama-12b": "mistral-nemo",
    "vit-2.4b-llama-70b": "llama-2-70b",
    "vit-10b-llama-70b": "llama-2-70b",
    "vit-10b-audio-2b-llama-70b": "llama-2-70b",
    "vit-11b-llama-70b": "llama-2-70b",
    "vit-22b-llama-70b": "llama-2-70b",
}

NAMED = {  # billions: of encoders without their projectors
    "qwen2.5-vl-7b": {"vision": 0.632},  # 676.6 million with the projector's 44.6
    "qwen2.5-vl-32b": {"vision": 0.6364},  # 688.8 and 52.4
    "qwen2.5-vl-72b": {"vision": 0.6364},  # 704.6 and 68.2
    "qwen2.5-omni-7b": {"vision": 0.632, "audio": 0.635},  # Whisper large-v3's encoder
    "qwen2-audio-7b": {"audio": 0.635, "llm": 7.755},
    "llava-1.5-7b": {"vision": 0.3035 - 0.0126},  # without the layer that nothing reads
    "internvl2.5-8b": {"vision": 0.304},
    "internvl3-8b": {"vision": 0.304, "llm": 7.613},
    "llama-3.2-vision-11b": {"llm": 9.775},
    "llama-3.2-vision-90b": {"llm": 87.667},
    "qwen3.5-27b": {"vision": 0.4159, "llm": 26.896},
    "qwen3-vl-8b": {"vision": 0.4159, "llm": 8.191},  # as transformers builds them, without four projectors
    "qwen3-vl-30b-a3b": {"vision": 0.4159, "llm": 30.532},
    "qwen3.5-122b-a10b": {"vision": 0.4159, "llm": 122.112},
    "tiny-omni": {"vision": 0.0002662, "audio": 0.0002067, "llm": 0.0017773},
    "vit-1b-llama-12b": {"vision": 1, "llm": 12},
    "vit-2.4b-llama-70b": {"vision": 2.4, "llm": 70},
    "vit-10b-llama-70b": {"vision": 10, "llm": 70},
    "vit-10b-gpt-175b": {"vision": 10, "llm": 175},
    "vit-10b-audio-2b-llama-70b": {"vision": 10, "audio": 2, "llm": 70},
    "vit-3b-gpt-11b": {"vision": 3, "llm": 9.06},  # 12 layers width², by the paper's table 9, which calls it 11B
    "vit-11b-llama-70b": {"vision": 10, "llm": 70},  # a tower of 11B in the text, of 10B in table 8
    "vit-22b-llama-70b": {"vision": 22, "llm": 70},
    "vit-11b-gpt-175b": {"vision": 10, "llm": 175},
    "vit-22b-gpt-175b": {"vision": 22, "llm": 175},
    "vit-22b-vit-11b-gpt-175b": {"vision_22b": 22, "vision_11b": 10, "llm": 175},
}


def shipped(name: str) -> Model:
    return read(MODELS / f"{name}.yaml", Model)


def without_projector(module: Module) -> int:
    ends = sum(end.parameters for end in module.embedding_head if end.role == "projector")
    return parameter_counts(module).total - ends


@pytest.mark.parametrize(("name", "llm"), EXACT.items())
def test_llms_have_the_published_parameters(name: str, llm: str) -> None:
    assert parameter_counts(shipped(name).modules["llm"]).total == LLMS[llm]


@pytest.mark.parametrize(("name", "sizes"), NAMED.items())
def test_modules_have_their_sizes_within_5_percent(name: str, sizes: dict[str, float]) -> None:
    """Those of a shape that is published to the million: within 0.4 %."""
    modules = shipped(name).modules
    for each, billions in sizes.items():
        tolerance = 0.05 if name.startswith("vit-") else 0.004
        assert without_projector(modules[each]) / 1e9 == pytest.approx(billions, rel=tolerance), each


def test_internvl_lacks_what_its_source_says() -> None:
    """8,075,365,376 on its page: a class token and its position, and two scales in each of 24 layers."""
    assert model_parameters(shipped("internvl2.5-8b")) == 8_075_365_376 - (1024 + 1024 + 24 * 2 * 1024)


def test_llava_lacks_what_its_source_says() -> None:
    """7,063,427,072 on its page: one more layer, and a norm behind it."""
    model = shipped("llava-1.5-7b")
    layer = parameter_counts(model.modules["vision"]).largest_layer
    assert model_parameters(model) == 7_063_427_072 - layer - 2 * 1024


@pytest.mark.parametrize(("size", "layers", "total"), [("11b", 8, 10_670_220_835), ("90b", 20, 88_593_355_323)])
def test_llama_vision_lacks_what_its_source_says(size: str, layers: int, total: int) -> None:
    """The totals of transformers, on the meta device: tables of positions, a class token, a norm in front and biases of
    MLPs are left out, and the projector is of another shape.
    """
    model = shipped(f"llama-3.2-vision-{size}")
    llm, vision = model.modules["llm"], model.modules["vision"]
    assert kind_counts(llm) == {"attention+mlp": 4 * layers, "cross_attention+mlp": layers}
    assert layer_parameters(llm, "cross_attention+mlp") == {"11b": 218_112_258, "90b": 855_654_658}[size]
    tables = 1601 * 1280 + 9 * 4 * (1601 + 2) * 1280 + 3
    left_out = tables + 40 * (5120 + 1280) + 3 * 1280
    assert without_projector(vision) == 863_567_379 - left_out
    projector = 7680 * llm.hidden + llm.hidden
    assert parameter_counts(llm).total + without_projector(vision) + left_out + projector == total


def test_a_hybrid_has_all_weights_that_are_published_but_those_that_predict_ahead() -> None:
    """Its files have 27,781,427,952 parameters, 424,699,392 of them in a layer that predicts ahead."""
    model = shipped("qwen3.5-27b")
    assert kind_counts(model.modules["llm"]) == {"linear_attention+mlp": 48, "attention+mlp": 16}
    assert model_parameters(model) == 27_781_427_952 - 424_699_392


def test_every_multimodal_model_is_here_and_its_encoders_feed_its_llm() -> None:
    models = {path.stem: read(path, Model) for path in sorted(MODELS.glob("*.yaml"))}
    encoders = {
        name: {each for each, module in model.modules.items() if isinstance(module, Vit | Audio)}
        for name, model in models.items()
        if "llm" in model.modules
    }
    assert {name for name, some in encoders.items() if some} == {*NAMED}
    for name in NAMED:
        modules, edges = models[name].modules, models[name].edges
        assert {(edge.source, edge.target) for edge in edges} == {(each, "llm") for each in encoders[name]}
        assert {modules[edge.source].feature_width for edge in edges} == {modules["llm"].hidden}
