"""Any two ranks begin what they both take part in, collectives and messages of all communicators, in one order."""

from functools import cache
from itertools import combinations

import pytest

from planner.launch.processes import launch
from planner.launch.worker import joined_world
from planner.plan.mesh.synchronisation import synchronised_phases
from planner.plan.tasks.expand import expand
from planner.plan.tokens.resharding import is_between_modules, transfer_key
from planner.runtime.exchange.edge_transfers import edge_transfers
from planner.runtime.exchange.stage_transfers import shared_order
from planner.runtime.execute.training_loop import prepare_executor
from planner.runtime.execution_order import executed_by_fsdp, sync_members, sync_point, task_gathered_encoders
from planner.runtime.preflight.deadlocks import task_lists
from planner.runtime.run_options import RunOptions
from planner.specs.base import with_fields
from planner.specs.layers.components import Experts
from tests.examples import thorough
from tests.plans import encoder_plan, sharded_plan, staged_plan
from tests.runtime.test_several_modules import GAPS
from tests.runtime.training_worlds import DECODER, spread
from tests.several import at_other_times, legal
from tests.several_steps import legal_and_refused

MOE = with_fields(DECODER, moe=Experts(experts=8, topk=2, ffn=16))
BY_HAND = {
    "1f1b": staged_plan(3, 4),
    "zero bubble": staged_plan(2, 4, "zb_h1"),
    "groups": sharded_plan(4, [[(0, 4)], [(0, 2), (2, 1)]]),
    "chunks": spread(4, dp=2, pp=2, rank_order="pp-dp", vpp=2, zero=3, rows=[[(0, 1, 2, 3)]] * 4),
    "experts": spread(4, MOE, dp=4, zero=3, ep=2),
    "an encoder, sharded": encoder_plan(zero=3),
    **GAPS,
}


@cache
def drawn():
    """Random plans, by name."""
    modules = legal(0, 60 if thorough() else 30)
    return {
        **{f"steps {seed}": plan for seed, plan in legal_and_refused(0, 150 if thorough() else 75)[0].items()},
        **{f"three modules {seed}": plan for seed, plan in modules.items()},
        **{f"at other times {seed}": at_other_times(plan, seed) for seed, plan in modules.items()},
    }


class Begun:
    """What each rank begins in a step, in its order, with the ranks that take part."""

    def __init__(self, plan, number: int, lists=None) -> None:
        self.plan, self.tasks = plan, expand(plan, number)
        self.routes, self.gathered = edge_transfers(plan, self.tasks), task_gathered_encoders(plan)
        self.synchronised = synchronised_phases(plan)
        self.lists = lists or task_lists(self.tasks)
        self.members = sync_members(self.tasks, self.synchronised)
        self.orders = {
            rank: shared_order(rank, self.tasks, self.pairs, self.synchronised, self.gathered) for rank in self.lists
        }

    def pairs(self, send):
        if is_between_modules(send):
            return {route.pair(send.of) for route in self.routes[transfer_key(send)]}
        return set(zip(send.ranks, send.peers, strict=True))

    def pairs_of_recv(self, recv):
        send = next(task for task in self.tasks if task.id == recv.after[0])
        return self.pairs(send)

    def own(self, rank: int, other: int) -> list:
        """Collectives of both, and sends to the other: they begin as their tasks do."""
        found = []
        for task in self.lists[rank]:
            if task.phase == "send" and (rank, other) in self.pairs(task):
                found.append((task.id, rank, other))
            elif task.phase not in ("send", "recv") and not executed_by_fsdp(task, self.gathered):
                point = sync_point(task, self.synchronised)
                if other in self.members[point]:
                    found.append(point)
        return found

    def with_receives(self, rank: int, other: int) -> list:
        """The same, and the messages of the other where this rank begins to receive them."""
        behind = [
            (count, id) for (source, id), count in self.orders[rank].behind.items() if source == other
        ]  # in the order in which they are sent
        found: list = []
        for number, operation in enumerate([*self.own(rank, other), None]):
            found += [(id, other, rank) for count, id in behind if count == number]
            found += [operation] if operation is not None else []
        return found


