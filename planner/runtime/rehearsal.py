"""All ranks of a step at once, each where it stands in its list: do they come to the end, or wait for each other?"""

from collections import deque
from collections.abc import Collection, Mapping, Sequence

from planner.plan.reshard import Crossing, crossing, on_edge
from planner.plan.task import Phase, Task
from planner.runtime.executed import inside
from planner.runtime.wires import Wire

Lists = Mapping[int, Sequence[Task]]  # by rank: what it does, in its order
Message = tuple[str, int]  # the send, and the rank that sends
NOWHERE: Mapping[str, Collection[Phase]] = {}


class Rehearsal:
    """`carried`: what crosses edges; `meeting`: by module, passes of a micro-batch that its ranks go through together;
    `apart`: modules whose gathers and syncs are done by none of these.
    """

    def __init__(
        self,
        lists: Lists,
        carried: Mapping[Crossing, Sequence[Wire]],
        meeting: Mapping[str, Collection[Phase]] = NOWHERE,
        apart: Collection[str] = (),
    ) -> None:
        self.lists, self.carried, self.meeting, self.apart = lists, carried, meeting, apart
        self.members: dict[str, set[int]] = {}
        for task in {task.id: task for own in lists.values() for task in own}.values():
            self.members.setdefault(self.meets_in(task), set()).update(task.ranks)
        self.at = dict.fromkeys(lists, 0)
        self.sent: set[Message] = set()
        self.waiting: dict[Message, list[int]] = {}  # ranks, for a message
        self.there: dict[str, set[int]] = {}  # ranks, where others are missing

    def run(self) -> str:
        """Why they never end; nothing if they do."""
        ready = deque(self.lists)
        while ready:
            rank = ready.popleft()
            task = self.task(rank)
            if task:
                ready.extend(self.done(rank, task))
        stuck = next(((rank, task) for rank in self.lists if (task := self.task(rank))), None)
        if stuck is None:
            return ""
        rank, task = stuck
        elsewhere = [f"rank {other} {self.place(other)}" for other in self.awaited(rank, task)[:3]]
        return f"rank {rank} would wait for ever in {task.id}: {', '.join(elsewhere)}"

    def done(self, rank: int, task: Task) -> Sequence[int]:
        """Who goes on if this rank begins its next task: nobody where it has to wait."""
        if task.phase == "send" or inside(task, self.apart):
            self.sent.add((task.id, rank))
            self.at[rank] += 1
            return rank, *self.waiting.pop((task.id, rank), ())
        if task.phase == "recv":
            awaited = self.awaited(rank, task)
            if awaited:
                self.waiting.setdefault((task.after[0], awaited[0]), []).append(rank)
                return ()
            self.at[rank] += 1
            return (rank,)
        there = self.there.setdefault(self.meets_in(task), set())
        there.add(rank)
        if len(there) < len(self.members[self.meets_in(task)]):
            return ()
        for member in there:
            self.at[member] += 1
        return sorted(there)

    def task(self, rank: int) -> Task | None:
        own, at = self.lists.get(rank, ()), self.at.get(rank, 0)
        return own[at] if at < len(own) else None

    def place(self, rank: int) -> str:
        task = self.task(rank)
        return f"waits in {task.id}" if task else "is at the end"

    def awaited(self, rank: int, task: Task) -> list[int]:
        """The ranks that are not there yet, or have not sent yet."""
        if task.phase == "recv":
            return [source for source in self.sources(rank, task) if (task.after[0], source) not in self.sent]
        meets = self.meets_in(task)
        return sorted(self.members[meets] - self.there.get(meets, set()))

    def meets_in(self, task: Task) -> str:
        """Whoever is in something of this name goes through it together."""
        if task.phase in self.meeting.get(task.module, ()):
            return task.id.rpartition("/")[0]
        return task.id

    def sources(self, rank: int, recv: Task) -> list[int]:
        if not on_edge(recv):
            return [recv.peers[recv.ranks.index(rank)]]
        pairs = {wire.pair(recv.of) for wire in self.carried.get(crossing(recv), ())}
        return sorted(source for source, target in pairs if target == rank)
