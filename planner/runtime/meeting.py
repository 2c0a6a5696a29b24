"""Will the ranks of a step ever get to its end? Found out before any of them is started, from their lists of tasks.

A rank does its tasks one after the other. It sends without waiting, waits in a recv for what is sent to it, and in any
other task of several ranks until all of them are there, since they exchange something in it. If ranks wait for each
other nobody would ever say so, and where the ends of a message differ in size the process dies: so each is refused.
"""

from collections.abc import Iterator, Mapping, Sequence

from planner.errors import InputError
from planner.plan.feeding import feeding
from planner.plan.model import Plan
from planner.plan.shares import runs_on
from planner.plan.task import Task
from planner.runtime.wires import Crossing, Wire, crossing, on_edge, wires

Lists = Mapping[int, Sequence[Task]]  # by rank: what it does, in its order
ORDER = "let all ranks take their tasks in one order, each behind what it waits for"


def lists_of(tasks: Sequence[Task]) -> dict[int, list[Task]]:
    """Of every rank, from the one order that all share."""
    found: dict[int, list[Task]] = {}
    for task in tasks:
        for rank in task.ranks:
            found.setdefault(rank, []).append(task)
    return found


def require_meeting(plan: Plan, lists: Lists, where: str) -> None:
    """Raises InputError naming a rank and the task in which it would wait for ever, or whose message does not fit."""
    tasks = {task.id: task for own in lists.values() for task in own}
    carried = wires(plan, [*tasks.values()])
    for wrong in (*early(lists), *misfits(plan, [*tasks.values()], carried)):
        raise InputError(wrong, where=where, fix=ORDER)
    stuck = Ranks(lists, carried).run()
    if stuck:
        raise InputError(stuck, where=where, fix=ORDER)


def early(lists: Lists) -> Iterator[str]:
    """Tasks in front of one that they wait for on the same rank."""
    for rank, own in lists.items():
        position = {task.id: at for at, task in enumerate(own)}
        for at, task in enumerate(own):
            late = [awaited for awaited in task.after if position.get(awaited, -1) > at]
            if late:
                yield f"rank {rank} would begin {task.id} before {late[0]}, for which it waits"


def misfits(plan: Plan, tasks: Sequence[Task], carried: Mapping[Crossing, Sequence[Wire]]) -> Iterator[str]:
    """Messages whose two ends do not agree."""
    sends = {task.id: task for task in tasks if task.phase == "send"}
    taken = {task.after[0] for task in tasks if task.phase == "recv"}
    yield from (f"nobody receives what rank {sends[id].ranks[0]} sends in {id}" for id in sends if id not in taken)
    for recv in (task for task in tasks if task.phase == "recv"):
        send = sends.get(recv.after[0])
        if send is None:
            yield f"rank {recv.ranks[0]} would wait for ever in {recv.id}: nobody sends"
        elif (send.items, send.sizes, *sorted((send.ranks, send.peers))) != (
            recv.items, recv.sizes, *sorted((recv.ranks, recv.peers)),
        ):  # fmt: skip
            yield f"rank {recv.ranks[0]} expects another message in {recv.id} than {send.id} sends"
        elif not on_edge(recv):
            yield from uneven(plan, send, recv)
    yield from lost(plan, tasks, carried)


def uneven(plan: Plan, send: Task, recv: Task) -> Iterator[str]:
    """Between stages, each rank sends its rows to the one in its place."""
    spec, layout = plan.uses.models[send.module], plan.layouts[send.module]
    if len(send.ranks) != len(recv.ranks):
        yield f"{len(send.ranks)} ranks send in {send.id}, and {len(recv.ranks)} receive"
        return
    for source, target in zip(send.ranks, recv.ranks, strict=True):
        given, wanted = (sum(run.last - run.first for run in runs_on(spec, layout, *end)) for end in
                         ((send, source), (recv, target)))  # fmt: skip
        if given != wanted:
            yield f"rank {source} sends {given} rows in {send.id}, and rank {target} expects {wanted}"


def lost(plan: Plan, tasks: Sequence[Task], carried: Mapping[Crossing, Sequence[Wire]]) -> Iterator[str]:
    """Outputs of encoder items that do not all come to somebody, or come twice."""
    fed = feeding(plan)
    for send in tasks:
        if send.phase == "send" and send.of == "F" and on_edge(send):
            for item in send.items:
                rows, routes = fed[send.module, item].rows, [wire.route for wire in carried[crossing(send)]]
                came = [row for r in routes if r.item == item for row in range(r.first, r.last)]
                if sorted(came) != [*range(rows)]:
                    yield f"{send.id} brings {len(set(came))} of {rows} outputs of item {item} to those that read them"


class Ranks:
    """All of them, at once: each where it stands in its list."""

    def __init__(self, lists: Lists, carried: Mapping[Crossing, Sequence[Wire]]) -> None:
        self.lists, self.carried = lists, carried
        self.at = dict.fromkeys(lists, 0)
        self.sent: set[tuple[str, int]] = set()  # task, rank

    def run(self) -> str:
        """Why they never end; nothing if they do."""
        moved = True
        while moved:
            moved = False
            for rank in self.lists:
                while (task := self.task(rank)) and self.may(rank, task):
                    for member in self.together(rank, task):
                        self.at[member] += 1
                    self.sent.add((task.id, rank))
                    moved = True
        waiting = [(rank, task) for rank in self.lists if (task := self.task(rank))]
        if not waiting:
            return ""
        rank, task = waiting[0]
        others = [other for other in self.awaited(rank, task) if other != rank]
        elsewhere = [f"rank {other} {self.place(other)}" for other in others[:3]]
        return f"rank {rank} would wait for ever in {task.id}: {', '.join(elsewhere)}"

    def task(self, rank: int) -> Task | None:
        own, at = self.lists.get(rank, ()), self.at.get(rank, 0)
        return own[at] if at < len(own) else None

    def place(self, rank: int) -> str:
        task = self.task(rank)
        return f"waits in {task.id}" if task else "is at the end"

    def may(self, rank: int, task: Task) -> bool:
        return not self.awaited(rank, task)

    def awaited(self, rank: int, task: Task) -> list[int]:
        """The ranks that are not there yet, or have not sent yet."""
        if task.phase == "send":
            return []
        if task.phase == "recv":
            return [source for source in self.sources(rank, task) if (task.after[0], source) not in self.sent]
        return [other for other in task.ranks if (there := self.task(other)) is None or there.id != task.id]

    def sources(self, rank: int, recv: Task) -> list[int]:
        if not on_edge(recv):
            return [recv.peers[recv.ranks.index(rank)]]
        pairs = {wire.pair(recv.of) for wire in self.carried.get(crossing(recv), ())}
        return sorted(source for source, target in pairs if target == rank)

    def together(self, rank: int, task: Task) -> Sequence[int]:
        """Who goes on with it."""
        return (rank,) if task.phase in ("send", "recv") else task.ranks
