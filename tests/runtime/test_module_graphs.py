"""Where modules feed several others, and what reads is read in turn, loss and gradients are those of one process;
wherever forwards and backwards are placed.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from planner import files
from planner.plan.plan_file import Plan, TaskPlacement
from tests.examples import soaked
from tests.runtime.multi_module_plans import TEXTS, joined, layout, require_those_of_one_process
from tests.runtime.training_worlds import ONCE, asked_for, run_all

pytestmark = pytest.mark.slow

ALL, LOW, HIGH = (0, 1, 2, 3), (0, 1), (2, 3)
CHAIN = {  # images make 4, 2, 6 and 7 outputs, of which some are read twice, by items that are read in turn
    "items": {"llm": {**TEXTS, 2: 25}, "vit": {0: 16, 1: 8, 2: 24, 3: 28}, "eye": {0: 10, 1: 7, 2: 12}},
    "feeds": {"vit>eye": {0: (0, 2), 1: 0, 2: 1, 3: 2}, "eye": {0: (0, 2), 1: 1, 2: (2, 3)}},
}
ROWS = [
    {"vit": {LOW: (0, 1), HIGH: (2,)}, "eye": {(0,): (0,), (3,): (1,)}, "llm": {(0, 2): (0,), (1, 3): (1,)}},
    {"llm": {ALL: (2,)}},
    {"vit": {LOW: (3,)}, "eye": {(1,): (2,)}, "llm": {ALL: (3,)}},
]
PIPELINE = layout("llm", pp=2, dp=2)
STAGED_VIT = layout("vit", dp=2, pp=2, rank_order="pp-dp")
LAYOUTS = {"llm": PIPELINE, "vit": STAGED_VIT, "eye": layout("eye", dp=4)}
DIAMOND = {  # `vit` feeds both `llm` and `drum`, which feeds `llm`
    "items": {"llm": {0: 33, 1: 25, 2: 9, 3: 30}, "vit": {0: 16, 1: 8, 2: 24}, "drum": {0: 8, 1: 12, 2: 2}},
    "feeds": {"vit>llm": {0: (0, 1), 2: 3}, "vit>drum": {0: 0, 1: (0, 1), 2: 1}, "drum": {0: (0, 3), 1: 1, 2: 2}},
}
DIAMOND_ROWS = [
    {"vit": {LOW: (0,), HIGH: (1, 2)}, "drum": {LOW: (1,), (3,): (0,)}, "llm": {LOW: (0, 1)}},
    {"drum": {(1,): (2,)}, "llm": {ALL: (2, 3)}},
]
DP4 = {name: layout(name, dp=4) for name in ("llm", "vit", "drum")}
PLANS = {
    "chain": joined(LAYOUTS, ROWS, **CHAIN),
    "chain, zero 3": joined(
        {n: layout(n, dp=4, zero=3) for n in LAYOUTS},
        [
            {"vit": {LOW: (0, 1), HIGH: (2,)}, "eye": {(0,): (0,), (3,): (1,)}, "llm": {LOW: (0,), HIGH: (1,)}},
            *ROWS[1:],
        ],
        **CHAIN,
    ),
    "diamond": joined(DP4, DIAMOND_ROWS, **DIAMOND),
    "diamond, zero 3": joined({n: layout(n, dp=4, zero=3) for n in DP4}, DIAMOND_ROWS, **DIAMOND),
}


TWO = {"llm": PIPELINE, "vit": layout("vit", dp=4)}  # stage 0 does F0 F1 B0 F2 B1 B2, stage 1 F0 B0 F1 B1 F2 B2
FED = [
    {"vit": {LOW: (0, 1), HIGH: (2,)}, "llm": {(0, 2): (0,), (1, 3): (1,)}},
    {"vit": {HIGH: (4,)}, "llm": {ALL: (2,)}},
    {"vit": {LOW: (3,)}, "llm": {ALL: (3,)}},
]
FIVE = {
    "items": {"llm": TEXTS, "vit": {0: 16, 1: 8, 2: 24, 3: 28, 4: 8}},
    "feeds": {"vit": {0: 0, 1: 0, 2: 1, 3: 3, 4: 2}},
}
BEFORE_F2 = TaskPlacement(do="vit.B0", on="vit.g0-1", before="llm.F2@0")
LATE_W = TaskPlacement(do="vit.W0", on="vit.g2-3", after="llm.B2@1")
PLACED = {
    "a backward in a gap": (TWO, (BEFORE_F2,)),
    "a backward in two": (TWO, (TaskPlacement(do="vit.I0", on="vit.g0-1", before="llm.F2@0"), LATE_W)),
    "the first weights behind the last forward": (TWO, (TaskPlacement(do="vit.W0", on="vit.g0-1", after="llm.B2@0"),)),
    "stages": ({**TWO, "vit": STAGED_VIT}, (TaskPlacement(do="vit.B0[2-3]", on="vit.g0-1", after="llm.B1@0"),)),
}
SHARDED = {"llm": PIPELINE, "vit": layout("vit", dp=4, zero=3)}
PLACED |= {
    "zero 3": (SHARDED, (TaskPlacement(do="vit.B0", on="vit.g0-1", before="llm.B2@0"),)),
    "zero 3, in two": (
        SHARDED,
        (
            TaskPlacement(do="vit.I0", on="vit.g0-1", before="llm.B2@0"),
            TaskPlacement(do="vit.W0", on="vit.g2-3", after="vit.B1"),
        ),
    ),
}
GOLDEN = Path(__file__).parents[1] / "golden/by_hand"
PLANS |= {name: files.read(GOLDEN / name / "plan.yaml", Plan) for name in ("modules-in-a-chain", "backward-in-gaps")}
PLANS |= {name: joined(layouts, FED, places=places, **FIVE) for name, (layouts, places) in PLACED.items()}


OFTEN = ("chain, zero 3", "diamond", "backward-in-gaps", "zero 3, in two")  # the others in the soak


@pytest.fixture(scope="module")
def results(request):
    return run_all(4, {name: PLANS[name] for name in asked_for(request, "name")}, replace(ONCE, dtype="float64"))


@pytest.mark.parametrize("name", soaked(PLANS, OFTEN))
@pytest.mark.every(2)
def test_loss_and_gradients_are_those_of_one_process(results, name):
    require_those_of_one_process(PLANS[name], results[name].verify)
