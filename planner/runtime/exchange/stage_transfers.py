"""Point-to-point transfers of activations and their gradients between pipeline stages; shapes follow from the plan. And
one order of communication for any two ranks: where a rank posts its receives among what it shares with their sender.

NCCL can deadlock where two ranks begin operations of two communicators in different orders. Tasks are in one order, and
their collectives and sends begin in it. A receive is posted ahead of the task that needs it, but only between the same
operations as the sender's send: the collectives of both ranks, and messages the other way.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain

from torch import Tensor

from planner.launch.communication import Channels, CommunicationMeter, ExpectedMessage, RankPair
from planner.plan.task import Phase, Task
from planner.plan.tokens.resharding import is_between_modules
from planner.runtime.execution_order import executed_by_fsdp, execution_order, sync_members, sync_point

MessagePairs = Callable[[Task], Iterable[RankPair]]  # of a send: (sender, receiver) of each of its messages
EdgeReceives = Callable[[Task], Iterable[tuple[int, Callable[[], Tensor]]]]


@dataclass(frozen=True, slots=True)
class SharedOrder:
    """The order of one rank with each of those that send to it."""

    behind: Mapping[tuple[int, str], int]  # sender, id of a send → operations of both ranks that begin before it
    shared: Mapping[str, tuple[int, ...]]  # id of a collective of this rank → senders that take part


def shared_order(
    rank: int,
    tasks: Sequence[Task],
    pairs: MessagePairs,
    synchronised: Mapping[str, Collection[Phase]],
    task_gathered: Collection[str],
) -> SharedOrder:
    """The order of a step, from its tasks of all ranks. `synchronised`: by module, phases of a micro-batch in which its
    ranks synchronise; `task_gathered`: modules whose gathers and syncs FSDP2 does not issue inside those.
    """
    sends = {task.id: [*pairs(task)] for task in tasks if task.phase == "send"}
    senders = {source for each in sends.values() for source, target in each if target == rank != source}
    if not senders:
        return SharedOrder({}, {})
    members = sync_members(tasks, synchronised)
    begun: Counter[int] = Counter()  # operations with each sender so far
    behind: dict[tuple[int, str], int] = {}
    shared: dict[str, tuple[int, ...]] = {}
    passed: set[str] = set()
    for task in chain(*execution_order(tasks)):
        if task.phase == "send":
            for source, target in sorted(sends[task.id]):  # of two that send to each other, the lower rank first
                if target == rank != source:
                    behind[source, task.id] = begun[source]
                elif source == rank != target:
                    begun[target] += 1
        elif task.phase != "recv" and not executed_by_fsdp(task, task_gathered):
            point = sync_point(task, synchronised)
            if rank in task.ranks:
                shared[task.id] = tuple(sorted(senders & members[point]))
            if rank in members[point] and point not in passed:  # its tasks follow each other
                begun.update(senders & members[point])
                passed.add(point)
    return SharedOrder(behind, shared)


class StageTransfers:
    """Sends and receives of one rank. The i-th rank of a group sends to the i-th on the other stage."""

    def __init__(self, channels: Channels, meter: CommunicationMeter, rank: int) -> None:
        self.channels, self.meter, self.rank = channels, meter, rank

    def expect(
        self, tasks: Sequence[Task], memory: Callable[[Task], Tensor], edge_receives: EdgeReceives, order: SharedOrder
    ) -> None:
        """Announces all messages of a step, in the order in which they are sent. `memory`: makes the buffer of a recv;
        `edge_receives`: senders, and what makes their buffers, for a send over an edge between modules.
        """
        recvs = {task.after[0]: task for task in tasks if task.phase == "recv" and self.rank in task.ranks}
        due: dict[int, list[ExpectedMessage]] = defaultdict(list)
        for task in tasks:
            if task.phase == "send" and is_between_modules(task):
                for source, make in edge_receives(task):
                    due[source].append(ExpectedMessage(task.id, "modules", make, order.behind[source, task.id]))
            elif task.phase == "send" and task.id in recvs and self.rank in task.peers:
                recv, source = recvs[task.id], self.source(recvs[task.id])
                due[source].append(
                    ExpectedMessage(task.id, "stages", partial(memory, recv), order.behind[source, task.id])
                )
        self.channels.begin_step(due)

    def source(self, recv: Task) -> int:
        return recv.peers[recv.ranks.index(self.rank)]

    def send(self, task: Task, x: Tensor) -> None:
        self.channels.send(task.peers[task.ranks.index(self.rank)], x, "stages")
        self.meter.count("pp", x.nbytes)

    def receive(self, task: Task) -> Tensor:
        with self.meter.measure(self.channels.device, "pp", 0):
            return self.channels.receive(self.source(task), task.after[0])
