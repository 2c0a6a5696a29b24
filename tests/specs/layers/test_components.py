"""What may be said of experts, and what nobody says."""

import msgspec
import pytest

from planner import files
from planner.errors import InputError
from planner.specs.layers.components import Experts
from planner.specs.model import Model

SAID = """\
format: planner.model/1
name: small
source: made up
modules: {{llm: {{kind: decoder, layers: 2, hidden: 8, heads: 2, ffn: 16, vocab: 32, moe: {{{moe}}}}}}}
"""


def experts(said: str) -> Experts:
    return files.parse(SAID.format(moe=f"experts: 4, topk: 2, ffn: 8{said}"), Model, "model.yaml").modules["llm"].moe


def test_what_is_as_usual_is_not_written():
    """Dropless, without a balancing loss, softmax, weights that sum to one."""
    usual = experts("")
    assert (usual.capacity, usual.balance, usual.scores, usual.normalised) == (None, 0.0, "softmax", True)
    assert files.dump(usual) == files.dump(Experts(experts=4, topk=2, ffn=8))
    assert set(msgspec.to_builtins(usual)) == {"experts", "topk", "ffn"}


def test_what_is_said_is_read():
    said = experts(", capacity: 1.25, balance: 0.01, scores: sigmoid, normalised: false")
    assert said == Experts(experts=4, topk=2, ffn=8, capacity=1.25, balance=0.01, scores="sigmoid", normalised=False)


@pytest.mark.parametrize(
    ("said", "key"),
    [
        (", capacity: 0", "capacity"),
        (", capacity: -1", "capacity"),
        (", balance: -0.1", "balance"),
        (", scores: max", "scores"),
    ],
)
def test_what_is_impossible_is_located(said, key):
    with pytest.raises(InputError) as caught:
        experts(said)
    assert f"modules.llm.moe.{key}" in caught.value.where and caught.value.fix
