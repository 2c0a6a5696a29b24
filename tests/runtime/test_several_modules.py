"""Encoders that feed a decoder give, whatever ranks they lie on, the loss and the gradients of one process."""

import pytest

from planner.plan.legal import require_legal
from planner.plan.model import Edge, Group, Layout, Place, Plan, Step, group_name
from planner.specs.base import Layers, Ranks
from planner.specs.model import Decoder, Vit
from tests.plans import plan_of, uses
from tests.runtime.worlds import run_all

pytestmark = pytest.mark.slow

LLM = Decoder(layers=4, hidden=32, heads=8, kv_heads=4, ffn=48, vocab=64)
VIT = Vit(layers=4, hidden=16, heads=8, ffn=24, patch=2, merge=2, out=32)
SPECS = {"llm": LLM, "vit": VIT, "eye": Vit(layers=2, hidden=16, heads=4, ffn=24, patch=2, out=32)}
TEXTS = {0: 23, 1: 17, 2: 9, 3: 30}
IMAGES = {0: 16, 1: 8, 2: 24, 3: 28}
FEEDS = {0: 0, 1: 0, 2: 1, 3: 3}  # two images in the first text, none in the third


def layout(module: str, ranks=range(4), vpp: int = 1, **said) -> Layout:
    """Stages of equal size."""
    pp, layers = said["mesh"].get("pp", 1), SPECS[module].layers
    each = layers // (pp * vpp)
    stages = tuple(Layers(range(s * each, (s + 1) * each)) for s in range(pp * vpp)) if pp > 1 else ()
    return Layout(ranks=Ranks(ranks), stages=stages, **{"dtype": "float64", "zero": 1, **said})


def joined(
    layouts: dict[str, Layout], rows, *, items=None, feeds=None, order=None, places=(), splits=None, edges=None
) -> Plan:
    """`rows`: of each micro-batch, module → ranks of a group → its items."""
    groups, placed = {}, []
    for row in rows:
        placed.append({})
        for module, cells in row.items():
            for ranks, of_cell in cells.items():
                mesh, name = layouts[module].mesh, f"{module}.{group_name(Ranks(ranks))}"
                degree = len(ranks) // (mesh.get("pp", 1) * mesh.get("tp", 1))
                split = (splits or {}).get((module, ranks), {"ulysses": degree} if degree > 1 else {})
                groups[name] = Group(ranks=Ranks(ranks), split=split)
                placed[-1].setdefault(module, {})[name] = of_cell
    items = items or {"llm": TEXTS, "vit": IMAGES}
    feeds = feeds or {"vit": FEEDS}
    sync = "micro_batch" if any(each.zero == 3 for each in layouts.values()) else "step"
    orders = {"llm": order} if order else {}
    step = Step(sync=sync, micro_batches=tuple(placed), order={**orders, "place": places} if places else orders)
    specs = {name: SPECS[name] for name in layouts}
    size = 1 + max(rank for each in layouts.values() for rank in each.ranks)
    edges = tuple(Edge(source=name, target="llm") for name in edges or feeds)
    plan = plan_of(size, uses(size, specs, items, feeds), layouts, groups, step, edges)
    require_legal(plan, "made up")
    return plan


