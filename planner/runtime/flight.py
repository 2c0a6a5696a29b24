"""State of a micro-batch in flight through a chunk of layers."""

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
    """What this rank holds of a micro-batch of one group, from its forward to its backward."""

    batch: Batch
    input: Tensor | None = None  # (tokens, hidden), from the previous stage; None on the first
    output: Tensor | None = None  # (tokens, hidden), or the loss
    gradient: Tensor | None = None  # of the output, from the next stage
    returns: bool = False  # whether a backward follows in this step
    store: Store | None = None  # with split backward: what the weight gradient needs
    offload: Offload | None = None  # activations in host memory

    @property
    def rows(self) -> int:
        """Number of tokens of the activations between layers that this rank holds."""
        return len(self.batch.tensor.mine(self.batch.positions))

    def begin(self) -> None:
        """Marks inputs from other modules as requiring gradients, which are sent back to them."""
        for received in (self.batch.features, self.batch.memory):
            if received is not None:
                received.values.requires_grad_()

    def expect(self, task: Task, mover: Mover) -> None:
        """Prepares for one of the passes of this micro-batch; called for each before the step."""
        self.returns |= task.phase in ("B", "I")
        if task.phase == "I":
            self.store = Store()
        if task.phase == "F" and any(task.offload):
            self.offload = Offload(offloaded(task), mover)

    @contextmanager
    def keeping(self) -> Iterator[None]:
        """Context of its forwards: saves activations where a backward follows, defers or offloads them."""
        with torch.set_grad_enabled(self.returns), deferring(self.store), offloading(self.offload):
            yield

    def land(self) -> None:
        """Frees activations after the backward."""
        self.output = self.gradient = None


def offloaded(task: Task) -> float:
    """Fraction of a forward's activations to offload: mean over its items, weighted by tokens."""
    return sum(share * size for share, size in zip(task.offload, task.sizes, strict=True)) / task.tokens


def key_of(task: Task, first_layer: int) -> Key:
    """Key of the micro-batch that a task works on; `first_layer`: of its chunk."""
    return task.module, first_layer, task.micro_batch, task.group
