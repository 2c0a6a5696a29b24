"""Executes this rank's tasks of one step, in the order that all ranks share, and times each of them.

The state of a pass is kept by module, chunk of layers, micro-batch and group. Batches of a step are created before its
clock starts, as a data loader would. ZeRO-3's gathers and syncs are issued by FSDP2 inside the forward and backward of
their micro-batch, so those two tasks are only recorded here. Sends do not wait; receives are posted one message ahead.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch.profiler import record_function

from planner.models.offload import Mover
from planner.plan.reshard import on_edge
from planner.plan.task import Phase, Task
from planner.runtime.clock import Call
from planner.runtime.edges import Edges
from planner.runtime.executed import executed, inside
from planner.runtime.flight import Flight, Key, key_of
from planner.runtime.local import Local, empty
from planner.runtime.memory import Watch, counter_of
from planner.runtime.norm import Clipped, Norm
from planner.runtime.noted import Noted, passes
from planner.runtime.records import Pass
from planner.runtime.result import RankMemory
from planner.runtime.transfers import Transfers


@dataclass(frozen=True, slots=True)
class RankStep:
    """Result of one step on one rank, which is sent to rank 0."""

    loss: float  # sum over its own targets, divided by the number of targets of all ranks
    seconds: float
    passes: tuple[Pass, ...]
    items: tuple[
        tuple[str, int], ...
    ]  # module and item of each forward that this rank, as the first of its group, finished
    tokens: int  # whose loss this rank computed
    memory: RankMemory | None  # None on the CPU
    clipped: Clipped | None = None  # the same on all ranks


class Executor:
    """One rank: its modules and optimizers, and a handler for each phase of a task."""

    def __init__(self, local: Local, optimizers: Mapping[str, torch.optim.Optimizer], norm: Norm | None = None) -> None:
        self.local, self.optimizers, self.norm = local, optimizers, norm
        self.worker, self.clock, self.meter = local.worker, local.clock, local.meter
        self.flights: dict[Key, Flight] = {}
        self.active: set[str] = set()  # modules that have an item in this step, on any rank
        self.memory = Watch(counter_of(local.worker.device))
        self.mover = Mover(local.worker.device)
        self.transfers = Transfers(local.channels, local.meter, local.worker.rank)
        self.edges = Edges(local.plan, local.channels, local.meter, local.computed)
        self.handlers: dict[Phase, Callable[[Task], None]] = {
            "F": self.forward,
            "B": self.backward,
            "I": self.backward,
            "W": self.backward_of_weights,
            "send": self.send,
            "recv": self.receive,
            "gather": self.gather,
            "sync": self.sync,
            "update": self.update,
        }

    def step(self, tasks: Sequence[Task]) -> RankStep:
        """Executes this rank's tasks of a step; `tasks`: of all ranks."""
        own = [task for task in tasks if self.worker.rank in task.ranks]
        self.prepare(tasks, own)
        tokens = sum(self.flight(task).rows for task in own if task.phase == "F" and self.local.ends(task))
        self.clock.start()
        passes_and_syncs, updates = executed([task for task in own if not inside(task, self.local.apart)])
        done = [self.run(task) for task in passes_and_syncs]
        self.memory.close()
        clipped = self.clip(self.norm) if self.norm else None
        done += [self.run(task) for task in updates]
        self.local.channels.close()
        seconds = self.clock.stop()
        return RankStep(
            loss=self.loss.item(),
            seconds=seconds,
            passes=tuple(passes(done, [task for task in own if inside(task, self.local.apart)], self.clock)),
            items=tuple((task.module, item) for task in own if self.reports_items(task) for item in task.items),
            tokens=tokens,
            memory=self.memory.end(),
            clipped=clipped,
        )

    def prepare(self, tasks: Sequence[Task], own: Sequence[Task]) -> None:
        """Creates batches and buffers of a step, and resets gradients and stages."""
        with_loss = [task for task in tasks if task.phase == "F" and self.local.ends(task)]
        self.targets = max(1, sum(self.local.targets(task) for task in with_loss))  # of all ranks
        self.active = {task.module for task in tasks if task.phase == "F" and task.items}
        forwards = [task for task in own if task.phase == "F"]
        self.flights.clear()  # of the previous step: frees their memory for this one
        self.flights = {
            self.key(task): Flight(self.local.loaders[task.module].batch(task, self.worker.device)) for task in forwards
        }
        for flight in self.flights.values():
            flight.batch.auxiliary.scale = 1 / self.targets
        for task in own:
            if task.phase in ("F", "B", "I"):
                self.flight(task).expect(task, self.mover)
        self.edges.lay(tasks, self.flights)
        buffer = lambda recv: empty(self.local.stage(recv), self.flight(recv).rows)  # noqa: E731
        self.transfers.expect(tasks, buffer, self.edges.coming)
        self.loss = torch.zeros((), dtype=torch.float64, device=self.worker.device)
        for optimizer in self.optimizers.values():
            optimizer.zero_grad()
        for stage in self.local.all_stages:
            stage.hold()
        self.memory.begin()

    def key(self, task: Task) -> Key:
        return key_of(task, self.local.stage(task).layers[0])

    def flight(self, task: Task) -> Flight:
        return self.flights[self.key(task)]

    def reports_items(self, task: Task) -> bool:
        """Whether this rank reports the items of the task as processed: one rank does for each group."""
        return task.phase == "F" and self.local.concludes(task) and task.ranks[0] == self.worker.rank

    def run(self, task: Task) -> Noted:
        """Executes one task, with marks before and after it."""
        self.worker.begin(task.id)
        calls: list[Call] = []
        self.clock.calls = calls
        with record_function(f"task:{task.id}"):
            start = self.clock.mark()
            self.handlers[task.phase](task)
            return Noted(task, start, self.clock.mark(), calls, self.meter.cut())

    def clip(self, norm: Norm) -> Clipped:
        """Clips gradients. That is no task of the plan: its all-reduce is in the record of none."""
        self.worker.begin("norm of gradients")
        self.clock.calls = []
        clipped = norm.settle()
        self.meter.cut()
        return clipped

    def forward(self, task: Task) -> None:
        stage, flight = self.local.stage(task), self.flight(task)
        flight.begin()
        if flight.input is None and flight.output is None and task.layers[0]:  # an idle rank: no message came
            flight.input = empty(stage, 0).requires_grad_()
        x = flight.input if flight.output is None else flight.output
        with flight.keeping():
            flight.output = stage.network(flight.batch, x, task.layers)
        self.loss += flight.batch.auxiliary.total(task.layers)
        if stage.apart and task.layers[-1] == stage.layers[-1]:
            stage.end()
        if self.local.ends(task):
            flight.output = flight.output / self.targets
            self.loss += flight.output.detach()

    def backward(self, task: Task) -> None:
        """Runs a whole backward (B), or its input gradients only (I)."""
        flight = self.flight(task)
        assert flight.output is not None, "its forward comes first"
        if flight.gradient is None and flight.output.dim():  # an idle rank: no gradient came
            flight.gradient = torch.zeros_like(flight.output)
        with self.local.stage(task).backward(whole=task.phase == "B"):
            torch.autograd.backward(flight.output, flight.gradient)
        flight.land()

    def backward_of_weights(self, task: Task) -> None:
        """Runs the weight gradients (W) of a split backward."""
        store = self.flight(task).store
        assert store is not None, "its I comes first"
        store.add_up()
        self.local.stage(task).pile_up()

    def send(self, task: Task) -> None:
        """Sends activations to the next stage or gradients to the previous one; or outputs to another module or
        gradients back.
        """
        if on_edge(task):
            self.edges.send(task)
            return
        flight = self.flight(task)
        x = flight.output if task.of == "F" else flight.input.grad if flight.input is not None else None
        assert x is not None, "what is sent was computed before"
        self.transfers.send(task, x.detach())
        if task.of == "B":
            flight.input = None

    def receive(self, task: Task) -> None:
        """Receives what `send` sent."""
        if on_edge(task):
            self.edges.receive(task)
            return
        flight, x = self.flight(task), self.transfers.receive(task)
        if task.of == "F":
            flight.input = x.requires_grad_()
        else:
            flight.gradient = x

    def gather(self, task: Task) -> None:
        """Gathers parameters: after the update for the next step, or for the passes of a micro-batch."""
        for stage in self.local.of_module(task):
            if stage.apart:
                stage.begin()
            else:
                stage.gather()

    def sync(self, task: Task) -> None:
        """Reduces accumulated gradients."""
        for stage in self.local.of_module(task):
            stage.reduce()

    def update(self, task: Task) -> None:
        """Updates a module, after completing gradients that no sync task reduced. A module without items in this step
        is not updated, as in one process, where it has no gradients: no weight decay, no momentum.
        """
        self.local.settle(task.module)
        if task.module in self.active:
            self.optimizers[task.module].step()
