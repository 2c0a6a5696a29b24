"""Where some layers attend to images and are skipped by samples without any, loss and gradients are those of one
process; with pipelines the images come to every stage that has such a layer.
"""

from dataclasses import replace

import pytest

from planner.plan.tasks.expand import expand
from tests.runtime.multi_module_plans import IMAGES, joined, layout, require_those_of_one_process
from tests.runtime.test_plan_channels import channels
from tests.runtime.training_worlds import ONCE, asked_for, run_all

TEXTS = {0: 23, 1: 17, 2: 9, 3: 30, 4: 11}
FEEDS = {0: 0, 1: 0, 2: 1, 3: 3}  # two images in the first text, none in the third and the last
LOW, HIGH = (0, 1), (2, 3)


def plan(reader, vision, text, rows, **said):
    spread = {"vit": layout("vit", **vision), reader: layout(reader, **text)}
    rows = [{"vit": row[0], reader: row[1]} if row[0] else {reader: row[1]} for row in rows]
    return joined(spread, rows, items={reader: TEXTS, "vit": IMAGES}, feeds={f"vit>{reader}": FEEDS}, **said)


ALONE = [
    ({(0,): (0,), (1,): (1, 2), (2,): (3,)}, {(0,): (0, 2), (1,): (1,), (3,): (3,)}),
    ({}, {(2,): (4,)}),  # no image in the whole micro-batch
]
PAIRS = [
    ({LOW: (0, 1), HIGH: (2, 3)}, {LOW: (0, 2), HIGH: (1, 3)}),
    ({}, {HIGH: (4,)}),
]
STAGES = [
    ({(0,): (0, 1), (3,): (2,)}, {(0, 2): (2, 0), (1, 3): (1,)}),
    ({}, {(0, 2): (4,)}),
    ({(1,): (3,)}, {(1, 3): (3,)}),
]
FOUR = [
    ({(0,): (0, 1), (3,): (2,)}, {(0, 2): (0,), (1, 3): (1,)}),
    ({}, {(0, 2): (4,)}),
    ({(1,): (3,)}, {(1, 3): (3,)}),
    ({}, {(1, 3): (2,)}),
]
DP, ONE, TP, PP = {"dp": 4}, {"dp": 4, "zero": 3}, {"dp": 2, "tp": 2}, {"dp": 2, "pp": 2}
PLANS = {
    "dp": plan("seer", DP, DP, ALONE),
    "zero 3": plan("seer", ONE, ONE, ALONE),
    "zero 3, made again": plan("seer", ONE, {**ONE, "recompute": "full"}, ALONE),
    "selective": plan("seer", DP, {**DP, "recompute": "selective"}, ALONE),
    "tp": plan("seer", TP, TP, PAIRS),
    "tp, zero 3": plan("seer", {**TP, "zero": 3}, {**TP, "zero": 3}, PAIRS),
    "stages that all read": plan("seer", DP, PP, STAGES),
    "a stage that reads nothing": plan("late", DP, PP, STAGES),
    "chunks": plan("seer", DP, {**PP, "vpp": 2}, FOUR),
    "stages, zero 3": plan("seer", ONE, {**PP, "zero": 3}, STAGES),
    "split backwards": plan("seer", DP, {**PP, "schedule": "zb_h1"}, STAGES),
}  # fmt: skip


@pytest.fixture(scope="module")
def results(request):
    return run_all(4, {name: PLANS[name] for name in asked_for(request, "name")}, replace(ONCE, dtype="float64"))


@pytest.mark.slow
@pytest.mark.every(4)
@pytest.mark.parametrize("name", PLANS)
def test_loss_and_gradients_are_those_of_one_process(results, name):
    require_those_of_one_process(PLANS[name], results[name].verify)


def test_outputs_come_to_every_stage_that_reads_them_and_to_no_other():
    brought = {name: {task.group for task in expand(PLANS[name]) if task.phase == "recv" and task.of == "F"} for name in
               ("dp", "stages that all read", "a stage that reads nothing")}  # fmt: skip
    of_images = {
        name: {group.partition(">")[2] for group in groups if ">" in group} for name, groups in brought.items()
    }
    assert of_images == {
        "dp": {"seer"},
        "stages that all read": {"seer", "seer>1"},
        "a stage that reads nothing": {"late>1"},
    }


def test_a_later_stage_receives_images_behind_the_micro_batches_before_them():
    """Earlier it would wait for images of micro-batches that have yet to come to it."""
    tasks = [task for task in expand(PLANS["stages that all read"]) if 2 in task.ranks]
    begun: set[int | None] = set()
    for task in tasks:
        if (task.module, task.phase) == ("seer", "F"):
            begun.add(task.micro_batch)
        elif (task.phase, task.of) == ("recv", "F") and ">" in task.group:
            assert begun >= {
                each.micro_batch for each in tasks if each.phase == "F" and each.micro_batch < task.micro_batch
            }
    assert begun == {0, 1}


def test_channels_join_the_encoder_s_ranks_with_every_stage_that_reads():
    pairs = {(each.source, each.target) for each in channels(PLANS["a stage that reads nothing"])}
    assert (0, 2) in pairs and (3, 2) not in pairs
