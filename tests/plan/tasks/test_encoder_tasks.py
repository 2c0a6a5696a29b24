"""Encoders in another module's order: whatever is placed where, every task comes behind what it waits for."""

import re
from collections import Counter

import pytest

from planner.errors import InputError
from planner.plan.legal.plan_laws import violations
from planner.plan.plan_file import Edge, TaskPlacement
from planner.plan.tasks.expand import expand
from planner.specs.base import with_fields
from tests.plans import encoder_plan, vit
from tests.several import drawn

TWO_ROWS = tuple({"vit": {f"v{i}": (i,)}, "llm": {"all": (i,)}} for i in (0, 1))
ONE_ROW = ({"vit": {"v0": (0,), "v1": (1,)}, "llm": {"all": (0,)}}, {"llm": {"all": (1,)}})
PLACES = {
    "none": (),
    "whole": (TaskPlacement(do="vit.F1", on="v1", before="llm.F0@0"),),
    "first layers": (TaskPlacement(do="vit.F1[0-1]", on="v1", beside="llm.send.F0@0"),),
    "last layers": (TaskPlacement(do="vit.F1[2-3]", on="v1", before="llm.F0@0"),),
    "middle": (TaskPlacement(do="vit.F1[1-2]", on="v1", before="llm.F0@0"),),
    "two parts": (
        TaskPlacement(do="vit.F1[0]", on="v1", before="llm.F0@0"),
        TaskPlacement(do="vit.F1[1-3]", on="v1", beside="llm.send.F0@0"),
    ),
    "last of all": (TaskPlacement(do="vit.F1[6-7]", on="v1", before="llm.F0@0"),),
    "second stage": (TaskPlacement(do="vit.F1[4-7]", on="v1", after="llm.F0@0"),),
}


def check_order(tasks):
    """Each task exists once, has ranks, waits for tasks that exist, and comes behind them."""
    position = {task.id: i for i, task in enumerate(tasks)}
    assert len(position) == len(tasks)
    for i, task in enumerate(tasks):
        assert task.ranks, task.id
        for awaited in task.after:
            assert position[awaited] < i, f"{task.id} comes before {awaited}"


@pytest.mark.parametrize("zero", [1, 3])
@pytest.mark.parametrize("name", PLACES)
def test_placed_tasks_come_behind_what_they_wait_for(zero, name):
    plan = encoder_plan(PLACES[name], zero)
    assert not violations(plan)
    tasks = expand(plan)
    check_order(tasks)
    for group, row in (("v0", 0), ("v1", 1)):
        forward = [t for t in tasks if (t.module, t.phase, t.group, t.micro_batch) == ("vit", "F", group, row)]
        assert [layer for t in forward for layer in t.layers] == list(range(8))


def test_a_placed_forward_comes_before_its_anchor():
    ids = [task.id for task in expand(encoder_plan(PLACES["whole"]))]
    assert ids.index("vit[4-7]/F/1/v1") < ids.index("llm[0-1]/F/0/all")


@pytest.mark.parametrize("zero", [1, 3])
@pytest.mark.parametrize("rows", [TWO_ROWS, ONE_ROW])
@pytest.mark.parametrize("feeds", [{0: 0, 1: 1}, {0: 1, 1: 0}])
def test_every_backward_waits_for_its_own_gradients(zero, rows, feeds):
    plan = encoder_plan((), zero, rows, feeds)
    assert not violations(plan)
    tasks = expand(plan)
    check_order(tasks)
    by_id = {task.id: task for task in tasks}
    for group in ("v0", "v1"):
        (recv,) = [t for t in tasks if t.group == f"{group}>llm" and (t.phase, t.of) == ("recv", "B")]
        backward = next(t for t in tasks if (t.module, t.phase, t.group) == ("vit", "B", group))
        assert backward.layers[-1] == 7 and recv.id in backward.after
        fed = feeds[backward.items[0]]
        assert [by_id[i].items for i in by_id[recv.after[0]].after] == [(fed,)]


def test_under_zero_3_idle_ranks_gather_and_send_nothing():
    tasks = expand(encoder_plan((), 3))
    idle = [task for task in tasks if task.group.startswith("idle")]
    assert {(t.phase, t.micro_batch, *t.ranks) for t in idle} == {
        (phase, *where) for phase in "FB" for where in ((0, 2), (0, 3), (1, 0), (1, 1))
    }


def test_a_module_without_work_in_a_row_gathers_nothing_there():
    rows = {t.micro_batch for t in expand(encoder_plan((), 3, ONE_ROW)) if t.module == "vit" and t.phase == "gather"}
    assert rows == {0}


