"""Where every layer attends to what another module gives, loss and gradients are those of one process."""

from dataclasses import replace
from pathlib import Path

import pytest

from planner import files
from planner.errors import InputError
from planner.plan.plan_file import Plan
from planner.runtime.preflight.preflight_checks import require_supported
from planner.specs.base import with_fields
from tests.runtime.multi_module_plans import TEXT, joined, layout, require_those_of_one_process
from tests.runtime.training_worlds import ONCE, asked_for, run_all

ITEMS = {0: 23, 1: 17, 2: 9, 3: 30}
TEXTS = {0: 12, 1: 5, 2: 31, 3: 8, 4: 20}
FEEDS = {0: 0, 1: (1, 3), 2: 0, 3: 2, 4: 3}  # two texts in the first item and the last, one in two items
LOW, HIGH = (0, 1), (2, 3)


def plan(source, target, layouts, rows, **said):
    rows = [{source: row[0], target: row[1]} for row in rows]
    spread = {name: layout(name, **of) for name, of in zip((source, target), layouts, strict=True)}
    return joined(spread, rows, items={target: ITEMS, source: TEXTS}, feeds={f"{source}>{target}": FEEDS}, **said)


ONE_EACH = [({(0,): (0, 4), (1,): (1,), (2,): (2,), (3,): (3,)}, {(rank,): (rank,) for rank in range(4)})]
LATER = [
    ({(0,): (0, 1), (2,): (2, 4)}, {(0,): (0,), (3,): (1, 3)}),
    ({(1,): (3,)}, {(2,): (2,)}),
]
APART = [
    ({(2,): (0, 1), (3,): (2, 4)}, {(0,): (0,), (1,): (1, 3)}),
    ({(3,): (3,)}, {(1,): (2,)}),
]
GROUPS = [({LOW: (0, 1, 3), HIGH: (2, 4)}, {LOW: (0, 1), HIGH: (2, 3)})]
READERS = [({(0,): (0, 1), (3,): (2, 3, 4)}, {(0, 2): (0, 1), (1, 3): (2, 3)})]
STAGES = [({(0, 2): (0, 1, 3), (1, 3): (2, 4)}, GROUPS[0][1])]
PLANS = {
    "dp": plan("text", "reader", ({"dp": 4}, {"dp": 4}), ONE_EACH),
    "dp, idle ranks": plan("bert", "turning", ({"dp": 4}, {"dp": 4, "zero": 0}), LATER),
    "zero 3": plan("text", "reader", ({"dp": 4, "zero": 3}, {"dp": 4, "zero": 3}), LATER),
    "zero 3, made again": plan(
        "bert", "turning", ({"dp": 4, "zero": 3, "recompute": "full"}, {"dp": 4, "zero": 3, "recompute": "selective"}),
        LATER,
    ),
    "selective": plan(
        "bert", "reader", ({"dp": 4, "recompute": "selective"}, {"dp": 4, "recompute": "selective"}), LATER
    ),
    "other ranks": plan("text", "turning", ({"dp": 2, "ranks": HIGH}, {"dp": 2, "ranks": LOW}), APART),
    "an encoder in groups": plan("bert", "reader", ({"dp": 4}, {"dp": 2, "tp": 2}), GROUPS),
    "tp of both": plan("text", "turning", ({"dp": 2, "tp": 2}, {"dp": 2, "tp": 2, "zero": 3}), GROUPS),
    "bert in stages": plan("bert", "reader", ({"dp": 2, "pp": 2}, {"dp": 2, "tp": 2}), STAGES),
}  # fmt: skip
PLANS["the reader in stages"] = plan("text", "turning", ({"dp": 4}, {"dp": 2, "pp": 2}), READERS)
GOLDEN = Path(__file__).parents[1] / "golden/by_hand/encoder-decoder/plan.yaml"
PLANS["by hand"] = files.read(GOLDEN, Plan)


@pytest.fixture(scope="module")
def results(request):
    return run_all(4, {name: PLANS[name] for name in asked_for(request, "name")}, replace(ONCE, dtype="float64"))


@pytest.mark.slow
@pytest.mark.every(4)
@pytest.mark.parametrize("name", PLANS)
def test_loss_and_gradients_are_those_of_one_process(results, name):
    require_those_of_one_process(PLANS[name], results[name].verify)


def test_words_in_another_module_s_table_are_refused():
    plan = PLANS["dp"]
    models = {**plan.uses.models, "text": with_fields(TEXT, shared_words=True)}
    with pytest.raises(InputError, match="a table on the ranks of another module") as error:
        require_supported(with_fields(plan, uses=with_fields(plan.uses, models=models)))
    assert (error.value.where, error.value.fix) == (
        "uses.models.text.shared_words",
        "shared_words: false, for a table of its own",
    )
