"""A run whose encoders lie beside the decoder resumes with them elsewhere, on images and sound from a folder."""

from dataclasses import replace

import pytest

from planner.launch.processes import launch
from tests.examples import soaked, thorough
from tests.runtime.multi_module_plans import SPECS, joined, layout
from tests.runtime.test_resuming import (
    OPTIONS,
    require_same_losses,
    require_same_states,
    saved_and_resumed,
    two_steps,
)
from tests.runtime.training_worlds import asked_for
from tests.sample_folders import facts, planned, write_folder

pytestmark = pytest.mark.slow

ALL, LOW, HIGH = (0, 1, 2, 3), (0, 1), (2, 3)
BESIDE = (
    {"photo": {"dp": 4}, "talk": {"dp": 4}, "llm": {"dp": 4}},
    [
        {"photo": {(0,): (0, 1), (1,): (2,), (3,): (3,)}, "talk": {(2,): (0,)}, "llm": {(0,): (0,), (1,): (1, 3)}},
        {"photo": {(2,): (4,)}, "talk": {(0,): (1,), (3,): (2,)}, "llm": {(1,): (2,), (2,): (4,), (3,): (5,)}},
    ],
)
ELSEWHERE = {
    "apart": (
        {"photo": {"dp": 2, "zero": 2, "ranks": HIGH}, "talk": {"ranks": (3,)}, "llm": {"dp": 2, "ranks": LOW}},
        [
            {"photo": {HIGH: (0, 1, 2, 3)}, "talk": {(3,): (0,)}, "llm": {LOW: (0, 1, 3)}},
            {"photo": {(2,): (4,)}, "talk": {(3,): (1, 2)}, "llm": {(0,): (2, 4), (1,): (5,)}},
        ],
    ),
    "tensors": (
        {"photo": {"dp": 2, "tp": 2}, "talk": {"dp": 2, "tp": 2}, "llm": {"dp": 4, "zero": 3}},
        [
            {"photo": {LOW: (0, 1), HIGH: (2, 3)}, "talk": {HIGH: (0,)}, "llm": {LOW: (0,), HIGH: (1, 3)}},
            {"photo": {LOW: (4,)}, "talk": {ALL: (1, 2)}, "llm": {ALL: (2, 4, 5)}},
        ],
    ),
    "first stage": (
        {"photo": {"dp": 2, "ranks": LOW}, "talk": {"tp": 2, "ranks": LOW}, "llm": {"dp": 2, "pp": 2}},
        [
            {"photo": {(0,): (0, 1), (1,): (2, 3)}, "talk": {LOW: (0,)}, "llm": {(0, 2): (0,), (1, 3): (1, 3)}},
            {"photo": {LOW: (4,)}, "talk": {LOW: (1, 2)}, "llm": {ALL: (2, 4, 5)}},
        ],
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def results(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("encoders")
    data = write_folder(folder / "data")
    items = facts(planned(data, {name: SPECS[name] for name in BESIDE[0]}))

    def plan(layouts, rows):
        return two_steps(joined({name: layout(name, **said) for name, said in layouts.items()}, rows, **items), 1)

    pairs = {name: (plan(*BESIDE), plan(*ELSEWHERE[name])) for name in asked_for(request, "name")}
    return launch(saved_and_resumed, 4, pairs, folder, replace(OPTIONS, data=data), thorough())[0], folder


@pytest.mark.soak
@pytest.mark.parametrize("name", soaked(ELSEWHERE, ["tensors"]))
def test_losses_and_states_are_those_of_a_run_that_was_not_stopped(results, name):
    found, folder = results
    require_same_losses(*found[name])
    require_same_states(folder / name, BESIDE[0])
