"""Whenever encoders run, ahead of their readers or at once behind them, loss and gradients are those of one process."""

import pytest

from planner.plan.legal.plan_laws import require_legal
from planner.plan.plan_file import Plan
from planner.plan.tasks.expand import expand
from planner.specs.base import with_fields
from tests.examples import soaked
from tests.meshes import meshed
from tests.plans import timed
from tests.runtime.multi_module_plans import joined, layout, require_those_of_one_process
from tests.runtime.test_cross_layers import PLANS as CROSS
from tests.runtime.training_worlds import asked_for, run_all
from tests.several import at_other_times, legal

ALL, LOW, HIGH = (0, 1, 2, 3), (0, 1), (2, 3)
LINES = ((0, 2), (1, 3))  # of two stages
TEXTS = {0: 23, 1: 17, 2: 9, 3: 30, 4: 26, 5: 12, 6: 21, 7: 14}
IMAGES = {0: 16, 1: 8, 2: 24, 3: 28, 4: 12, 5: 16, 6: 4, 7: 20}
FEEDS = {0: 0, 1: 0, 2: 1, 3: 3, 4: (4, 6), 5: 4, 6: 6, 7: 7}  # the third text has no image, one image two readers
STAGED = [  # an image that a later micro-batch reads too, and a micro-batch without any
    {"vit": {(0,): (0,), (1,): (1,), (3,): (2,)}, "llm": {LINES[0]: (0,), LINES[1]: (1,)}},
    {"vit": {(2,): (3,), (0,): (4,)}, "llm": {LINES[0]: (2,), LINES[1]: (3,)}},
    {"vit": {(3,): (5,)}, "llm": {LINES[0]: (4,), LINES[1]: (5,)}},
    {"vit": {(1,): (6,), (2,): (7,)}, "llm": {LINES[0]: (6,), LINES[1]: (7,)}},
]
IN_STAGES = [
    {"vit": {LOW: (0, 1), HIGH: (2,)}, "llm": {LINES[0]: (0,), LINES[1]: (1,)}},
    {"vit": {HIGH: (3, 4)}, "llm": {LINES[0]: (2,), LINES[1]: (3,)}},
    {"vit": {LOW: (5,)}, "llm": {LINES[0]: (4,), LINES[1]: (5,)}},
    {"vit": {HIGH: (6,), LOW: (7,)}, "llm": {LINES[0]: (6,), LINES[1]: (7,)}},
]
APART = [
    {"vit": {(0,): (0, 2), (1,): (1,)}, "llm": {HIGH: (0, 1)}},
    {"vit": {(1,): (3, 4)}, "llm": {HIGH: (2, 3)}},
    {"vit": {(0,): (5,)}, "llm": {HIGH: (4, 5)}},
    {"vit": {(0,): (6,), (1,): (7,)}, "llm": {HIGH: (6, 7)}},
]
PIPELINE = layout("llm", pp=2, dp=2)
SENSES = {
    "items": {"llm": TEXTS, "vit": IMAGES, "eye": {0: 24, 1: 16, 2: 20, 3: 12}},
    "feeds": {
        "vit>eye": {0: 0, 2: 1, 4: 2, 6: 3},
        "vit>llm": {1: 0, 3: 3, 5: 4, 7: 7},
        "eye": {0: 0, 1: 3, 2: 5, 3: 7},
    },
}
CHAIN = [{**row, "eye": {(rank,): (rank,)}} for rank, row in enumerate(STAGED)]
SEEN = {
    "items": {
        "llm": {**TEXTS, **{n: TEXTS[n] + 24 for n in (0, 3, 5, 7)}},
        **{k: SENSES["items"][k] for k in ("vit", "eye")},
    }
}


def plan(llm, vit, rows, order=None, ahead=0, at_once=True) -> Plan:
    facts = {"items": {"llm": TEXTS, "vit": IMAGES}, "feeds": {"vit": FEEDS}}
    return timed(joined({"llm": llm, "vit": vit}, rows, order=order, **facts), "vit", ahead=ahead, at_once=at_once)


def without_backward(whole: Plan) -> Plan:
    models = {**whole.uses.models, "vit": with_fields(whole.uses.models["vit"], trained="none")}
    frozen = with_fields(whole, uses=with_fields(whole.uses, models=models))
    require_legal(frozen, "made up")
    return frozen


VIT = layout("vit", dp=4)
PLANS = {
    "all ranks, ahead, at once": plan(PIPELINE, VIT, STAGED, ahead=2),
    "all ranks, ahead": plan(PIPELINE, VIT, STAGED, "gpipe", 1, at_once=False),
    "a phase before": plan(PIPELINE, VIT, STAGED, ahead=None, at_once=False),
    "zero bubble": plan(PIPELINE, VIT, STAGED, "zb_h1", 2),
    "chunks": plan(layout("llm", **meshed({"pp": 2, "dp": 2}), vpp=2), VIT, STAGED, ahead=2),
    "apart": plan(layout("llm", HIGH, pp=2), layout("vit", LOW, dp=2), APART, ahead=1),
    "zero 3": plan(PIPELINE, layout("vit", dp=4, zero=3), STAGED, ahead=2),
    "zero 3, both": plan(layout("llm", pp=2, dp=2, zero=3), layout("vit", dp=4, zero=3), STAGED, ahead=1),
    "stages of both": plan(PIPELINE, layout("vit", dp=2, pp=2, rank_order="pp-dp"), IN_STAGES, ahead=2),
    "frozen": without_backward(plan(PIPELINE, VIT, STAGED, ahead=2)),
    "a chain": timed(
        timed(
            joined(
                {"llm": PIPELINE, "vit": VIT, "eye": layout("eye", dp=4)},
                CHAIN,
                items=SEEN["items"],
                feeds=SENSES["feeds"],
            ),
            "vit", ahead=1, at_once=True,
        ),
        "eye", ahead=1,
    ),
}  # fmt: skip
CROSSING = ("stages that all read", "a stage that reads nothing", "chunks", "stages, zero 3", "split backwards")
PLANS |= {f"cross attention, {name}": timed(CROSS[name], "vit", ahead=1, at_once=True) for name in CROSSING}
PLANS |= {f"drawn {seed}": at_other_times(each, seed) for seed, each in legal(40, 6).items()}


OFTEN = ("all ranks, ahead, at once", "stages of both", "frozen", "cross attention, split backwards")  # else the soak


@pytest.fixture(scope="module")
def results(request):
    return run_all(4, {name: PLANS[name] for name in asked_for(request, "name")})


@pytest.mark.slow
@pytest.mark.parametrize("name", soaked(PLANS, OFTEN))
@pytest.mark.every(2)
def test_loss_and_gradients_are_those_of_one_process(results, name):
    require_those_of_one_process(PLANS[name], results[name].verify)


def test_the_plans_have_what_they_are_for():
    """Each runs its encoders at other times than if nothing were said, and each of the tasks once."""
    for name, each in PLANS.items():
        usual, other = ([task.id for task in expand(p)] for p in (timed(each, *each.layouts), each))
        assert {*usual} == {*other}
        assert usual != other or name.startswith("drawn"), name
