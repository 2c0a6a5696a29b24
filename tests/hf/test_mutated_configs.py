"""Configs with a few keys changed or left out: one error, or the parameters of the model that transformers builds."""

import copy
import json
import random
import warnings

import pytest

from planner import hf
from planner.errors import InputError
from planner.models.described_models import build_on_meta
from tests.examples import share
from tests.hf.test_against_transformers import OTHERS, PARTS, TEXTS, count, transformers

__all__ = ["transformers"]  # the fixture
pytestmark = pytest.mark.slow

VALUES = [None, 0, 1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 40, True, False, "silu", "gelu", "relu", 1.0, 0.5, 0.25]
SHAPES = (
    "size", "dim", "head", "layer", "expert", "bias", "rank", "tie", "group", "freq", "step", "type", "norm", "gate",
    "topk", "conv", "interval", "width", "factor", "pattern", "depth", "patch", "channel", "merge", "vocab", "act",
    "window", "scor", "shared", "latent", "state", "mamba", "indexes", "embed",
)  # fmt: skip
NAMES = {"model_type", "architectures", "id2label", "label2id", "dtype"}


def base(transformers, kind, brief):
    """A small config of a kind: all keys, or those that are not as usual."""
    own = (TEXTS | PARTS)[kind]
    whole = json.loads(transformers.CONFIG_MAPPING[kind](**own).to_json_string(use_diff=False))
    named = {"architectures": [OTHERS[kind]]} if kind in OTHERS else {}
    return {**(own if brief else whole), "model_type": kind, **named}


def shape_keys(config, route=()):
    """The paths of keys that may have to do with shapes."""
    for key, value in config.items():
        if key in ("text_config", "vision_config"):
            yield from shape_keys(value, (*route, key))
        elif key not in NAMES and not isinstance(value, dict) and any(each in key for each in SHAPES):
            yield (*route, key)


def mutated(config, rng):
    """The config with up to three keys left out, or of another value, mostly of the same type."""
    config = copy.deepcopy(config)
    for _ in range(rng.choice((1, 1, 2, 3))):
        *route, key = rng.choice([*shape_keys(config)] or [("hidden_size",)])
        part = config
        for each in route:
            part = part[each]
        old = part.pop(key, None)
        if isinstance(old, list) and old and rng.random() < 0.75:
            part[key] = rng.sample(old, len(old) - rng.choice((0, 0, 1)))
        elif rng.random() < 0.75:
            part[key] = rng.choice(
                [each for each in VALUES if type(each) is type(old) or rng.random() < 0.15] or VALUES
            )
    return config


@pytest.mark.soak
@pytest.mark.filterwarnings("ignore")
def test_the_parameters_of_transformers_or_one_error(transformers, tmp_path):
    rng, answers = random.Random(4), {"refused": 0, "not built": 0, "same": 0}
    bases = [base(transformers, kind, brief) for kind in TEXTS | PARTS for brief in (False, True)]
    for _ in range(share(5000)):
        config = mutated(rng.choice(bases), rng)
        (tmp_path / "config.json").write_text(json.dumps(config))
        try:
            parameters = hf.read(tmp_path).source_parameters
        except InputError as error:
            assert error.where and error.fix
            answers["refused"] += 1
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                network, _ = build_on_meta(hf.read_config(tmp_path))
        except InputError:
            answers["not built"] += 1
            continue
        assert parameters == count(network), config
        answers["same"] += 1
    assert answers["same"] > answers["not built"], answers
