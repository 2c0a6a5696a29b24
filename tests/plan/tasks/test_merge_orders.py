"""Tasks in one order: each behind what it waits for, every lane in its own order, and circles named."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import InputError
from planner.plan.task import Task
from planner.plan.tasks.merge_orders import check_waits, merge_orders, topological_order
from planner.plan.tasks.task_table import TaskTable
from planner.specs.base import Layers, Ranks
from tests.task_programs import programs


def task(name: str, *after: str, rank: int = 0) -> Task:
    return Task("m", Layers((0,)), "F", 0, name, Ranks((rank,)), after=tuple(f"m[0]/F/0/{a}" for a in after))


def settled(tasks, *synchronised) -> list[Task]:
    return [tasks[row] for row in topological_order(TaskTable.of(tasks), *synchronised)]


def merged(lists) -> list[Task]:
    tasks = [each for own in lists for each in own]
    return [tasks[row] for row in merge_orders(TaskTable.of(tasks), [*map(len, lists)])]


def names(tasks) -> str:
    return "".join(t.group for t in tasks)


@given(programs(), st.randoms(use_true_random=False))
def test_a_shuffled_order_is_settled_or_a_circle_is_named(program, chance):
    """Lanes keep the shuffled order; when that contradicts what tasks wait for, it is said."""
    tasks, _ = program
    shuffled = chance.sample(tasks, len(tasks))
    try:
        order = settled(shuffled)
    except InputError as error:
        assert "wait for each other" in error.message
        return
    check_waits(order)
    assert sorted(t.id for t in order) == sorted(t.id for t in tasks)
    for lane in {(rank, t.stream) for t in tasks for rank in t.ranks}:
        assert [t for t in order if on(t, lane)] == [t for t in shuffled if on(t, lane)]


def on(t: Task, lane) -> bool:
    return lane[0] in t.ranks and t.stream == lane[1]


@pytest.mark.slow
@given(programs())
def test_an_order_that_is_settled_stays_as_it_is(program):
    tasks, _ = program
    assert settled(tasks) == list(tasks)


def test_lanes_move_apart_when_one_waits_for_the_other():
    """Rank 1 is listed late, but rank 0 waits for it."""
    order = settled([task("a"), task("b", "d"), task("c"), task("d", rank=1), task("e", rank=1)])
    assert names(order) == "adbce"


def test_tasks_that_meet_stay_together_or_are_refused():
    """Two tasks on two ranks: what stands between them comes before both, if it waits for neither of them."""
    apart = [task("a"), task("c", rank=1), task("b", rank=1)]
    one = [each.changed(phase="B") if each.group in "ab" else each for each in apart]
    order = settled(one, {"m": ("B",)})
    assert names(order) == "cab"
    between = [one[0], one[1].changed(after=(one[0].id,)), one[2]]
    assert names(settled(between)) == "acb"
    with pytest.raises(InputError, match="wait for each other"):
        settled(between, {"m": ("B",)})


def test_a_circle_between_lanes_is_named():
    tasks = [task("a", "d"), task("b"), task("c", "b", rank=1), task("d", rank=1)]
    with pytest.raises(InputError, match=r"m\[0\]/F/0/a waits for m\[0\]/F/0/d") as caught:
        settled(tasks)
    assert caught.value.fix
    with pytest.raises(InputError, match="wait for each other"):
        merged([tasks[:2], tasks[2:]])


def test_lists_are_merged_as_far_as_each_can_go():
    assert names(merged([[task("a"), task("b", "d")], [task("c", "a", rank=1), task("d", rank=1)]])) == "acdb"


def test_two_tasks_of_one_name_are_found():
    with pytest.raises(InputError, match="two tasks are called"):
        check_waits([task("a"), task("a")])
