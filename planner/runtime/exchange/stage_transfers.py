"""Point-to-point transfers of activations and their gradients between pipeline stages; shapes follow from the plan."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from torch import Tensor

from planner.launch.communication import Channels, CommunicationMeter, ExpectedMessage
from planner.plan.task import Task
from planner.plan.tokens.resharding import is_between_modules
from planner.runtime.exchange.shared_order import SharedOrder

EdgeReceives = Callable[[Task], Iterable[tuple[int, Callable[[], Tensor]]]]


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
