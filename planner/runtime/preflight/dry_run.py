"""Dry run of a step over all ranks: advances each through its list of tasks, and reports a deadlock."""

from collections import deque
from collections.abc import Collection, Mapping, Sequence

from planner.plan.task import Phase, Task
from planner.plan.tokens.resharding import TransferKey, is_between_modules, transfer_key
from planner.runtime.exchange.edge_transfers import EdgeTransfer
from planner.runtime.execution_order import executed_by_fsdp, sync_members, sync_point

TaskLists = Mapping[int, Sequence[Task]]  # by rank: its tasks in order
Message = tuple[str, int]  # id of the send, rank of the sender
NO_PHASES: Mapping[str, Collection[Phase]] = {}


class DryRun:
    """`routes`: transfers over edges between modules; `synchronised`: by module, phases of a micro-batch in which its
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
