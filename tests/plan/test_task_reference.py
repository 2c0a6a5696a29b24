"""How a plan names a task: whatever can be named can be written, and read again."""

from typing import get_args

import pytest
from hypothesis import given

from planner import files
from planner.errors import InputError
from planner.plan.plan_file import Plan, TaskPlacement
from planner.plan.task import Phase, TaskRef, parse_task_ref
from planner.specs.base import Layers
from tests.generate import references
from tests.plans import encoder_plan

SPELLED = {
    "vit.F1[0-11]": TaskRef("vit", "F", 1, layers=Layers(range(12))),
    "llm.send.F1@2": TaskRef("llm", "send", 1, of="F", stage=2),
    "llm.recv.B0/dp0": TaskRef("llm", "recv", 0, of="B", group="dp0"),
    "llm.B3@0": TaskRef("llm", "B", 3, stage=0),
    "vit.B2[12-23]": TaskRef("vit", "B", 2, layers=Layers(range(12, 24))),
    "llm.W7": TaskRef("llm", "W", 7),
    "llm.gather.0@1": TaskRef("llm", "gather", 0, stage=1),
    "llm.gather@1": TaskRef("llm", "gather", stage=1),
    "vit.sync.2/all": TaskRef("vit", "sync", 2, group="all"),
    "llm.offload.4": TaskRef("llm", "offload", 4),
    "llm.update": TaskRef("llm", "update"),
    "vit.loss/named": TaskRef("vit", "loss", group="named"),
    "vit.send.F0/v0>llm": TaskRef("vit", "send", 0, of="F", group="v0>llm"),
    "qwen-2.5.F0": TaskRef("qwen-2.5", "F", 0),
}


@given(references())
def test_a_reference_is_read_as_it_was_written(ref):
    assert parse_task_ref(str(ref)) == ref


@pytest.mark.parametrize("text", SPELLED)
def test_each_spelling_has_one_meaning(text):
    assert parse_task_ref(text) == SPELLED[text] and str(SPELLED[text]) == text


def test_every_phase_can_be_named():
    assert {ref.phase for ref in SPELLED.values()} | {"I"} == {*get_args(Phase)}


@pytest.mark.parametrize(
    ("wrong", "says", "key"),
    [
        ("vit.F", "`vit.F` names no micro-batch", ""),
        ("F1", "`F1` names no task", "do"),
        ("vit.X1", "`vit.X1` names no task", "do"),
        ("vit.F1@", "`vit.F1@` names no task", "do"),
        ("vit.send.W1", "`vit.send.W1` names no task", "do"),
        ("vit.F1[3-1]", "the indices in `3-1` do not rise", "do"),
        ("vit.F1[x]", "`x` is no set of indices", "do"),
        (7, "`7` names no task", "do"),
        ("vit.F1/v1", "names a group, and so does `on`", ""),
    ],
)
@pytest.mark.every(3)
def test_what_cannot_be_read_is_refused_where_it_stands(wrong, says, key):
    text = files.dump(encoder_plan((TaskPlacement(do="vit.F1", on="v1", before="llm.F0@0"),)))
    assert text.count("do: vit.F1,") == 1
    line = 1 + text[: text.index("do: vit.F1,")].count("\n")
    with pytest.raises(InputError) as refused:
        files.parse(
            text.replace("do: vit.F1,", f"do: '{wrong}'," if isinstance(wrong, str) else f"do: {wrong},"), Plan, "p"
        )
    assert says in refused.value.message and refused.value.fix
    assert refused.value.where.startswith(f"p:{line}:") and f"place[0]{'.' + key if key else ''}" in refused.value.where
