"""Refuses steps that would deadlock, before any rank is started, from the ranks' lists of tasks.

A rank executes its tasks one after the other. Sends do not wait, a recv waits for its message, and any other task of
several ranks is a collective that waits for all of them. A deadlock would never be reported, and a message whose two
ends differ in size kills the process: so both are refused.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

from planner.errors import InputError
from planner.plan.mesh.rank_mesh import coordinates
from planner.plan.mesh.synchronisation import synchronised_phases
from planner.plan.plan_file import Layout, Plan
from planner.plan.task import Task
from planner.plan.tokens.encoder_outputs import fed_spans, reader_of
from planner.plan.tokens.resharding import TransferKey, edge_of_transfer, is_between_modules, transfer_key
from planner.runtime.exchange.edge_transfers import EdgeTransfer, edge_transfers
from planner.runtime.execution_order import execution_order, task_gathered_encoders
from planner.runtime.preflight.dry_run import DryRun, TaskLists

ORDER = "let all ranks execute their tasks in one order, each after what it depends on"


def task_lists(tasks: Sequence[Task]) -> dict[int, list[Task]]:
    """Each rank's tasks in the order in which it executes them; `tasks`: in the one order that all ranks share."""
    lists: dict[int, list[Task]] = {}
    for task in chain(*execution_order(tasks)):
        for rank in task.ranks:
            lists.setdefault(rank, []).append(task)
    return lists


def require_no_deadlock(plan: Plan, lists: TaskLists, where: str) -> None:
    """Raises InputError naming a rank and the task in which it would wait for ever, or whose message does not match."""
    tasks = {task.id: task for own in lists.values() for task in own}
    routes = edge_transfers(plan, [*tasks.values()])
    for problem in (*out_of_order(lists), *mismatched_messages(plan, [*tasks.values()], routes)):
        raise InputError(problem, where=where, fix=ORDER)
    stuck = DryRun(lists, routes, synchronised_phases(plan), task_gathered_encoders(plan)).run()
    if stuck:
        raise InputError(stuck, where=where, fix=ORDER)


def out_of_order(lists: TaskLists) -> Iterator[str]:
    """Problems of tasks that come before one they depend on, on the same rank, or depend on one that is missing."""
    known = {task.id for own in lists.values() for task in own}
    for rank, own in lists.items():
        position = {task.id: at for at, task in enumerate(own)}
        for at, task in enumerate(own):
            late = [awaited for awaited in task.after if position.get(awaited, -1) > at]
            if late:
                yield f"rank {rank} would begin {task.id} before {late[0]}, on which it depends"
            never = [awaited for awaited in task.after if awaited not in known]
            if never:
                yield f"rank {rank} would wait for ever in {task.id}: no rank executes {never[0]}"


def mismatched_messages(
    plan: Plan, tasks: Sequence[Task], routes: Mapping[TransferKey, Sequence[EdgeTransfer]]
) -> Iterator[str]:
    """Problems of messages whose sender and receiver do not agree."""
    sends = {task.id: task for task in tasks if task.phase == "send"}
    received = {task.after[0] for task in tasks if task.phase == "recv"}
    yield from (f"no rank receives what rank {sends[id].ranks[0]} sends in {id}" for id in sends if id not in received)
    for recv in (task for task in tasks if task.phase == "recv"):
        send = sends.get(recv.after[0])
        if send is None:
            yield f"rank {recv.ranks[0]} would wait for ever in {recv.id}: no rank sends"
        elif (send.items, send.lengths, *sorted((send.ranks, send.peers))) != (
            recv.items, recv.lengths, *sorted((recv.ranks, recv.peers)),
        ):  # fmt: skip
            yield f"rank {recv.ranks[0]} expects another message in {recv.id} than {send.id} sends"
    yield from mismatched_shards(plan, tasks, sends)
    yield from lost_outputs(plan, tasks, routes)


def mismatched_shards(plan: Plan, tasks: Sequence[Task], sends: Mapping[str, Task]) -> Iterator[str]:
    """Problems of sends between stages, where the i-th rank sends to the i-th: both must hold the same shard of the
    tokens and the same tp coordinate.
    """
    seen: set[tuple[str, tuple[int, ...], tuple[int, ...]]] = set()
    for recv in (
        task for task in tasks if task.phase == "recv" and not is_between_modules(task) and task.after[0] in sends
    ):
        send = sends[recv.after[0]]
        ends = (send.module, send.ranks, recv.ranks)
        if ends in seen:
            continue
        seen.add(ends)
        if len(send.ranks) != len(recv.ranks):
            yield f"{len(send.ranks)} ranks send in {send.id}, and {len(recv.ranks)} receive"
            continue
        sent, expected = (token_and_tp_shards(plan.layouts[send.module], end) for end in ends[1:])
        for place, (source, target) in enumerate(zip(send.ranks, recv.ranks, strict=True)):
            if sent[place] != expected[place]:
                yield f"rank {source} sends another shard in {send.id} than rank {target} expects"


def token_and_tp_shards(layout: Layout, ranks: Sequence[int]) -> list[tuple[int, int]]:
    """For each rank, its index among those that shard the tokens, and its tp coordinate."""
    counts: Counter[int] = Counter()
    shards = []
    for rank in ranks:
        part = coordinates(layout, rank).get("tp", 0)
        shards.append((counts[part], part))
        counts[part] += 1
    return shards


def lost_outputs(
    plan: Plan, tasks: Sequence[Task], routes: Mapping[TransferKey, Sequence[EdgeTransfer]]
) -> Iterator[str]:
    """Problems of encoder outputs that do not all reach the items that read them, or reach them twice."""
    fed = fed_spans(plan)
    for send in tasks:
        if send.phase == "send" and send.of == "F" and is_between_modules(send):
            reader, of_send = reader_of(send)[0], [each.route for each in routes[transfer_key(send)]]
            for item in send.items:
                places = [place for place in fed[send.module, item] if place.target[0] == reader]
                arrived = [output for r in of_send if r.item == item for output in range(r.first, r.last)]
                due = copies(plan, send) * [output for place in places for output in range(place.outputs)]
                if sorted(arrived) != sorted(due):
                    yield f"{send.id} brings {len(arrived)} of {len(due)} outputs of item {item} to their readers"


def copies(plan: Plan, send: Task) -> int:
    """Number of ranks that each read all outputs of an item: the tp degree with cross attention, else 1."""
    edge = edge_of_transfer(plan, send)
    return plan.layouts[edge.target].tp if edge.by == "cross_attention" else 1
