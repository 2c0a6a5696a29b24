"""Any config.json is read or refused with one error, and what is read is a valid model file."""

import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import files, hf
from planner.errors import InputError
from planner.specs.model import Model
from tests.examples import examples
from tests.hf.configs import PUBLISHED

ODD = st.one_of(
    st.sampled_from([None, True, False, 0, 1, -1, 2, 7, 10**12, 0.5, 1e-5, 1e300, "", "x", "silu", [], [1], ["x"], {}]),
    st.sampled_from([[[]], {"rope_type": "default"}, {"rope_theta": "x"}, {"model_type": "llama"}, [1, 0, 2**70]]),
)


SHAPE = {"hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size", "n_embd", "d_model", "model_type"}


def places(config, route=()):
    for key, value in config.items():
        yield (*route, key)
        if isinstance(value, dict):
            yield from places(value, (*route, key))


def put(config, route, value):
    for key in route[:-1]:
        config = config.get(key)
        if not isinstance(config, dict):
            return
    config[route[-1]] = copy.deepcopy(value)


@pytest.mark.parametrize("name", PUBLISHED)
@examples(60)
@given(data=st.data())
def test_odd_values(tmp_path_factory, name, data):
    config = copy.deepcopy(PUBLISHED[name][0])
    known = [*places(config), ("rope_parameters",), ("layer_types",), ("head_dim",), ("use_sliding_window",)]
    for _ in range(data.draw(st.integers(1, 3))):
        put(config, data.draw(st.sampled_from(known)), data.draw(ODD))
    path = tmp_path_factory.mktemp("odd") / "config.json"
    path.write_text(json.dumps(config))
    try:
        imported = hf.read(path)
    except InputError as error:
        assert error.where.startswith(str(path)) and error.fix and "\n" not in error.message
    else:
        assert files.parse(files.dump(imported.model), Model, "again") == imported.model


@pytest.mark.parametrize("name", PUBLISHED)
def test_each_key_left_out(tmp_path, name):
    """Assumed, noted or refused."""
    for route in places(PUBLISHED[name][0]):
        config = copy.deepcopy(PUBLISHED[name][0])
        at = config
        for key in route[:-1]:
            at = at[key]
        del at[route[-1]]
        (tmp_path / "config.json").write_text(json.dumps(config))
        try:
            hf.read(tmp_path)
            said = True
        except InputError as error:
            assert error.where and error.fix and "\n" not in error.message
            said = False
        follows = route[0] == "num_hidden_layers" and "hybrid_override_pattern" in config
        assert not (said and route[0] in SHAPE and not follows), route
