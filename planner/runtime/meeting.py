"""Will the ranks of a step ever get to its end? Found out before any of them is started, from their lists of tasks.

A rank does its tasks one after the other. It sends without waiting, waits in a recv for what is sent to it, and in any
other task of several ranks until all of them are there, since they exchange something in it. If ranks wait for each
other nobody would ever say so, and where the ends of a message differ in size the process dies: so each is refused.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

from planner.errors import InputError
from planner.plan.feeding import feeding
from planner.plan.meets import meeting
from planner.plan.mesh import coordinates
from planner.plan.model import Layout, Plan
from planner.plan.reshard import Crossing, crossing, edge_of, on_edge
from planner.plan.task import Task
from planner.runtime.executed import apart, executed
from planner.runtime.rehearsal import Lists, Rehearsal
from planner.runtime.wires import Wire, wires

ORDER = "let all ranks take their tasks in one order, each behind what it waits for"


def lists_of(tasks: Sequence[Task]) -> dict[int, list[Task]]:
    """Of every rank, from the one order that all share, as it does them."""
    found: dict[int, list[Task]] = {}
    for task in chain(*executed(tasks)):
        for rank in task.ranks:
            found.setdefault(rank, []).append(task)
    return found


def require_meeting(plan: Plan, lists: Lists, where: str) -> None:
    """Raises InputError naming a rank and the task in which it would wait for ever, or whose message does not fit."""
    tasks = {task.id: task for own in lists.values() for task in own}
    carried = wires(plan, [*tasks.values()])
    for wrong in (*early(lists), *misfits(plan, [*tasks.values()], carried)):
        raise InputError(wrong, where=where, fix=ORDER)
    stuck = Rehearsal(lists, carried, meeting(plan), apart(plan)).run()
    if stuck:
        raise InputError(stuck, where=where, fix=ORDER)


def early(lists: Lists) -> Iterator[str]:
    """Tasks in front of one that they wait for on the same rank, or that wait for one which nobody does."""
    known = {task.id for own in lists.values() for task in own}
    for rank, own in lists.items():
        position = {task.id: at for at, task in enumerate(own)}
        for at, task in enumerate(own):
            late = [awaited for awaited in task.after if position.get(awaited, -1) > at]
            if late:
                yield f"rank {rank} would begin {task.id} before {late[0]}, for which it waits"
            never = [awaited for awaited in task.after if awaited not in known]
            if never:
                yield f"rank {rank} would wait for ever in {task.id}: nobody does {never[0]}"


def misfits(plan: Plan, tasks: Sequence[Task], carried: Mapping[Crossing, Sequence[Wire]]) -> Iterator[str]:
    """Messages whose two ends do not agree."""
    sends = {task.id: task for task in tasks if task.phase == "send"}
    taken = {task.after[0] for task in tasks if task.phase == "recv"}
    yield from (f"nobody receives what rank {sends[id].ranks[0]} sends in {id}" for id in sends if id not in taken)
    for recv in (task for task in tasks if task.phase == "recv"):
        send = sends.get(recv.after[0])
        if send is None:
            yield f"rank {recv.ranks[0]} would wait for ever in {recv.id}: nobody sends"
        elif (send.items, send.lengths, *sorted((send.ranks, send.peers))) != (
            recv.items, recv.lengths, *sorted((recv.ranks, recv.peers)),
        ):  # fmt: skip
            yield f"rank {recv.ranks[0]} expects another message in {recv.id} than {send.id} sends"
    yield from uneven(plan, tasks, sends)
    yield from lost(plan, tasks, carried)


def uneven(plan: Plan, tasks: Sequence[Task], sends: Mapping[str, Task]) -> Iterator[str]:
    """Between stages, each rank sends its rows to the one in its place: both have the same of tokens and matrices."""
    seen: set[tuple[str, tuple[int, ...], tuple[int, ...]]] = set()
    for recv in (task for task in tasks if task.phase == "recv" and not on_edge(task) and task.after[0] in sends):
        send = sends[recv.after[0]]
        ends = (send.module, send.ranks, recv.ranks)
        if ends in seen:
            continue
        seen.add(ends)
        if len(send.ranks) != len(recv.ranks):
            yield f"{len(send.ranks)} ranks send in {send.id}, and {len(recv.ranks)} receive"
            continue
        given, wanted = (seats(plan.layouts[send.module], end) for end in ends[1:])
        for place, (source, target) in enumerate(zip(send.ranks, recv.ranks, strict=True)):
            if given[place] != wanted[place]:
                yield f"rank {source} has other rows to send in {send.id} than rank {target} expects"


def seats(layout: Layout, ranks: Sequence[int]) -> list[tuple[int, int]]:
    """Of each rank: which of those that share out tokens with it it is, and which part of the matrices it has."""
    taken: Counter[int] = Counter()
    found = []
    for rank in ranks:
        part = coordinates(layout, rank).get("tp", 0)
        found.append((taken[part], part))
        taken[part] += 1
    return found


def lost(plan: Plan, tasks: Sequence[Task], carried: Mapping[Crossing, Sequence[Wire]]) -> Iterator[str]:
    """Outputs of encoder items that do not all come to whoever reads them, or come twice."""
    fed = feeding(plan)
    for send in tasks:
        if send.phase == "send" and send.of == "F" and on_edge(send):
            reader, routes = send.group.partition(">")[2], [wire.route for wire in carried[crossing(send)]]
            for item in send.items:
                places = [place for place in fed[send.module, item] if place.target[0] == reader]
                came = [row for r in routes if r.item == item for row in range(r.first, r.last)]
                due = copies(plan, send) * [row for place in places for row in range(place.rows)]
                if sorted(came) != sorted(due):
                    yield f"{send.id} brings {len(came)} of {len(due)} outputs of item {item} to those that read them"


def copies(plan: Plan, send: Task) -> int:
    """Ranks that each read all outputs of an item: those of a block of tp, by cross attention."""
    edge = edge_of(plan, send)
    return plan.layouts[edge.target].tp if edge.by == "cross_attention" else 1
