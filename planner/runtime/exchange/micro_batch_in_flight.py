"""State of a micro-batch in flight through a chunk of layers."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from planner.models import Batch
from planner.models.autograd import (
    ActivationOffload,
    DeferredGradients,
    HostCopier,
    deferring_weight_gradients,
    offloading_activations,
)
from planner.plan.task import Task

InFlightKey = tuple[str, int, int | None, str]  # module, first layer of its chunk, micro-batch, group


@dataclass(slots=True)
class MicroBatchInFlight:
    """What this rank holds of a micro-batch of one group, from its forward to its backward."""

    batch: Batch
    input: Tensor | None = None  # (tokens, hidden), from the previous stage; None on the first
    output: Tensor | None = None  # (tokens, hidden), or the loss
    gradient: Tensor | None = None  # of the output, from the next stage
    has_backward: bool = False  # whether a backward follows in this step
    deferred: DeferredGradients | None = None  # with split backward: what the weight gradient needs
    offload: ActivationOffload | None = None  # activations in host memory

    @property
    def tokens(self) -> int:
        """Number of tokens of the activations between layers that this rank holds."""
        return len(self.batch.tensor_parallel.local_rows(self.batch.positions))

    def require_input_gradients(self) -> None:
        """Marks inputs from other modules as requiring gradients, which are sent back to them."""
        for received in (self.batch.features, self.batch.memory):
            if received is not None:
                received.values.requires_grad_()

    def free_features(self) -> None:
        """Frees what took the place of tokens, after the forward that merged it and needs no gradients of it."""
        self.batch = replace(self.batch, features=None)

    def free_inputs(self) -> None:
        """Frees inputs from other modules, to which no gradients are sent back."""
        self.batch = replace(self.batch, features=None, memory=None)

    def detached_output(self) -> Tensor:
        """The output, for work whose gradient is not computed with that of its layers."""
        assert self.output is not None, "its forward comes first"
        return self.output.detach()

    def add_gradient(self, gradient: Tensor | None) -> None:
        """Adds to the gradient of the output; None: none."""
        if gradient is not None:
            self.gradient = gradient if self.gradient is None else self.gradient + gradient

    def add_pass(self, task: Task, mover: HostCopier) -> None:
        """Prepares for one of the passes of this micro-batch; called for each before the step."""
        self.has_backward |= task.phase in ("B", "I")
        if task.phase == "I":
            self.deferred = DeferredGradients()
        if task.phase == "F" and any(task.offload):
            self.offload = ActivationOffload(offloaded(task), mover)

    @contextmanager
    def saving_for_backward(self) -> Iterator[None]:
        """Context of its forwards: saves activations where a backward follows, defers or offloads them."""
        with (
            torch.set_grad_enabled(self.has_backward),
            deferring_weight_gradients(self.deferred),
            offloading_activations(self.offload),
        ):
            yield

    def free_activations(self) -> None:
        """Frees activations after the backward."""
        self.output = self.gradient = None


def offloaded(task: Task) -> float:
    """Fraction of a forward's activations to offload: mean over its items, weighted by tokens."""
    return sum(share * size for share, size in zip(task.offload, task.sizes, strict=True)) / task.tokens


def in_flight_key(task: Task, first_layer: int) -> InFlightKey:
    """Key of the micro-batch that a task works on; `first_layer`: of its chunk."""
    return task.module, first_layer, task.micro_batch, task.group
