"""What is frozen keeps its weights, and what is trained gets the gradients of one process, wherever modules are."""

from dataclasses import replace

import pytest

from planner.plan.legal.plan_laws import require_legal
from planner.plan.tasks.expand import expand
from planner.runtime.run_options import RunOptions
from planner.specs.base import with_fields
from tests.examples import soaked
from tests.meshes import meshed
from tests.runtime.multi_module_plans import FEEDS, IMAGES, TEXTS, joined, layout
from tests.runtime.training_worlds import asked_for, run_all, train_all

pytestmark = pytest.mark.slow

ALL, LOW, HIGH = (0, 1, 2, 3), (0, 1), (2, 3)
ROWS = [  # the second row has no image
    {"vit": {(0,): (0,), (1,): (1,), (2,): (2,)}, "llm": {LOW: (0,), HIGH: (1,)}},
    {"llm": {ALL: (2,)}},
    {"vit": {(3,): (3,)}, "llm": {ALL: (3,)}},
]
STAGED = [
    {"vit": {LOW: (0, 1), HIGH: (2,)}, "llm": {(0, 2): (0,), (1, 3): (1,)}},
    {"llm": {ALL: (2,)}},
    {"vit": {LOW: (3,)}, "llm": {ALL: (3,)}},
]
APART = [
    {"vit": {(0,): (0, 1)}, "llm": {(1, 2): (0,), (3,): (2,)}},
    {"vit": {(0,): (2, 3)}, "llm": {(1,): (1,), (2, 3): (3,)}},
]
LLM_STAGES = layout("llm", pp=2, dp=2)
VIT_STAGES = layout("vit", dp=2, pp=2, rank_order="pp-dp")
PLACED = {
    "colocated": ({"llm": layout("llm", dp=4), "vit": layout("vit", dp=4)}, ROWS),
    "zero 3": ({name: layout(name, dp=4, zero=3) for name in ("llm", "vit")}, ROWS),
    "stages": ({"llm": LLM_STAGES, "vit": VIT_STAGES}, STAGED),
    "stages, zero 3": (
        {"llm": layout("llm", pp=2, dp=2, zero=3), "vit": layout("vit", dp=2, pp=2, rank_order="pp-dp", zero=3)},
        STAGED,
    ),
    "apart": ({"vit": layout("vit", (0,), dp=1), "llm": layout("llm", (1, 2, 3), dp=3)}, APART),
    "tensors": (
        {"llm": layout("llm", **meshed({"dp": 2, "tp": 2})), "vit": layout("vit", dp=4)},
        [
            {"vit": {(0,): (0, 1), (3,): (2,)}, "llm": {LOW: (0, 1), HIGH: (2,)}},
            {"vit": {(1,): (3,)}, "llm": {LOW: (3,)}},
        ],
    ),
}
PLACED["zero bubble"] = PLACED["stages"]
PLACED["recompute"] = ({name: layout(name, dp=4, zero=2, recompute="full") for name in ("llm", "vit")}, ROWS)
SPLIT = {place: {"B"} if place == "zero bubble" else set() for place in PLACED}  # has I in place of it
TRAINED = {
    "a frozen encoder": {"vit": "none"},
    "a frozen llm": {"llm": "none"},
    "the projector and the llm": {"vit": "projector"},
    "the projector alone": {"vit": "projector", "llm": "none"},
}
CASES = [(place, what) for place in PLACED for what in TRAINED]


def plan_of_case(place, what):
    layouts, rows = PLACED[place]
    order = "zb_h1" if place == "zero bubble" else None
    plan = joined(layouts, rows, order=order, items={"llm": TEXTS, "vit": IMAGES}, feeds={"vit": FEEDS})
    models = {
        name: with_fields(spec, trained=TRAINED[what].get(name, "all")) for name, spec in plan.uses.models.items()
    }
    plan = with_fields(plan, uses=with_fields(plan.uses, models=models))
    require_legal(plan, "made up")
    return plan


ALONE = ("colocated", "the projector alone")
OFTEN = [  # each of what is trained, whole or in shards, in one pass back or two; the others in the soak
    ALONE,
    ("stages", "the projector and the llm"),
    ("stages, zero 3", "the projector alone"),
    ("apart", "a frozen encoder"),
    ("zero bubble", "a frozen llm"),
]


@pytest.fixture(scope="module")
def results(request):
    options = RunOptions(steps=1, verify=True, seed=4)
    asked = dict.fromkeys([*asked_for(request, "place", "what"), ALONE])
    plans = {f"{place}: {what}": plan_of_case(place, what) for place, what in asked}
    return run_all(4, plans, options, twice={": ".join(ALONE)})


@pytest.mark.parametrize(("place", "what"), soaked(CASES, OFTEN))
@pytest.mark.every(2)
def test_loss_and_gradients_are_those_of_one_process(results, place, what):
    found = results[f"{place}: {what}"].verify
    assert (found.loss_rel_err <= 1e-12, found.grad_rel_err <= 1e-12) == (True, True), found


@pytest.mark.parametrize("place", PLACED)
def test_a_frozen_encoder_has_no_backward_and_no_update(place):
    tasks = expand(plan_of_case(place, "a frozen encoder"))
    assert {task.phase for task in tasks if task.module == "vit"} <= {"F", "send", "recv", "gather"}
    assert all(task.of == "F" for task in tasks if task.module == "vit" and task.phase == "send")
    assert {"B", "update"} <= {task.phase for task in tasks if task.module == "llm"} | SPLIT[place]


@pytest.mark.parametrize("place", PLACED)
def test_a_frozen_llm_passes_gradients_on_and_updates_nothing(place):
    tasks = expand(plan_of_case(place, "the projector alone"))
    llm = {task.phase for task in tasks if task.module == "llm"}
    assert {"F", "B"} <= llm | SPLIT[place] and not llm & {"W", "update"}
    last = max(task.layers[-1] for task in tasks if task.module == "vit" and task.phase == "F")
    assert {task.layers[-1] for task in tasks if task.module == "vit" and task.phase in ("B", "update")} == {last}


def test_losses_fall_also_where_only_the_projector_is_trained(results):
    """The second step's loss is lower than the first one's, of the same items."""
    first, second = results["colocated: the projector alone"].steps
    assert second.loss < first.loss


def test_a_pipeline_of_which_only_the_projector_is_trained_is_saved_and_resumed(tmp_path):
    """Its first stage has no optimizer states."""
    plan, folder = plan_of_case("stages", "the projector and the llm"), tmp_path / "saved"
    whole = RunOptions(steps=2, seed=4)
    options = {"whole": whole, "saved": replace(whole, steps=1, save=folder), "again": replace(whole, resume=folder)}
    found = train_all(4, {name: (plan, each) for name, each in options.items()})
    losses = {name: [step.loss for step in each.steps] for name, each in found.items()}
    assert losses["again"] == pytest.approx(losses["whole"][1:], rel=1e-12)


def test_backward_gathers_of_a_frozen_llm_stay_where_its_backward_is_in_two():
    layouts, rows = PLACED["stages, zero 3"]
    for order in (None, "zb_h1"):
        plan = joined(layouts, rows, order=order, items={"llm": TEXTS, "vit": IMAGES}, feeds={"vit": FEEDS})
        models = {**plan.uses.models, "llm": with_fields(plan.uses.models["llm"], trained="none")}
        plan = with_fields(plan, uses=with_fields(plan.uses, models=models))
        assert sum(task.module == "llm" and task.phase == "sync" for task in expand(plan)) == 6