ALL, LOW, HIGH = (0, 1, 2, 3), (0, 1), (2, 3)
TWO_ROWS = [
    {"vit": {(0,): (0,), (1,): (1,), (2,): (2,)}, "llm": {LOW: (0,), HIGH: (1,)}},
    {"vit": {(3,): (3,)}, "llm": {ALL: (2, 3)}},
]
DP4 = {"llm": layout("llm", mesh={"dp": 4}), "vit": layout("vit", mesh={"dp": 4})}
STAGED = [  # the second row has no work for the encoder, and the last image is read in the third
    {"vit": {LOW: (0, 1), HIGH: (2,)}, "llm": {(0, 2): (0,), (1, 3): (1,)}},
    {"llm": {ALL: (2,)}},
    {"vit": {LOW: (3,)}, "llm": {ALL: (3,)}},
]
PIPELINE = layout("llm", mesh={"pp": 2, "dp": 2})
STAGED_VIT = layout("vit", mesh={"dp": 2, "pp": 2})
BEFORE = Place(do="vit.F2", on="vit.g0-1", before="llm.F0@0")
BESIDE = Place(do="vit.F2[0-1]", on="vit.g0-1", beside="llm.send.F1@0")
CUT = (
    Place(do="vit.F0[0-1]", on="vit.g0-1", before="llm.F0@0"),
    Place(do="vit.F0[2]", on="vit.g2-3", before="llm.F0@0"),
)
TWO_EYES = {
    "items": {"llm": TEXTS, "vit": IMAGES, "eye": {0: 3, 1: 5, 2: 1}},
    "feeds": {"vit": FEEDS, "eye": {0: 0, 1: 1, 2: 2}},
}
EYES = [
    {"vit": {LOW: (0,), HIGH: (1, 2)}, "eye": {(0,): (1,), (3,): (0,)}, "llm": {LOW: (0, 1)}},
    {"vit": {ALL: (3,)}, "eye": {(1,): (2,)}, "llm": {ALL: (2, 3)}},
]
PLANS = {
    "data parallel": joined(DP4, TWO_ROWS),
    "apart": joined(
        {"vit": layout("vit", LOW, mesh={"dp": 2}), "llm": layout("llm", HIGH, mesh={"dp": 2})},
        [
            {"vit": {(0,): (0, 3), (1,): (1,)}, "llm": {(2,): (0,), (3,): (2,)}},
            {"vit": {LOW: (2,)}, "llm": {HIGH: (1, 3)}},
        ],
    ),
    "one feeds two": joined(
        DP4, [{"vit": {ALL: (0, 1, 2, 3)}, "llm": {LOW: (0,), (2,): (1,), (3,): (2,)}}, {"llm": {ALL: (3,)}}]
    ),
    "stages": joined({"llm": PIPELINE, "vit": STAGED_VIT}, STAGED),
    "before": joined({"llm": PIPELINE, "vit": STAGED_VIT}, STAGED, places=(BEFORE,), order="gpipe"),
    "beside": joined({"llm": PIPELINE, "vit": STAGED_VIT}, STAGED, places=(BESIDE,)),
    "cut": joined({"llm": PIPELINE, "vit": layout("vit", mesh={"dp": 4})}, STAGED, places=CUT),
    "chunks": joined(
        {name: layout(name, mesh=mesh, vpp=2) for name, mesh in (("llm", {"pp": 2, "dp": 2}), ("vit", {"dp": 2, "pp": 2}))},
        [*STAGED[:2], {"vit": {HIGH: (3,)}, "llm": {(0, 2): (3,)}}, {"llm": {(1, 3): (4,)}}],
        items={"llm": {**TEXTS, 4: 6}, "vit": IMAGES},
    ),
    "zero 3": joined({name: layout(name, mesh={"dp": 4}, zero=3) for name in DP4}, TWO_ROWS),
    "zero 3, stages": joined(
        {"llm": layout("llm", mesh={"pp": 2, "dp": 2}, zero=3), "vit": layout("vit", mesh={"dp": 2, "pp": 2}, zero=3)},
        STAGED,
    ),
    "zero 3, cut": joined(
        {"llm": PIPELINE, "vit": layout("vit", mesh={"dp": 4}, zero=3)},
        STAGED,
        places=CUT,
    ),
    "two encoders": joined({**DP4, "eye": layout("eye", mesh={"dp": 4}, zero=0)}, EYES, **TWO_EYES),
    "recompute": joined({name: layout(name, mesh={"dp": 4}, zero=2, recompute="full") for name in DP4}, TWO_ROWS),
}


@pytest.fixture(scope="module")
def results():
    return run_all(4, PLANS)


@pytest.mark.parametrize("name", PLANS)
def test_loss_and_gradients_are_those_of_one_process(results, name):
    verified = results[name].verify
    assert verified.steps == 1
    assert (verified.loss_rel_err <= 1e-12, verified.grad_rel_err <= 1e-12) == (True, True), verified