NOTHING = [  # a placement, and what there is
    (TaskPlacement(do="vit.F7", on="v1", before="llm.F0@0"), "name a group that works on micro-batch 7"),
    (TaskPlacement(do="vit.F1[3-4]", on="v0", before="llm.F0@0"), "name a group that works on"),
    (TaskPlacement(do="vit.B1[4-5]", on="v1", after="llm.B0@0"), "name vit.B1[4-7], vit.B1[0-3], or a group"),
    (TaskPlacement(do="vit.gather.1", on="all", after="llm.F0@0"), "name a group"),
    (TaskPlacement(do="vit.F1", on="v1", after="llm.F0@9"), "name llm.F0[0-1], llm.F0[2-3]"),
    (TaskPlacement(do="vit.F1", on="v1", before="llm.gather.0"), "name another task of `llm`"),
]


@pytest.mark.parametrize(("place", "fix"), NOTHING)
def test_a_placement_of_nothing_is_an_error(place, fix):
    first = TaskPlacement(do="vit.F0", on="v0", before="llm.F0@0")
    with pytest.raises(InputError, match="names no task") as refused:
        expand(encoder_plan((first, place)))
    assert refused.value.where == "steps.order.place[1]" and fix in refused.value.fix


AROUND = [  # what is placed, around what, and that as a task
    (TaskPlacement(do="vit.B0[4-7]", on="v0", before="llm.B1@1/all"), "llm[2-3]/B/1/all"),
    (TaskPlacement(do="vit.B0[4-7]", on="v0", after="llm.send.B0@1"), "llm[2-3]/sendB/0/all"),
    (TaskPlacement(do="vit.B0", on="v0", after="llm.update@0"), "llm[0-1]/update/step/all"),
    (TaskPlacement(do="vit.send.B0[4-7]", on="v0", before="llm.B1@1"), "llm[2-3]/B/1/all"),
    (TaskPlacement(do="vit.B0", on="v0", after="vit.B1[4-7]"), "vit[4-7]/B/1/v1"),
]


@pytest.mark.parametrize(("place", "anchor"), AROUND)
def test_any_task_is_an_anchor(place, anchor):
    """What is named stands where it is said, and all that it waits for before it."""
    tasks = expand(encoder_plan((place,)))
    check_order(tasks)
    ids = [task.id for task in tasks]
    moved = place.moved
    own = [t.id for t in tasks if (t.phase, t.of, t.group) == (moved.phase, moved.of, "v0") and t.module == "vit"]
    named = [id for id in own if moved.layers is None or id.startswith(f"vit[{moved.layers}]")]
    assert named and all((ids.index(id) < ids.index(anchor)) == bool(place.before) for id in named)


def test_two_that_are_placed_around_each_other_are_refused():
    chain = encoder_plan((TaskPlacement(do="vit.F0", on="v0", before="llm.F0@0"),))
    specs = {**chain.uses.models, "ear": vit(8)}
    facts = with_fields(
        chain.uses, models=specs, items={**chain.uses.items, "ear": {0: 4}}, feeds={"vit": {0: 0, 1: 1}, "ear": {0: 0}}
    )
    (row, other), places = chain.steps[0].micro_batches, chain.steps[0].placements
    around = (
        *places,
        TaskPlacement(do="vit.F1", on="v1", before="ear.F0"),
        TaskPlacement(do="ear.F0", on="v0", before="vit.F0"),
    )
    order = {"llm": "1f1b", "place": around}
    step = with_fields(chain.steps[0], micro_batches=({**row, "ear": {"v0": (0,)}}, other), order=order)
    layouts = {**chain.layouts, "ear": chain.layouts["vit"]}
    edges = (*chain.edges, Edge(source="ear", target="llm"))
    (found,) = violations(with_fields(chain, uses=facts, layouts=layouts, edges=edges, steps=(step,)))
    assert found.where == "steps[0].order.place[2]" and "whose own place follows from them" in found.message


@pytest.mark.slow
def test_whatever_is_placed_is_in_order_or_is_refused_by_its_place():
    """Chains and forks of modules, forwards and backwards, whole and cut: most placements of chance cannot be."""
    placed = Counter()
    for seed in range(120):
        plan = drawn(seed)
        found = [violation for violation in violations(plan) if violation.where != "uses.feeds"]
        if found:
            assert re.fullmatch(r"steps\[0\]\.order\.place\[[0-9]\]", found[0].where) and found[0].fix, seed
        else:
            check_order(expand(plan))
            placed.update(place.moved.phase for place in plan.steps[0].placements)
    assert {*placed} == {*"FBIW"}


def test_a_placement_behind_its_consumer_is_illegal():
    (violation,) = violations(encoder_plan((TaskPlacement(do="vit.F0", on="v0", after="llm.F0@3"),)))
    assert "waits for" in violation.message


def test_a_group_on_one_stage_only_is_illegal():
    plan = encoder_plan((), rows=({"vit": {"v0": (0,), "v1": (1,)}, "llm": {"v0": (0,)}}, {"llm": {"all": (1,)}}))
    assert "1, 1, 0, 0 ranks on the stages of `llm`" in violations(plan)[0].message
