"""Outputs of encoders on their way to what reads them, and their gradients back.

Both ends know every message before. A send of outputs is a task of all ranks that have some and of all that may read
some: one message from each rank to each other that reads rows it has. What a rank reads of its own it copies. Gradients
take the same way back, and a row that several ranks read gets the sum of theirs.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate

import torch
from torch import Tensor

from planner.launch.channels import Channels
from planner.launch.meter import Meter
from planner.models.batch import Features, Memory
from planner.plan.feeding import fed_tokens
from planner.plan.model import Plan
from planner.plan.reshard import Crossing, crossing
from planner.plan.task import Task
from planner.runtime.flight import Flight, Key, key_of
from planner.runtime.wires import Wire, messages, wires


class Edges:
    """One rank's ends of them. `computed`: of each module, the dtype of what is between its layers."""

    def __init__(self, plan: Plan, channels: Channels, meter: Meter, computed: Mapping[str, torch.dtype]) -> None:
        self.plan, self.channels, self.meter, self.computed = plan, channels, meter, computed
        self.rank, self.device = channels.rank, channels.device
        self.wires: dict[Crossing, list[Wire]] = {}
        self.slots: dict[Wire, int] = {}  # row of what its reader has on this rank
        self.read = fed_tokens(plan, "cross_attention")
        self.flights: Mapping[Key, Flight] = {}
        self.due: Counter[Key] = Counter()  # gradients of features that this rank has yet to send, by who reads them

    def lay(self, tasks: Sequence[Task], flights: Mapping[Key, Flight]) -> None:
        """Before a step: who sends what, and room for it where it is read."""
        self.wires, self.flights, self.slots = wires(self.plan, tasks), flights, {}
        reading: dict[Key, list[Wire]] = defaultdict(list)
        for wire in (wire for of_cell in self.wires.values() for wire in of_cell):
            if wire.route.target == self.rank:
                reading[wire.reader].append(wire)
        self.due = Counter({key: len(of_flight) for key, of_flight in reading.items()})
        for key, of_flight in reading.items():
            by_tokens = [wire for wire in of_flight if wire.by == "tokens"]
            flights[key].batch = replace(flights[key].batch, features=self.room(key, by_tokens))
            self.slots |= {wire: wire.route.to for wire in of_flight if wire.by == "cross_attention"}
        for task in tasks:
            attends = task.phase == "F" and self.plan.uses.models[task.module].crossing
            if attends and self.rank in task.ranks:
                key = key_of(task, 0)
                flights[key].batch = replace(flights[key].batch, memory=self.memory(task))

    def memory(self, task: Task) -> Memory:
        """Room for what cross attention of a pass reads."""
        lengths = [self.read[task.module, item] for item in task.items]
        ends = torch.tensor([0, *accumulate(lengths)], dtype=torch.int32)
        width = self.plan.uses.models[task.module].crossing
        return Memory(self.zeros(sum(lengths), width, self.computed[task.module]), ends)

    def room(self, key: Key, reading: Sequence[Wire]) -> Features | None:
        """For all that stands for tokens of one micro-batch on this rank."""
        if not reading:
            return None
        rows: list[int] = []
        for wire in reading:
            self.slots[wire] = len(rows)
            rows += range(wire.route.to, wire.route.to + wire.route.rows)
        values = self.zeros(len(rows), self.plan.uses.models[key[0]].hidden, self.computed[key[0]])
        return Features(torch.tensor(rows, device=self.device), values)

    def zeros(self, rows: int, width: int, dtype: torch.dtype) -> Tensor:
        return torch.zeros(rows, width, dtype=dtype, device=self.device)

    def coming(self, send: Task) -> Iterator[tuple[int, Callable[[], Tensor]]]:
        """From whom this rank gets a message, and what makes memory for it."""
        for (source, target), carried in messages(self.wires[crossing(send)], send.of).items():
            if target == self.rank != source:
                reader = carried[0].reader[0]
                dtype = self.computed[send.module if send.of == "F" else reader]
                rows, width = sum(wire.route.rows for wire in carried), self.plan.uses.models[send.module].gives
                yield source, partial(self.zeros, rows, width, dtype)

    def send(self, task: Task) -> None:
        for (source, target), carried in messages(self.wires[crossing(task)], task.of).items():
            if source != self.rank:
                continue
            x = torch.cat([self.taken(wire, task.of) for wire in carried])
            if target == self.rank:
                self.put(x, carried, task.of)
            else:
                self.channels.send(target, x)
                self.meter.bytes += x.nbytes
            if task.of == "B":
                self.forget(carried)

    def forget(self, carried: Sequence[Wire]) -> None:
        """Features whose gradients are all on their way are needed no more."""
        for key, count in Counter(wire.reader for wire in carried).items():
            self.due[key] -= count
            if not self.due[key]:
                self.flights[key].batch = replace(self.flights[key].batch, features=None, memory=None)

    def receive(self, task: Task) -> None:
        for (source, target), carried in messages(self.wires[crossing(task)], task.of).items():
            if target == self.rank != source:
                with self.meter.measure(self.device, 0):
                    x = self.channels.receive(source, task.after[0])
                self.put(x, carried, task.of)

    def taken(self, wire: Wire, of: str) -> Tensor:
        """What one end gives: outputs, or the gradients of features."""
        if of == "F":
            output = self.flights[wire.writer].output
            assert output is not None, "what is sent was computed before"
            return output.detach()[wire.route.at : wire.route.at + wire.route.rows]
        values, slot = self.values(wire), self.slots[wire]
        gradient = torch.zeros_like(values) if values.grad is None else values.grad
        return gradient[slot : slot + wire.route.rows]

    @torch.no_grad()
    def put(self, x: Tensor, carried: Sequence[Wire], of: str) -> None:
        """Where the other end wants it."""
        for wire, part in zip(carried, torch.split(x, [wire.route.rows for wire in carried]), strict=True):
            if of == "F":
                slot = self.slots[wire]
                self.values(wire)[slot : slot + len(part)].copy_(part)
            else:
                self.gradient(wire)[wire.route.at : wire.route.at + len(part)] += part

    def values(self, wire: Wire) -> Tensor:
        batch = self.flights[wire.reader].batch
        room = batch.features if wire.by == "tokens" else batch.memory
        assert room is not None, "there is room where it is read"
        return room.values

    def gradient(self, wire: Wire) -> Tensor:
        flight = self.flights[wire.writer]
        assert flight.output is not None, "a gradient comes back before the backward"
        if flight.gradient is None:
            flight.gradient = torch.zeros_like(flight.output)
        return flight.gradient
