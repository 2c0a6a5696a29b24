"""Embedding tables in a step: the sums of a sample's rows stand in place of the embeddings of its first tokens, before
all passes; behind them their gradients go back, and tables are updated. All of a rank's samples at once.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from planner.launch import SentBytes
from planner.models import Batch, EncoderFeatures
from planner.plan.task import Task
from planner.runtime.exchange.micro_batch_in_flight import MicroBatchInFlight
from planner.runtime.measure.step_clock import TimeMark
from planner.runtime.state.rank_state import RankState
from planner.runtime.state.rank_tables import RankTables


def table_passes(local: RankState) -> "TablePasses | None":
    """The passes of this rank's tables; None where the plan has none."""
    return TablePasses(local, local.tables) if local.tables else None


class TablePasses:
    """The passes of one rank's tables."""

    def __init__(self, local: RankState, tables: RankTables) -> None:
        (stage,) = local.all_stages
        self.tables, self.hidden, self.worker, self.clock = tables, stage.spec.hidden, local.worker, local.clock
        self.rate = 0.0  # learning rate of the next update
        self.flights: list[MicroBatchInFlight] = []
        self.marks: list[TimeMark] = []  # begins and ends of the step

    def load(self, tasks: Sequence[Task], flights: Sequence[MicroBatchInFlight]) -> None:
        """Draw what the samples of a step read; `flights`: of this rank's forwards."""
        self.flights, self.marks = [*flights], []
        forwards = [task for task in tasks if task.phase == "F"]
        by_rank = ([task.items for task in forwards if rank in task.ranks] for rank in self.tables.ranks)
        self.tables.load([[item for items in of_rank for item in items] for of_rank in by_rank])

    def lookup(self, step: int) -> None:
        """Put sums in place of tokens."""
        self.worker.begin_task("lookups of tables", step)
        self.marks.append(self.clock.mark())
        self.sums = self.tables.lookup().requires_grad_()
        first = 0
        for flight in self.flights:
            samples = len(flight.batch.cu_seqlens) - 1
            features = table_features(flight.batch, self.sums[first : first + samples], self.hidden)
            flight.batch = replace(flight.batch, features=features)
            first += samples
        self.marks.append(self.clock.mark())

    def finish(self, step: int, place: int, trained: bool) -> None:
        """Bring gradients back; update, unless nothing else of the step is."""
        self.worker.begin_task("update of tables", step, place)
        self.marks.append(self.clock.mark())
        gradient = self.sums.grad
        self.tables.backward(torch.zeros_like(self.sums) if gradient is None else gradient)
        if trained:
            self.tables.update(self.rate, step)
        self.marks.append(self.clock.mark())

    def sent(self) -> SentBytes:
        """Bytes of the step to other ranks, but for averages of copies."""
        return dict(self.tables.group.meter.take_measured().sent)

    @property
    def seconds(self) -> float:
        """Seconds of the step that tables took here, waits for other ranks among them."""
        ends = [self.clock.seconds(mark) for mark in self.marks]
        return sum(ends[1::2]) - sum(ends[::2])


def table_features(batch: Batch, sums: Tensor, hidden: int) -> EncoderFeatures:
    """Sums (samples, width) as vectors of the module's width, in place of the first tokens of each sample."""
    tokens = -(-sums.shape[1] // hidden)
    first = batch.cu_seqlens[:-1, None].long() + torch.arange(tokens)
    values = F.pad(sums, (0, tokens * hidden - sums.shape[1])).view(-1, hidden)
    return EncoderFeatures(first.reshape(-1).to(sums.device), values)
