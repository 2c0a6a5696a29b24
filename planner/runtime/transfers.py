"""Activations and their gradients between the stages of a pipeline, over channels whose shapes the plan knows."""

from collections.abc import Callable, Iterable, Sequence

from torch import Tensor

from planner.launch.channels import Channels
from planner.launch.meter import Meter
from planner.plan.reshard import on_edge
from planner.plan.task import Task

Coming = Callable[[Task], Iterable[tuple[int, Callable[[], Tensor]]]]


class Transfers:
    """One rank's ends. Each rank of a group sends to the one in its place on the other stage."""

    def __init__(self, channels: Channels, meter: Meter, rank: int) -> None:
        self.channels, self.meter, self.rank = channels, meter, rank

    def expect(self, tasks: Sequence[Task], memory: Callable[[Task], Tensor], coming: Coming) -> None:
        """Before a step: what will come, in the order in which it is sent. `memory`: for what a recv brings; `coming`:
        over an edge between modules, from whom, and memory for it.
        """
        recvs = {task.after[0]: task for task in tasks if task.phase == "recv" and self.rank in task.ranks}
        due: dict[int, list[tuple[str, Callable[[], Tensor]]]] = {}
        for task in tasks:
            if task.phase == "send" and on_edge(task):
                for source, make in coming(task):
                    due.setdefault(source, []).append((task.id, make))
            elif task.phase == "send" and task.id in recvs and self.rank in task.peers:
                recv = recvs[task.id]
                due.setdefault(self.source(recv), []).append((task.id, lambda recv=recv: memory(recv)))  # type: ignore[misc]
        for source, messages in due.items():
            self.channels.expect(source, messages)

    def source(self, recv: Task) -> int:
        return recv.peers[recv.ranks.index(self.rank)]

    def send(self, task: Task, x: Tensor) -> None:
        self.channels.send(task.peers[task.ranks.index(self.rank)], x)
        self.meter.bytes += x.nbytes

    def receive(self, task: Task) -> Tensor:
        with self.meter.measure(self.channels.device, 0):
            return self.channels.receive(self.source(task), task.after[0])
