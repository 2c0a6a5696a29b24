"""What transformers builds is described to the last parameter, or refused by its key; nothing ends in a traceback."""

import copy
import json
import random
import warnings

import pytest
import torch

from planner import files, hf
from planner.errors import InputError
from planner.models import build, describe, unsupported
from planner.specs.layers import Described, kind_counts
from planner.specs.layers.components import LayerTable, Matrix
from planner.specs.model import Model
from planner.specs.parameters import active_parameters, layer_parameters, parameter_counts
from planner.specs.shapes import layer_flops
from planner.workflows.imported_models import imported
from tests.hf.configs import PUBLISHED
from tests.hf.test_damaged import places, put

SMALL = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4, "num_attention_heads": 4, "head_dim": 16,
    "num_key_value_heads": 2, "vocab_size": 100, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
MIXTURE = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 24}


def config_at(folder, values):
    (folder / "config.json").write_text(json.dumps(values))
    return hf.read_config(folder)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("values", "kinds"),
    [
        ({"model_type": "cohere2", **SMALL}, {"attending_matrices@kind0": 3, "attending_matrices@kind1": 1}),
        ({"model_type": "qwen3_moe", **SMALL, **MIXTURE}, {"attending_matrices+experts@kind0": 4}),
        ({"model_type": "qwen3_5_text", **SMALL}, {"matrices@kind0": 3, "attending_matrices@kind1": 1}),
    ],
    ids=["windows", "experts", "scans"],
)
def test_what_no_reader_is_needed_for(tmp_path, values, kinds):
    config_at(tmp_path, values)
    model = imported(tmp_path, build=True, mtp=False).model
    module = model.modules["llm"]
    assert kind_counts(module) == kinds and files.parse(files.dump(model), Model, "again") == model
    assert "no network of a module of the kind `described`" in unsupported(module)
    with pytest.raises(InputError, match="no network of a module of the kind `described`"):
        build(module)
    assert bool(module.routed_experts) == ("num_experts" in values)
    assert (active_parameters(module) < parameter_counts(module).total) == ("num_experts" in values)


def test_layers_differ_in_heads_and_matrices():
    """Each is counted with its own; several matrices alike count once for each, and are used as often as it says."""
    wide = LayerTable(name="wide", matrices=(Matrix(outputs=8, inputs=4, count=3, used=1.0),), vectors=5, heads=4)
    thin = LayerTable(name="thin", matrices=(Matrix(outputs=2, inputs=4),), attends=False, flops=7.0)
    shape = {"layers": 3, "hidden": 4, "heads": 2, "ffn": 8, "vocab": 10, "tables": (wide, thin)}
    module = Described(**shape, head_dim=3, pattern="thin wide thin", vectors=4)
    thinner, wider = module.layer_kind(0), module.layer_kind(1)
    assert (layer_parameters(module, thinner), layer_parameters(module, wider)) == (8, 101)
    assert parameter_counts(module).total == 2 * 8 + 101 + 2 * 40 + 4
    assert layer_flops(module, thinner) == (0.0, 2.0 * 8 + 7.0)
    assert layer_flops(module, wider) == (2.0 * 0.5 * 2 * 4 * 3, 2.0 * (32 + 5))
    with pytest.raises(ValueError, match="one word for each layer"):
        Described(**shape, pattern="thin")


REFUSED = [
    ({"hidden_size": 4}, "model_type", "missing"),
    ({"model_type": "nobody", "auto_map": {"AutoConfig": "x.Y"}}, "auto_map", "never run (trust_remote_code)"),
    ({"model_type": "nobody"}, "model_type", "has no models of the kind `nobody`"),
    ({"_class_name": "FluxTransformer2DModel"}, "_class_name", "a diffusion model"),
    ({"model_type": "llama", "num_hidden_layers": 0}, "num_hidden_layers", "0 is not a whole number"),
    ({"model_type": "llama", "num_hidden_layers": 10**6}, "num_hidden_layers", "is more than 2,000"),
    ({"model_type": "llama", "hidden_size": 7, "num_attention_heads": 3}, "model_type", "does not build it"),
    ({"model_type": "vit"}, "model_type", "no network for it that generates text"),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("values", "key", "message"), REFUSED, ids=[message for *_, message in REFUSED])
def test_what_is_not_built(tmp_path, values, key, message):
    with pytest.raises(InputError) as refused:
        describe(config_at(tmp_path, values))
    assert message in refused.value.message and refused.value.fix
    assert refused.value.where == f"{tmp_path / 'config.json'} ({key})"


def mutated(draw: random.Random):
    """A published config with some values that do not belong there."""
    values = copy.deepcopy(PUBLISHED[draw.choice(sorted(PUBLISHED))][0])
    for _ in range(draw.randint(1, 3)):
        put(values, draw.choice([*places(values)]), draw.choice(ODD_VALUES))
    return values


ODD_VALUES = [None, True, False, 0, 1, -1, 2, 7, 10**12, 0.5, 1e300, "", "x", "silu", [], [1], ["x"], {}, {"a": [1]}]


def answered(folder, values):
    """Parameters by the reader and by what is built; None where refused, by a place and with a fix."""
    config_at(folder, values)
    counts = []
    for built in (False, True):
        try:
            counts.append(imported(folder, built, mtp=False).source_parameters)
        except InputError as error:
            assert error.where and error.fix and "\n" not in error.message
            counts.append(None)
    return counts


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", range(50))
def test_odd_configs_have_no_traceback(tmp_path, seed):
    answered(tmp_path, mutated(random.Random(seed)))


@pytest.mark.soak
@pytest.mark.filterwarnings("ignore")
def test_five_thousand_odd_configs(tmp_path):
    for seed in range(50, 5050):
        answered(tmp_path, mutated(random.Random(seed)))


@pytest.mark.soak
@pytest.mark.filterwarnings("ignore")
def test_every_language_model_of_transformers(tmp_path):
    """Read or built to the last parameter, or refused: of all kinds whose small shape transformers builds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import transformers
    seen = 0
    for kind in sorted(transformers.CONFIG_MAPPING.keys()):
        config = transformers.CONFIG_MAPPING[kind]
        if config not in transformers.MODEL_FOR_CAUSAL_LM_MAPPING or kind == "mllama":  # whose text alone this is
            continue
        try:
            values = config(**SMALL)
            with torch.device("meta"):
                network = transformers.MODEL_FOR_CAUSAL_LM_MAPPING[config]._from_config(values)
        except Exception:  # these sizes do not suit it
            continue
        total = sum(each.numel() for each in network.parameters())
        moved = sum(each.numel() for name, each in network.named_buffers() if "e_score_correction" in name)
        values.architectures = [type(network).__name__]
        values.to_json_file(tmp_path / "config.json", use_diff=False)
        read, built = answered(tmp_path, json.loads((tmp_path / "config.json").read_text()))
        assert read in (None, total + moved) and built == total, kind
        seen += 1
    assert seen > 150