def steps_of(plans):
    return [Begun(plan, number) for plan in plans.values() for number in range(len(plan.steps))]


@pytest.mark.slow
@pytest.mark.parametrize("plans", [lambda: BY_HAND, drawn], ids=["by hand", "random"])
def test_two_ranks_begin_all_that_they_share_in_one_order(plans):
    crossing = 0
    for step in steps_of(plans()):
        for rank, other in combinations(step.lists, 2):
            assert step.with_receives(rank, other) == step.with_receives(other, rank)
            crossing += step.own(rank, other) != step.own(other, rank)
    assert crossing  # messages the other way are received between


@pytest.mark.slow
def test_a_receive_is_never_needed_before_it_may_begin():
    """Else a rank would wait for a message whose place in the order is behind the task that needs it."""
    for step in steps_of(drawn()):
        for rank, own in step.lists.items():
            begun = dict.fromkeys(step.lists, 0)
            for task in own:
                if task.phase == "recv":
                    for source in {source for source, target in step.pairs_of_recv(task) if target == rank != source}:
                        assert step.orders[rank].behind[source, task.after[0]] <= begun[source]
                elif task.phase == "send":
                    for source, target in step.pairs(task):
                        begun[target] += source == rank != target
                for source in step.orders[rank].shared.get(task.id, ()):
                    begun[source] += 1


@pytest.mark.slow
def test_two_collectives_in_another_order_on_one_rank_are_seen():
    """The theorem can fail: where a rank swaps two that it shares, its order is not that of the others."""
    seen = 0
    for plan in [*BY_HAND.values(), *[*drawn().values()][:20]]:
        lists = task_lists(expand(plan))
        shared = [task for task in lists[0] if len(task.ranks) > 1 and task.phase == "update"]
        for one, two in combinations(shared, 2):
            both = ({*one.ranks} & {*two.ranks}) - {0}
            swapped = [{one.id: two, two.id: one}.get(task.id, task) for task in lists[0]]
            step = Begun(plan, 0, {**lists, 0: swapped})
            assert all(step.own(0, other) != step.own(other, 0) for other in both)
            seen += len(both)
    assert seen > 10


# ---------------------------------------------------------------------------------------- what processes really begin


def log_of_steps(worker, plans):
    """Of each plan: what this rank begins in its first step, as it begins it."""
    logs = {}
    with joined_world(worker, timeout_s=60):
        for name, plan in plans.items():
            log = logs[name] = []
            executor = prepare_executor(worker, plan, RunOptions(steps=1))
            for phase in {*executor.handlers} - {"send", "recv"}:
                executor.handlers[phase] = before(
                    executor.handlers[phase],
                    lambda task, log=log, of=executor.synchronised: log.append(sync_point(task, of)),
                )
            channels = executor.local.channels
            channels.post_receive = before(
                channels.post_receive, lambda source, log=log: log.append((source, worker.rank))
            )
            channels.send = lambda target, x, carries, log=log, send=channels.send: (
                send(target, x, carries),
                log.append((worker.rank, target)),  # behind it: a send posts receives first
            )
            executor.step(expand(plan))
    return logs


def before(call, note):
    """The call, noted before."""

    def noted(*said):
        note(*said)
        return call(*said)

    return noted


@pytest.mark.slow
def test_processes_begin_what_they_share_in_one_order():
    staged = {name: plan for name, plan in drawn().items() if name.startswith("three") and plan.layouts["llm"].pp > 1}
    plans = {name: staged[name] for name in [*staged][: 6 if thorough() else 4]}
    logs = launch(log_of_steps, 4, plans)
    for name, plan in plans.items():
        step = Begun(plan, 0)
        for rank, other in combinations(range(4), 2):
            shared = [
                [
                    each
                    for each in logs[own][name]
                    if ({*each} == {rank, other} if isinstance(each, tuple) else {rank, other} <= step.members[each])
                ]
                for own in (rank, other)
            ]
            assert shared[0] == shared[1], (name, rank, other)
