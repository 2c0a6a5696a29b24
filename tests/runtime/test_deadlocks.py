"""Task lists on which ranks would deadlock are refused, and no others."""

from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from random import Random

import pytest

from planner.errors import InputError
from planner.plan.mesh.synchronisation import all_ranks_join_micro_batches, synchronised_phases
from planner.plan.plan_file import TaskPlacement
from planner.plan.task import Task
from planner.plan.tasks.expand import expand
from planner.plan.tokens.resharding import is_between_modules
from planner.runtime.exchange.edge_transfers import edge_transfers, transfer_key
from planner.runtime.execution_order import task_gathered_encoders
from planner.runtime.preflight.deadlocks import DryRun, require_no_deadlock, task_lists
from tests.examples import share
from tests.plans import encoder_plan, sharded_plan, staged_plan
from tests.runtime.training_worlds import spread
from tests.several import at_other_times, legal

PLANS = {
    "1f1b": staged_plan(3, 4),
    "zero bubble": staged_plan(2, 4, "zb_h1"),
    "groups": sharded_plan(4, [[(0, 4)], [(0, 2), (2, 1)]]),
    "chunks": spread(4, dp=2, pp=2, rank_order="pp-dp", vpp=2, zero=2, rows=[[(0, 1, 2, 3)]] * 4),
    "an encoder": encoder_plan(),
    "an encoder, sharded": encoder_plan(zero=3),
    "an encoder, placed": encoder_plan((TaskPlacement(do="vit.F1[0-1]", on="v1", beside="llm.send.F0@0"),)),
}


@pytest.mark.parametrize("name", PLANS)
def test_the_order_of_a_legal_plan_is_never_refused(name):
    require_no_deadlock(PLANS[name], task_lists(expand(PLANS[name])), "here")


def ends(plan, lists):
    """Brute force: whether ranks that begin whatever they can get to the end, as a graph of what waits for what."""
    carried = edge_transfers(plan, [task for own in lists.values() for task in own])
    graph = {}
    encoders = {edge.source for edge in plan.edges if plan.layouts[edge.source].zero == 3}
    met = {
        name for name, layout in plan.layouts.items() if all_ranks_join_micro_batches(layout, plan.uses.models[name])
    }

    def node(task: Task, rank: int):
        within = task.module in met and task.micro_batch is not None
        alone = task.module in encoders
        if task.phase in ("send", "recv") or (within and not alone and task.phase in ("gather", "sync")):
            return task.id, rank
        together = within and (task.phase == "B" or not alone)
        return (task.module, task.layers, task.phase, task.micro_batch) if together else task.id

    for rank, own in lists.items():
        for before, task in zip([None, *own], own, strict=False):
            behind = graph.setdefault(node(task, rank), set())
            if before:
                behind.add(node(before, rank))
            if task.phase == "recv" and is_between_modules(task):
                pairs = {wire.pair(task.of) for wire in carried[transfer_key(task)]}
                behind |= {(task.after[0], source) for source, target in pairs if target == rank}
            elif task.phase == "recv":
                behind.add((task.after[0], task.peers[task.ranks.index(rank)]))
    try:
        TopologicalSorter(graph).prepare()
    except CycleError:
        return False
    return True


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.every(4)
def test_shuffled_lists_are_refused_exactly_where_ranks_wait_for_each_other(name):
    plan, outcomes = PLANS[name], []
    carried = edge_transfers(plan, expand(plan))
    for seed in range(40):
        random, lists = Random(seed), task_lists(expand(plan))
        for _ in range(random.randrange(1, 6)):
            own = lists[random.choice([*lists])]
            at = random.randrange(len(own) - 1)
            to = min(len(own) - 1, at + random.randrange(1, 8))
            own.insert(to, own.pop(at))
        found = DryRun(lists, carried, synchronised_phases(plan), task_gathered_encoders(plan)).run()
        assert (not found) == ends(plan, lists), found
        outcomes.append(bool(found))
    assert any(outcomes)


@pytest.mark.parametrize("name", PLANS)
def test_two_collectives_of_the_same_ranks_swapped_on_one_are_refused(name):
    plan, lists = PLANS[name], task_lists(expand(PLANS[name]))
    together = [
        task
        for task in lists[0]
        if len(task.ranks) > 1 and (task.phase in ("F", "B", "I", "W") or task.micro_batch is None)
    ]
    pairs = [(a, b) for a, b in pairwise(together) if set(a.ranks) & set(b.ranks) - {0}]
    for first, second in pairs[:5]:
        own = [{first.id: second, second.id: first}.get(task.id, task) for task in lists[0]]
        with pytest.raises(InputError, match="rank"):
            require_no_deadlock(plan, {**lists, 0: own}, "here")


@pytest.mark.parametrize("name", [name for name in PLANS if name != "groups"])
def test_a_lost_task_is_named(name):
    plan = PLANS[name]
    tasks = expand(plan)
    for lost in [task for task in tasks if task.phase in ("send", "recv")][::3]:
        with pytest.raises(InputError, match=r"rank|brings"):
            require_no_deadlock(plan, task_lists([task for task in tasks if task is not lost]), "here")


@pytest.mark.parametrize("name", [name for name in PLANS if name != "groups"])
def test_ends_of_a_message_that_differ_are_refused(name):
    plan = PLANS[name]
    tasks = [*expand(plan)]
    for at, task in enumerate(tasks):
        if task.phase == "recv" and task.of == "F":
            sizes = (task.sizes[0] + 1, *task.sizes[1:])
            wrong = task.__class__(**{**{f: getattr(task, f) for f in FIELDS}, "sizes": sizes})
            with pytest.raises(InputError, match="expects another message"):
                require_no_deadlock(plan, task_lists([*tasks[:at], wrong, *tasks[at + 1 :]]), "here")


FIELDS = [name for name in Task.__struct_fields__ if name != "id"]


def test_backwards_of_an_encoder_that_gathers_in_them_are_in_one_order():
    plan = PLANS["an encoder, sharded"]
    lists = task_lists(expand(plan))
    own = lists[0]
    back = [at for at, task in enumerate(own) if task.phase == "B" and task.module == "vit"]
    own.insert(back[0], own.pop(back[1]))
    with pytest.raises(InputError, match="rank 0 would wait for ever in vit"):
        require_no_deadlock(plan, lists, "here")


@pytest.mark.slow
def test_lists_are_in_the_order_in_which_ranks_execute_them():
    """What needs the gradients of all modules comes behind the last pass of any."""
    for plan in legal(0, 20).values():
        tasks = expand(plan)
        for rank, own in task_lists(tasks).items():
            closing = [task.micro_batch is None and task.phase in ("update", "gather") for task in own]
            assert closing == sorted(closing)
            assert {task.id for task in own} == {task.id for task in tasks if rank in task.ranks}


def test_the_error_says_which_rank_and_which_task():
    plan = PLANS["1f1b"]
    lists = task_lists(expand(plan))
    own = lists[1]
    at = next(i for i, task in enumerate(own) if task.phase == "recv" and task.of == "B")
    lists[1] = [own[at], *own[:at], *own[at + 1 :]]
    found = DryRun(lists, {}).run()
    assert found.startswith("rank 0 would wait for ever in llm[0-1]") and "rank 1 waits in" in found


@pytest.mark.slow
def test_no_legal_plan_of_two_modules_is_refused():
    plans = legal(0, share(200))
    assert len(plans) == share(200)
    for plan in [*plans.values(), *(at_other_times(plan, seed) for seed, plan in plans.items())]:
        require_no_deadlock(plan, task_lists(expand(plan)), "here")
