"""Transfers of encoder outputs to the modules that read them, and of their gradients back.

Both ends know every message in advance. A send of outputs is a task of all ranks that have or may read some: one
message from each rank to each other that reads outputs it has. What a rank reads of its own outputs it copies.
Gradients return on the same routes; an output that several ranks read gets the sum of their gradients.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate

import torch
from torch import Tensor

from planner.launch.communication import Channels, CommunicationMeter, RankPair
from planner.models import CrossAttentionMemory, EncoderFeatures
from planner.plan.gradient_flow import gradient_flows
from planner.plan.plan_file import Plan
from planner.plan.task import Task
from planner.plan.tokens.encoder_outputs import ItemKey, fed_tokens, layout_stages, reading_stages
from planner.plan.tokens.resharding import TransferKey, transfer_key
from planner.runtime.exchange.edge_transfers import EdgeTransfer, edge_transfers, transfers_by_pair
from planner.runtime.exchange.micro_batch_in_flight import InFlightKey, MicroBatchInFlight, in_flight_key


class EdgeExchange:
    """Transfers over edges, on one rank. `compute_dtypes`: of each module, the dtype of activations between layers."""

    def __init__(
        self, plan: Plan, channels: Channels, meter: CommunicationMeter, compute_dtypes: Mapping[str, torch.dtype]
    ) -> None:
        self.plan, self.channels, self.meter, self.compute_dtypes = plan, channels, meter, compute_dtypes
        self.rank, self.device = channels.rank, channels.device
        self.transfers: dict[TransferKey, list[EdgeTransfer]] = {}
        self.offsets: dict[EdgeTransfer, int] = {}  # first row in the buffer of its reader on this rank
        self.rows: dict[InFlightKey, Tensor] = {}  # of this rank's tokens in a micro-batch, those that outputs replace
        self.read: Mapping[ItemKey, int] = {}  # outputs that cross attention reads, by item of the step
        self.memory_begins = {name: memory_begins(plan, name) for name in plan.layouts}
        self.flights: Mapping[InFlightKey, MicroBatchInFlight] = {}
        self.unsent: Counter[InFlightKey] = Counter()  # transfers whose gradients this rank has yet to send, by reader
        self.unread: Counter[InFlightKey] = Counter()  # transfers whose outputs it has yet to send, by writer
        self.flows = gradient_flows(plan.uses.models, plan.edges)

    def begin_step(self, plan: Plan, tasks: Sequence[Task], flights: Mapping[InFlightKey, MicroBatchInFlight]) -> None:
        """Before a step of `plan`: computes transfers, and allocates what cross attention reads; what takes the place
        of tokens is allocated when the first of it comes, since encoders may run far ahead.
        """
        self.transfers, self.flights, self.offsets = edge_transfers(plan, tasks), flights, {}
        self.rows, self.read = {}, fed_tokens(plan, "cross_attention")
        reading: dict[InFlightKey, list[EdgeTransfer]] = defaultdict(list)
        for transfer in (transfer for transfers in self.transfers.values() for transfer in transfers):
            if transfer.route.target == self.rank:
                reading[transfer.reader].append(transfer)
        every = (transfer for transfers in self.transfers.values() for transfer in transfers)
        self.unread = Counter(transfer.writer for transfer in every if transfer.route.source == self.rank)
        self.unsent = Counter({key: len(transfers) for key, transfers in reading.items()})
        for key, transfers in reading.items():
            self.rows[key] = self.features_rows([each for each in transfers if each.by == "tokens"])
            self.offsets |= {
                transfer: transfer.route.target_row for transfer in transfers if transfer.by == "cross_attention"
            }
        for task in tasks:
            if task.phase == "F" and task.layers[0] in self.memory_begins[task.module] and self.rank in task.ranks:
                key = in_flight_key(task, task.layers[0])
                flights[key].batch = replace(flights[key].batch, memory=self.memory_buffer(task))

    def memory_buffer(self, task: Task) -> CrossAttentionMemory:
        """Buffer (tokens, width) for what cross attention of a forward reads."""
        lengths = [self.read.get((task.module, item), 0) for item in task.items]
        ends = torch.tensor([0, *accumulate(lengths)], dtype=torch.int32)
        width = self.plan.uses.models[task.module].cross_attention_width
        return CrossAttentionMemory(self.zeros(sum(lengths), width, self.compute_dtypes[task.module]), ends)

    def features_rows(self, reading: Sequence[EdgeTransfer]) -> Tensor:
        """Which tokens `(features)` encoder outputs replace here in a micro-batch; notes where transfers begin."""
        rows: list[int] = []
        for transfer in reading:
            self.offsets[transfer] = len(rows)
            rows += range(transfer.route.target_row, transfer.route.target_row + transfer.route.rows)
        return torch.tensor(rows, dtype=torch.int64, device=self.device)

    def features_buffer(self, key: InFlightKey) -> EncoderFeatures:
        """Buffer (tokens, width) for encoder outputs that replace token embeddings of a micro-batch on this rank."""
        rows, models = self.rows[key], self.plan.uses.models
        read = (edge.source for edge in self.plan.edges if (edge.target, edge.by) == (key[0], "tokens"))
        width = max((models[source].sent_width for source in read), default=models[key[0]].hidden)
        return EncoderFeatures(rows, self.zeros(len(rows), width, self.compute_dtypes[key[0]]))

    def zeros(self, rows: int, width: int, dtype: torch.dtype) -> Tensor:
        return torch.zeros(rows, width, dtype=dtype, device=self.device)

    def pairs(self, send: Task) -> Iterable[RankPair]:
        """Sender and receiver of each message of `send`."""
        return transfers_by_pair(self.transfers[transfer_key(send)], send.of)

    def receives(self, send: Task) -> Iterator[tuple[int, Callable[[], Tensor]]]:
        """Senders of messages to this rank in `send`, and for each what makes its buffer."""
        for (source, target), carried in transfers_by_pair(self.transfers[transfer_key(send)], send.of).items():
            if target == self.rank != source:
                reader = carried[0].reader[0]
                dtype = self.compute_dtypes[send.module if send.of == "F" else reader]
                rows = sum(transfer.route.rows for transfer in carried)
                width = self.plan.uses.models[send.module].sent_width
                yield source, partial(self.zeros, rows, width, dtype)

    def send(self, task: Task) -> None:
        for (source, target), carried in transfers_by_pair(self.transfers[transfer_key(task)], task.of).items():
            if source != self.rank:
                continue
            x = torch.cat([self.outgoing(transfer, task.of) for transfer in carried])
            if target == self.rank:
                self.write(x, carried, task.of)
            else:
                self.channels.send(target, x, "modules")
                self.meter.count("edge", x.nbytes)
            if task.of == "B":
                self.free_sent(carried)
            elif not self.flows[task.module].has_backward():
                self.free_read(carried)

    def free_sent(self, carried: Sequence[EdgeTransfer]) -> None:
        """Frees encoder outputs whose gradients have all been sent."""
        for key, count in Counter(transfer.reader for transfer in carried).items():
            self.unsent[key] -= count
            if not self.unsent[key]:
                self.flights[key].batch = replace(self.flights[key].batch, features=None, memory=None)

    def free_read(self, carried: Sequence[EdgeTransfer]) -> None:
        """Frees outputs that have all been sent, of an encoder that has no backward."""
        for transfer in carried:
            self.unread[transfer.writer] -= 1
            if not self.unread[transfer.writer]:
                self.flights[transfer.writer].free_activations()

    def receive(self, task: Task) -> None:
        for (source, target), carried in transfers_by_pair(self.transfers[transfer_key(task)], task.of).items():
            if target == self.rank != source:
                with self.meter.measure(self.device, "edge", 0):
                    x = self.channels.receive(source, task.after[0])
                self.write(x, carried, task.of)

    def outgoing(self, transfer: EdgeTransfer, of: str) -> Tensor:
        """What the sender sends on a transfer, (rows, width): outputs, or gradients with respect to them."""
        if of == "F":
            output = self.flights[transfer.writer].output
            assert output is not None, "what is sent was computed before"
            return output.detach()[transfer.route.source_row : transfer.route.source_row + transfer.route.rows]
        values, offset = self.values(transfer), self.offsets[transfer]
        gradient = torch.zeros_like(values) if values.grad is None else values.grad
        return gradient[offset : offset + transfer.route.rows]

    @torch.no_grad()
    def write(self, x: Tensor, carried: Sequence[EdgeTransfer], of: str) -> None:
        """Writes a received message (rows, width) into the reader's buffer, or adds it to the writer's gradient."""
        for transfer, part in zip(carried, torch.split(x, [transfer.route.rows for transfer in carried]), strict=True):
            if of == "F":
                offset = self.offsets[transfer]
                self.values(transfer)[offset : offset + len(part)].copy_(part)
            else:
                self.gradient(transfer)[transfer.route.source_row : transfer.route.source_row + len(part)] += part

    def values(self, transfer: EdgeTransfer) -> Tensor:
        flight = self.flights[transfer.reader]
        if transfer.by == "tokens" and flight.batch.features is None:
            flight.batch = replace(flight.batch, features=self.features_buffer(transfer.reader))
        buffer = flight.batch.features if transfer.by == "tokens" else flight.batch.memory
        assert buffer is not None, "what cross attention reads was allocated before the step"
        return buffer.values

    def gradient(self, transfer: EdgeTransfer) -> Tensor:
        flight = self.flights[transfer.writer]
        assert flight.output is not None, "a gradient comes back before the backward"
        if flight.gradient is None:
            flight.gradient = torch.zeros_like(flight.output)
        return flight.gradient


def memory_begins(plan: Plan, module: str) -> frozenset[int]:
    """First layers of the stages of a module that cross attention needs what it reads in."""
    spec, layout = plan.uses.models[module], plan.layouts[module]
    stages = layout_stages(spec, layout)
    return frozenset(stages[number][0] for number in reading_stages(spec, layout, "cross_attention"))
