"""Wherever encoders lie beside a decoder, in the first stage, on all ranks or apart, steps with and without an image
end with the weights of one process.
"""

from itertools import accumulate, pairwise

import pytest

from planner.launch.processes import launch
from planner.plan.legal.plan_laws import require_legal
from planner.plan.plan_file import Plan
from planner.runtime.preflight.preflight_checks import require_runnable
from planner.runtime.run_options import RunOptions, TrainingOptions
from planner.specs.base import with_fields
from tests.examples import soaked, thorough
from tests.runtime.multi_module_plans import joined, layout
from tests.runtime.one_process import OneProcess, differences, trained_to_the_end
from tests.runtime.training_worlds import asked_for
from tests.several_steps import LOSSES

pytestmark = pytest.mark.slow

STEPS = 5  # the first again behind all four
OPTIONS = RunOptions(steps=STEPS, verify=True, seed=5, training=TrainingOptions(1e-4, clip=1.0, decay=0.1))
TEXTS = {0: 23, 1: 17, 2: 9, 3: 30, 4: 11, 5: 14, 6: 20, 7: 8, 8: 25, 9: 13}
IMAGES = {0: 16, 1: 8, 2: 24, 3: 28}
SOUNDS = {0: 6, 1: 10}
FEEDS = {"vit": {0: 0, 1: 0, 2: 1, 3: 6}, "ear": {0: 1, 1: 7}}
EACH, PAIRS = [(rank,) for rank in range(4)], [(0, 1), (2, 3)]
LINES = [(0, 2), (1, 3)]  # of two stages


def rows_of(llm, **encoders) -> list[list[dict]]:
    """Steps: images in their first micro-batch alone; none; on the first of the encoders' ranks alone; none.

    Each module works in these groups, dealt out in turn.
    """

    def dealt(groups, items):
        return {group: tuple(items[at :: len(groups)]) for at, group in enumerate(groups) if items[at :: len(groups)]}

    first = {name: dealt(groups, {"vit": [0, 1, 2], "ear": [0]}[name]) for name, groups in encoders.items()}
    third = {name: {groups[0]: ({"vit": 3, "ear": 1}[name],)} for name, groups in encoders.items()}
    return [
        [{**first, "llm": dealt(llm, [0, 1])}, {"llm": dealt(llm[:1], [2])}],
        [{"llm": dealt(llm, [3, 4])}],
        [{"llm": dealt(llm[-1:], [5])}, {**third, "llm": dealt(llm, [6, 7])}],
        [{"llm": dealt(llm, [8])}, {"llm": dealt(llm, [9])}],
    ]


def in_steps(layouts, steps, loss="token", order=None) -> Plan:
    """A plan with these rows in each step."""
    items = {"llm": TEXTS, "vit": IMAGES, "ear": SOUNDS}
    whole = joined(
        layouts,
        [row for rows in steps for row in rows],
        order=order,
        items={name: items[name] for name in layouts},
        feeds={name: FEEDS[name] for name in layouts if name != "llm"},
    )
    (step,), ends = whole.steps, [*accumulate(map(len, steps), initial=0)]
    parts = tuple(with_fields(step, micro_batches=step.micro_batches[a:b]) for a, b in pairwise(ends))
    plan = with_fields(whole, steps=parts, uses=with_fields(whole.uses, loss=loss))
    require_legal(plan, "made up")
    return plan


def first_stage(zero, loss):
    """The encoder on the ranks of stage 0 of two."""
    layouts = {"llm": layout("llm", pp=2, dp=2, zero=zero), "vit": layout("vit", (0, 1), dp=2, zero=zero)}
    return in_steps(layouts, rows_of(LINES, vit=EACH[:2]), loss, order="1f1b")


def colocated(zero, loss):
    """An encoder with dp 4, a decoder with tp 2 and dp 2."""
    layouts = {"llm": layout("llm", tp=2, dp=2, zero=zero), "vit": layout("vit", dp=4, zero=zero)}
    return in_steps(layouts, rows_of(PAIRS, vit=EACH), loss)


def one_and_three(zero, loss):
    layouts = {"llm": layout("llm", (1, 2, 3), dp=3, zero=zero), "vit": layout("vit", (0,), dp=1, zero=zero)}
    return in_steps(layouts, rows_of(EACH[1:], vit=EACH[:1]), loss)


def two_and_two(zero, loss):
    layouts = {"llm": layout("llm", (2, 3), dp=2, zero=zero), "vit": layout("vit", (0, 1), tp=2, zero=zero)}
    return in_steps(layouts, rows_of(EACH[2:], vit=PAIRS[:1]), loss)


def overlapping(zero, loss):
    """Two encoders that share one rank."""
    ear = layout("ear", (1, 2, 3), dp=3, zero=zero)
    layouts = {"llm": layout("llm", dp=4, zero=zero), "vit": layout("vit", (0, 1), dp=2, zero=zero), "ear": ear}
    return in_steps(layouts, rows_of(EACH, vit=EACH[:2], ear=EACH[1:]), loss)


def replicas(zero, loss):
    """Of the decoder copies of shards; the encoder cuts its images by heads."""
    layouts = {"llm": layout("llm", replica=2, dp=2, zero=max(1, zero)), "vit": layout("vit", cp=2, ulysses=2, dp=2)}
    layouts["vit"] = with_fields(layouts["vit"], zero=zero)
    return in_steps(layouts, rows_of(EACH, vit=PAIRS), loss)


PLACES = (first_stage, colocated, one_and_three, two_and_two, overlapping, replicas)
PLANS = {
    f"{place.__name__}, zero {zero}": place(zero, LOSSES[(zero + at) % len(LOSSES)])
    for at, place in enumerate(PLACES)
    for zero in range(4)
}
PLANS["zero 3 of the encoder alone"] = in_steps(
    {"llm": layout("llm", pp=2, dp=2, zero=1), "vit": layout("vit", (0, 1), dp=2, zero=3)},
    rows_of(LINES, vit=EACH[:2]),
    "square_root",
    order="zb_h1",
)


OFTEN = (  # on the first stage, apart and in part; every ZeRO stage; the others in the soak
    "one_and_three, zero 0", "overlapping, zero 2", "zero 3 of the encoder alone",
)  # fmt: skip


@pytest.fixture(scope="module")
def results(request):
    runs = {name: (PLANS[name], STEPS) for name in asked_for(request, "name")}
    for plan, _ in runs.values():
        require_runnable(plan, OPTIONS)
    return launch(trained_to_the_end, 4, runs, OPTIONS, thorough())[0]


@pytest.mark.parametrize("name", soaked(PLANS, OFTEN))
def test_weights_after_steps_with_and_without_images_are_those_of_one_process(results, name):
    run, weights = results[name]
    assert run.verify.steps == 4
    assert (run.verify.loss_rel_err <= 1e-12, run.verify.grad_rel_err <= 1e-12) == (True, True), run.verify
    assert max(differences(PLANS[name], OPTIONS, run, weights)) <= 1e-12


def test_one_process_leaves_an_encoder_alone_where_there_is_no_image():
    """What the runs are compared with: neither decay nor momentum moves its weights in such a step."""
    alone = OneProcess(PLANS["colocated, zero 1"], OPTIONS)
    seen = []
    for number in range(4):
        before = {name: values.clone() for name, values in alone.weights().items() if name.startswith("vit")}
        alone.step(number)
        seen.append(any((alone.weights()[name] != values).any() for name, values in before.items()))
    assert seen == [True, False, True, False]
