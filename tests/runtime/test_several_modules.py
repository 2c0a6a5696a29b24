"""Encoders that feed a decoder give, whatever ranks they lie on, the loss and the gradients of one process."""

import math

import pytest

from planner.plan.plan_file import Plan, TaskPlacement
from planner.plan.tasks.expand import expand
from planner.runtime.execution_order import execution_order
from planner.runtime.preflight.deadlocks import task_lists
from planner.runtime.run_options import RunOptions, TrainingOptions
from planner.specs.base import with_fields
from planner.specs.workload.items import ItemSize
from tests.meshes import meshed
from tests.runtime.multi_module_plans import FEEDS, IMAGES, LLM, TEXTS, joined, layout, require_those_of_one_process
from tests.runtime.training_worlds import run_all
from tests.several import legal

pytestmark = pytest.mark.slow

ALL, LOW, HIGH = (0, 1, 2, 3), (0, 1), (2, 3)
TWO_ROWS = [
    {"vit": {(0,): (0,), (1,): (1,), (2,): (2,)}, "llm": {LOW: (0,), HIGH: (1,)}},
    {"vit": {(3,): (3,)}, "llm": {ALL: (2, 3)}},
]
DP4 = {"llm": layout("llm", dp=4), "vit": layout("vit", dp=4)}
STAGED = [  # the second row has no work for the encoder, and the last image is read in the third
    {"vit": {LOW: (0, 1), HIGH: (2,)}, "llm": {(0, 2): (0,), (1, 3): (1,)}},
    {"llm": {ALL: (2,)}},
    {"vit": {LOW: (3,)}, "llm": {ALL: (3,)}},
]
PIPELINE = layout("llm", pp=2, dp=2)
STAGED_VIT = layout("vit", dp=2, pp=2, rank_order="pp-dp")
STAGED_VIT_LINES = layout("vit", dp=2, pp=2)
BEFORE = TaskPlacement(do="vit.F2", on="vit.g0-1", before="llm.F0@0")
BESIDE = TaskPlacement(do="vit.F2[0-1]", on="vit.g0-1", beside="llm.send.F1@0")
CUT = (
    TaskPlacement(do="vit.F0[0-1]", on="vit.g0-1", before="llm.F0@0"),
    TaskPlacement(do="vit.F0[2]", on="vit.g2-3", before="llm.F0@0"),
)
TWO_SENSES = {
    "items": {"llm": TEXTS, "vit": IMAGES, "ear": {0: 6, 1: 10, 2: 2}},
    "feeds": {"vit": FEEDS, "ear": {0: 0, 1: 1, 2: 2}},
}
SENSES = [
    {"vit": {LOW: (0,), HIGH: (1, 2)}, "ear": {LOW: (1,), (3,): (0,)}, "llm": {LOW: (0, 1)}},
    {"vit": {ALL: (3,)}, "ear": {(1,): (2,)}, "llm": {ALL: (2, 3)}},
]
PLANS = {
    "data parallel": joined(DP4, TWO_ROWS),
    "apart": joined(
        {"vit": layout("vit", LOW, dp=2), "llm": layout("llm", HIGH, dp=2)},
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
    "cut": joined({"llm": PIPELINE, "vit": layout("vit", dp=4)}, STAGED, places=CUT),
    "chunks": joined(
        {
            name: layout(name, **meshed(mesh), vpp=2)
            for name, mesh in (("llm", {"pp": 2, "dp": 2}), ("vit", {"dp": 2, "pp": 2}))
        },
        [*STAGED[:2], {"vit": {HIGH: (3,)}, "llm": {(0, 2): (3,)}}, {"llm": {(1, 3): (4,)}}],
        items={"llm": {**TEXTS, 4: 6}, "vit": IMAGES},
    ),
    "zero 3": joined({name: layout(name, dp=4, zero=3) for name in DP4}, TWO_ROWS),
    "zero 3, stages": joined(
        {"llm": layout("llm", pp=2, dp=2, zero=3), "vit": layout("vit", dp=2, pp=2, rank_order="pp-dp", zero=3)},
        STAGED,
    ),
    "zero 3, cut": joined(
        {"llm": PIPELINE, "vit": layout("vit", dp=4, zero=3)},
        STAGED,
        places=CUT,
    ),
    "zero 3, cut around another micro-batch": joined(
        {"llm": layout("llm", dp=4), "vit": layout("vit", dp=4, zero=3)},
        [
            {"vit": {(0,): (0,), (1,): (1,)}, "llm": {ALL: (2,)}},
            {"vit": {(2,): (2,), (3,): (3,)}, "llm": {ALL: (3,)}},
            {"llm": {ALL: (0, 1)}},
        ],
        items={"llm": {**TEXTS, 0: 30, 1: 30}, "vit": IMAGES},
        feeds={"vit": {0: 0, 1: 0, 2: 3, 3: 3}},
        places=(TaskPlacement(do="vit.F0[0-1]", on="vit.g0", before="llm.F0@0"),),
    ),
    "zero 3, one group reads": joined(
        {"llm": layout("llm", dp=4, zero=3), "vit": layout("vit", dp=4)},
        [
            {"vit": {HIGH: (2,), (1,): (3,)}, "llm": {LOW: (0,), HIGH: (1, 3)}},
            {"vit": {(0,): (0, 1)}, "llm": {LOW: (2,)}},
        ],
        feeds={"vit": {0: 2, 1: 2, 2: 1, 3: 3}},
        places=(TaskPlacement(do="vit.F1", on="vit.g0", after="llm.F0@0"),),
    ),
    "zero bubble": joined({"llm": PIPELINE, "vit": STAGED_VIT}, STAGED, order="zb_h1", places=(BESIDE,)),
    "zero bubble, sharded": joined(
        {"llm": layout("llm", pp=2, dp=2, zero=3), "vit": layout("vit", LOW, dp=2, zero=2)},
        [
            {"vit": {LOW: (0, 1, 2)}, "llm": {ALL: (0, 1)}},
            {"llm": {ALL: (2,)}},
            {"vit": {(1,): (3,)}, "llm": {ALL: (3,)}},
        ],
        order="zb_h1",
    ),
    "tensors": joined(
        {"llm": layout("llm", dp=2, tp=2), "vit": layout("vit", tp=4)},
        [{"vit": {ALL: (0, 2)}, "llm": {LOW: (0,), HIGH: (1,)}}, {"vit": {ALL: (1, 3)}, "llm": {ALL: (2, 3)}}],
    ),
    "tensors of the decoder": joined(
        {"llm": layout("llm", pp=2, tp=2), "vit": layout("vit", replica=2, dp=2, zero=2)},
        [
            {"vit": {(0,): (0,), (1,): (1,), (2,): (2,)}, "llm": {ALL: (0, 1)}},
            {"vit": {(3,): (3,)}, "llm": {ALL: (2, 3)}},
        ],
    ),
    "tensors of the encoder": joined(
        {"llm": layout("llm", dp=4), "vit": layout("vit", pp=2, tp=2)},
        [{"vit": {ALL: (0, 2)}, "llm": {LOW: (0,), HIGH: (1,)}}, {"vit": {ALL: (1, 3)}, "llm": {ALL: (2, 3)}}],
    ),
    "rings": joined(
        DP4,
        [{"vit": {LOW: (0, 2), HIGH: (1, 3)}, "llm": {ALL: (0, 1)}}, {"llm": {HIGH: (2,), LOW: (3,)}}],
        splits={("llm", ALL): {"ulysses": 2, "ring": 2}, ("llm", HIGH): {"ring": 2}, ("vit", LOW): {"ring": 2}},
    ),
    "two encoders": joined({**DP4, "ear": layout("ear", dp=4, zero=0)}, SENSES, **TWO_SENSES),
    "texts of outputs alone": joined(DP4, TWO_ROWS, items={"llm": {**TEXTS, 1: 6, 3: 7}, "vit": IMAGES}),
    "several images in an item": joined(
        {**DP4, "ear": layout("ear", dp=4, zero=0)},
        SENSES,
        items={
            "llm": TEXTS,
            "vit": {0: ItemSize(patches=(4, 12)), 1: 8, 2: ItemSize(patches=(12, 8, 4)), 3: ItemSize(patches=28)},
            "ear": {0: 6, 1: ItemSize(frames=(8, 12)), 2: ItemSize(frames=4)},
        },
        feeds=TWO_SENSES["feeds"],
        splits={("vit", HIGH): {"ring": 2}},
    ),
    "recompute": joined({name: layout(name, dp=4, zero=2, recompute="full") for name in DP4}, TWO_ROWS),
}

ROWS_OF_FOUR = {  # two passes of an encoder for four micro-batches, on a rank each, or in two stages
    "each": {0: {(0,): (0, 2), (1,): (1, 3)}, 2: {(0,): (4,), (1,): (5,), (2,): (6,), (3,): (7,)}},
    "staged": {0: {(0, 2): (0, 2), (1, 3): (1, 3)}, 2: {(0, 2): (4, 6), (1, 3): (5, 7)}},
}
EIGHT = {
    "items": {"llm": {n: 30 + n for n in range(8)}, "vit": {n: 4 + 4 * (n % 4) for n in range(8)}},
    "feeds": {"vit": {n: n for n in range(8)}},
}
EIGHT_HEARD = {
    "items": {**EIGHT["items"], "ear": {n: 6 + 2 * (n % 3) for n in range(8)}},
    "feeds": {**EIGHT["feeds"], "ear": {n: n for n in range(8)}},
}


def with_trained(plan: Plan, **trained: str) -> Plan:
    models = plan.uses.models | {name: with_fields(plan.uses.models[name], trained=of) for name, of in trained.items()}
    return with_fields(plan, uses=with_fields(plan.uses, models=models))


def in_gaps(llm, vit, rows="each", lines=((0, 2), (1, 3)), order=None, *, ear=None, **places) -> Plan:
    """Passes of encoders beside what is said of each: `vit_F2="llm.F1@0"`."""
    layouts = {"llm": llm, "vit": vit} | ({"ear": ear} if ear else {})
    each = [
        {
            **({"vit": ROWS_OF_FOUR[rows][number]} if number in ROWS_OF_FOUR[rows] else {}),
            **({"ear": {(0,): (0, 2, 4, 6), (3,): (1, 3, 5, 7)}} if ear and not number else {}),
            "llm": {line: tuple(range(2 * number, 2 * number + 2))[at :: len(lines)] for at, line in enumerate(lines)},
        }
        for number in range(4)
    ]
    beside = tuple(TaskPlacement(do=do.replace("_", "."), beside=other) for do, other in places.items())
    rules = tuple(TaskPlacement(do=f"{name}.F", before="llm.F0") for name in layouts if name != "llm")
    return joined(layouts, each, order=order, places=(*rules, *beside), **(EIGHT_HEARD if ear else EIGHT))


GAPS = {
    "gaps": in_gaps(PIPELINE, layout("vit", dp=4), vit_F2="llm.F1@0", vit_B0="llm.F3@0", vit_B2="llm.sync"),
    "gaps between chunks, one encoder frozen": with_trained(
        in_gaps(
            layout("llm", pp=2, vpp=2, dp=2), STAGED_VIT_LINES, "staged", ear=layout("ear", dp=4, zero=0),
            vit_F2="llm.F0@2", vit_B0="llm.B2@2", vit_B2="llm.gather",
        ),
        ear="none",
    ),
    "gaps of four stages": in_gaps(
        layout("llm", pp=4), layout("vit", dp=4), lines=[ALL],
        vit_F2="llm.F1@0", vit_B0="llm.B2@0", vit_B2="llm.B3@0/llm.g0-3",
    ),
    "gaps of zero 3": in_gaps(
        layout("llm", pp=2, dp=2), layout("vit", dp=4, zero=3), order="zb_h1",
        vit_F2="llm.F1@0", vit_B0="llm.F3@0", vit_B2="llm.sync",
    ),
}  # fmt: skip
PLANS |= GAPS

HALF = {"llm": layout("llm", dp=4, dtype="bf16"), "vit": layout("vit", LOW, dp=2, dtype="float32")}
PLANS["two dtypes"] = joined(
    HALF,
    [
        {
            "vit": {LOW: (0, 1, 2, 3)},
            "llm": {
                ALL: (0, 1),
            },
        },
        {"llm": {LOW: (2,), HIGH: (3,)}},
    ],
)
PLANS |= {f"drawn {seed}": plan for seed, plan in legal(20, 2).items()}
ERRORS = {"two dtypes": 0.05}
LATER = (
    "one feeds two", "cut", "zero 3", "zero 3, cut around another micro-batch", "zero bubble", "tensors", "chunks",
    "zero 3, one group reads", "tensors of the encoder", "texts of outputs alone", "recompute", "drawn 20",
    "drawn 22", "tensors of the decoder", "apart", "zero 3, cut", "two encoders", "gaps of four stages",
    "gaps of zero 3",
)  # fmt: skip
ANYWHERE = ("stages", "before", "beside", "zero 3, stages")  # one layout, its encoder in other places


@pytest.fixture(scope="module")
def results():
    """Of `LATER` the others have a part: `make soak` runs them. A warm-up, which leaves no trace, comes before one of
    those of which a second step is looked at.
    """
    often = {name: plan for name, plan in PLANS.items() if name not in LATER}
    warm = {name: often.pop(name) for name in ANYWHERE[:1]}
    return run_all(4, warm, twice=ANYWHERE, warm=True) | run_all(4, often, twice=ANYWHERE)


@pytest.mark.parametrize("name", [name for name in PLANS if name not in LATER])
@pytest.mark.every(2)
def test_loss_and_gradients_are_those_of_one_process(results, name):
    require_those_of_one_process(PLANS[name], results[name].verify, ERRORS.get(name, 1e-12))


@pytest.mark.soak
def test_and_so_are_those_of_all_others():
    for name, result in run_all(4, {name: PLANS[name] for name in LATER}).items():
        require_those_of_one_process(PLANS[name], result.verify, ERRORS.get(name, 1e-12))


@pytest.mark.parametrize("name", [name for name in GAPS if name not in LATER])
def test_passes_in_gaps_are_executed_in_the_order_of_the_plan(results, name):
    """On every rank; but updates, and gathers of what they update, wait for the gradients of all modules."""
    (step,) = results[name].steps
    for rank, own in task_lists(expand(PLANS[name])).items():
        begun = sorted((m for m in step.measured if m.rank == rank), key=lambda m: m.start)
        planned = [task.id for part in execution_order(own) for task in part]
        assert any(task.beside for task in own)
        assert [m.id for m in begun] == planned


def test_tokens_that_encoders_make_are_no_targets(results):
    """The first loss is that of the weights before any step: about log(vocab) for each token that has a target."""
    assert results["data parallel"].steps[0].loss == pytest.approx(math.log(LLM.vocab), rel=0.25)
    assert results["data parallel"].steps[0].tokens == sum(TEXTS.values())


def test_a_rank_without_a_module_clips_with_the_others():
    plan = joined(
        {"llm": layout("llm", LOW, dp=2), "vit": layout("vit", (3,), dp=1)},
        [{"vit": {(3,): (0, 1, 2, 3)}, "llm": {(0,): (0, 1), (1,): (2, 3)}}],
    )
    found = run_all(4, {"x": plan}, RunOptions(steps=2, verify=True, seed=5, training=TrainingOptions(clip=0.01)))["x"]
    assert all(step.grad_norm > 0.01 for step in found.steps)
    assert (found.verify.loss_rel_err <= 1e-12, found.verify.grad_rel_err <= 1e-12) == (True, True), found.verify


def test_numbers_do_not_depend_on_where_encoders_are(results):
    """Nor does the loss behind an update."""
    losses = [[step.loss for step in results[name].steps] for name in ANYWHERE]
    assert [len(each) for each in losses] == [2] * len(ANYWHERE)
    for other in losses[1:]:
        assert other == pytest.approx(losses[0], rel=1e-9)
