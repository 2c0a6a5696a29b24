"""A micro-batch on its way through a chunk of layers."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from planner.models.batch import Batch
from planner.models.deferred import Store, deferring
from planner.models.offload import Mover, Offload, offloading
from planner.plan.task import Task

Key = tuple[str, int, int | None, str]  # module, first layer of its chunk, micro-batch, group


@dataclass(slots=True)
class Flight:
    """What one group has of a micro-batch on this rank, from its forward to its backward."""

    batch: Batch
    input: Tensor | None = None  # [rows, hidden], from the stage before; None on the first
    output: Tensor | None = None  # the same, or the loss
    gradient: Tensor | None = None  # of the output, from the stage behind
    returns: bool = False  # whether a backward follows in this step
    store: Store | None = None  # where backward is in two: what W needs
    offload: Offload | None = None  # what of its activations is in host memory

    @property
    def rows(self) -> int:
        """Of activations that this rank holds between layers."""
        return len(self.batch.tensor.mine(self.batch.positions))

    def begin(self) -> None:
        """What came from another module has a gradient, for which that module waits."""
        for came in (self.batch.features, self.batch.memory):
            if came is not None:
                came.values.requires_grad_()

    def expect(self, task: Task, mover: Mover) -> None:
        """One of the passes that it will make."""
        self.returns |= task.phase in ("B", "I")
        if task.phase == "I":
            self.store = Store()
        if task.phase == "F" and any(task.offload):
            self.offload = Offload(offloaded(task), mover)

    @contextmanager
    def keeping(self) -> Iterator[None]:
        """Forwards within keep for their backward what its passes need, where they need it."""
        with torch.set_grad_enabled(self.returns), deferring(self.store), offloading(self.offload):
            yield

    def land(self) -> None:
        """Backward is over: nothing of its forward is needed any more."""
        self.output = self.gradient = None


def offloaded(task: Task) -> float:
    """The share of a pass's activations that goes to host memory: of its items', by their tokens."""
    return sum(share * size for share, size in zip(task.offload, task.sizes, strict=True)) / task.tokens


def key_of(task: Task, first_layer: int) -> Key:
    return task.module, first_layer, task.micro_batch, task.group
