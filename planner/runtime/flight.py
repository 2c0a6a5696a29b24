"""A micro-batch on its way through a chunk of layers."""

from dataclasses import dataclass

from torch import Tensor

from planner.models.batch import Batch
from planner.plan.task import Task

Key = tuple[str, int, int | None, str]  # module, first layer of its chunk, micro-batch, group


@dataclass(slots=True)
class Flight:
    """What one group has of a micro-batch on this rank, from its forward to its backward."""

    batch: Batch
    input: Tensor | None = None  # [rows, hidden], from the stage before; None on the first
    output: Tensor | None = None  # the same, or the loss
    gradient: Tensor | None = None  # of the output, from the stage behind

    @property
    def rows(self) -> int:
        """Of activations that this rank holds between layers."""
        return len(self.batch.tensor.mine(self.batch.positions))

    def land(self) -> None:
        """Backward is over: nothing of its forward is needed any more."""
        self.output = self.gradient = None


def key_of(task: Task, first_layer: int) -> Key:
    return task.module, first_layer, task.micro_batch, task.group
