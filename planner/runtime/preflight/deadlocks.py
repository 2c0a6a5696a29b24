"""Refuses steps that would deadlock, before any rank is started, from the ranks' lists of tasks.

A rank executes its tasks one after the other. Sends do not wait, a recv waits for its message, and any other task of
several ranks is a collective that waits for all of them. A deadlock would never be reported, and a message whose two
ends differ in size kills the process: so both are refused.
"""

from collections import Counter, deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain

from planner.errors import InputError
from planner.plan.mesh.rank_mesh import coordinates
from planner.plan.mesh.synchronisation import synchronised_phases
from planner.plan.plan_file import Layout, Plan
from planner.plan.task import Phase, Task
from planner.plan.tokens.encoder_outputs import fed_spans, reader_of
from planner.plan.tokens.resharding import TransferKey, edge_of_transfer, is_between_modules, transfer_key
from planner.runtime.exchange.edge_transfers import EdgeTransfer, edge_transfers
from planner.runtime.execution_order import (
    executed_by_fsdp,
    execution_order,
    sync_members,
    sync_point,
    task_gathered_encoders,
)

ORDER = "let all ranks execute their tasks in one order, each after what it depends on"
TaskLists = Mapping[int, Sequence[Task]]  # by rank: its tasks in order
Message = tuple[str, int]  # id of the send, rank of the sender
NO_PHASES: Mapping[str, Collection[Phase]] = {}


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
    """Problems of sends between stages: i-th ranks must hold the same shard of tokens and tp coordinate."""
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


class DryRun:
    """Advances every rank through its list of tasks, and reports a deadlock.

    `routes`: transfers over edges between modules; `synchronised`: by module, phases of a micro-batch in which its
    ranks synchronise; `task_gathered`: modules whose gathers and syncs FSDP2 does not issue inside those.
    """

    def __init__(
        self,
        lists: TaskLists,
        routes: Mapping[TransferKey, Sequence[EdgeTransfer]],
        synchronised: Mapping[str, Collection[Phase]] = NO_PHASES,
        task_gathered: Collection[str] = (),
    ) -> None:
        self.lists, self.routes = lists, routes
        self.synchronised, self.task_gathered = synchronised, task_gathered
        self.members = sync_members({task.id: task for own in lists.values() for task in own}.values(), synchronised)
        self.position = dict.fromkeys(lists, 0)
        self.sent: set[Message] = set()
        self.waiting: dict[Message, list[int]] = {}  # ranks that wait for a message
        self.arrived: dict[str, set[int]] = {}  # ranks at a synchronisation point

    def run(self) -> str:
        """Describes the deadlock; an empty string if all ranks finish."""
        ready = deque(self.lists)
        while ready:
            rank = ready.popleft()
            task = self.task(rank)
            if task:
                ready.extend(self.advance(rank, task))
        stuck = next(((rank, task) for rank in self.lists if (task := self.task(rank))), None)
        if stuck is None:
            return ""
        rank, task = stuck
        elsewhere = [f"rank {other} {self.state_of(other)}" for other in self.awaited(rank, task)[:3]]
        return f"rank {rank} would wait for ever in {task.id}: {', '.join(elsewhere)}"

    def advance(self, rank: int, task: Task) -> Sequence[int]:
        """Ranks that can proceed when this rank begins `task`: none where it has to wait."""
        if task.phase == "send" or executed_by_fsdp(task, self.task_gathered):
            self.sent.add((task.id, rank))
            self.position[rank] += 1
            return rank, *self.waiting.pop((task.id, rank), ())
        if task.phase == "recv":
            awaited = self.awaited(rank, task)
            if awaited:
                self.waiting.setdefault((task.after[0], awaited[0]), []).append(rank)
                return ()
            self.position[rank] += 1
            return (rank,)
        arrived = self.arrived.setdefault(sync_point(task, self.synchronised), set())
        arrived.add(rank)
        if len(arrived) < len(self.members[sync_point(task, self.synchronised)]):
            return ()
        for member in arrived:
            self.position[member] += 1
        return sorted(arrived)

    def task(self, rank: int) -> Task | None:
        own, at = self.lists.get(rank, ()), self.position.get(rank, 0)
        return own[at] if at < len(own) else None

    def state_of(self, rank: int) -> str:
        task = self.task(rank)
        return f"waits in {task.id}" if task else "is at the end"

    def awaited(self, rank: int, task: Task) -> list[int]:
        """Ranks for which this one waits in `task`: they have not sent, or have not arrived."""
        if task.phase == "recv":
            return [source for source in self.sources(rank, task) if (task.after[0], source) not in self.sent]
        point = sync_point(task, self.synchronised)
        return sorted(self.members[point] - self.arrived.get(point, set()))

    def sources(self, rank: int, recv: Task) -> list[int]:
        if not is_between_modules(recv):
            return [recv.peers[recv.ranks.index(rank)]]
        pairs = {route.pair(recv.of) for route in self.routes.get(transfer_key(recv), ())}
        return sorted(source for source, target in pairs if target == rank)
