"""Where modules feed several others, and what reads is read in turn, loss and gradients are those of one process;
wherever forwards and backwards are placed.
"""

import pytest

from tests.runtime.modules import TEXTS, joined, layout, require_those_of_one_process
from tests.runtime.worlds import run_all

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


@pytest.fixture(scope="module")
def results():
    return run_all(4, PLANS)


@pytest.mark.parametrize("name", PLANS)
def test_loss_and_gradients_are_those_of_one_process(results, name):
    require_those_of_one_process(PLANS[name], results[name].verify)
