"""Executes this rank's tasks of one step, in the order that all ranks share, and times each of them.

It knows tasks, not where they come from. The items of a step are made before its clock starts, as a loader would; the
collectives of ZeRO-3's gathers and syncs are issued by FSDP2 inside the forward and backward of their micro-batch, so
those two tasks are only recorded here.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.profiler import record_function

from planner.launch.groups import Groups
from planner.launch.meter import Meter
from planner.launch.ulysses import Ulysses, exchange_over
from planner.launch.worker import Worker
from planner.models.batch import Batch
from planner.models.data import packed_batch, token_unit
from planner.models.exchange import even_sizes
from planner.plan.task import Phase, Task
from planner.runtime.clock import Call, Clock, Mark
from planner.runtime.records import Meeting, Pass
from planner.runtime.sharded import Sharded

Key = tuple[int | None, str]  # a micro-batch, and a group in it


@dataclass(slots=True)
class Noted:
    """A task that this rank executed, before anybody waits for its clock."""

    task: Task
    start: Mark
    end: Mark
    calls: list[Call]
    meter: Meter


@dataclass(frozen=True, slots=True)
class RankStep:
    """One step on one rank. It travels to the first rank."""

    loss: float  # of its own tokens, over the tokens of all
    seconds: float
    passes: tuple[Pass, ...]
    items: tuple[int, ...]  # that its groups began, if it is the first rank of them
    tokens: int  # that it held itself
    peak_bytes: int | None


class Executor:
    """One rank: its model, its optimizer, and what happens for each phase of a task."""

    def __init__(
        self, worker: Worker, groups: Groups, sharded: Sharded, optimizer: torch.optim.Optimizer, seed: int
    ) -> None:
        self.worker, self.groups, self.sharded, self.optimizer, self.seed = worker, groups, sharded, optimizer, seed
        self.clock: Clock = sharded.clock
        self.execute: dict[Phase, Callable[[Task], Meter]] = {
            "F": self.forward,
            "B": self.backward,
            "gather": self.gather,
            "sync": self.sync,
            "update": self.update,
        }

    def step(self, tasks: Sequence[Task]) -> RankStep:
        """All tasks of a step, of which this rank executes its own."""
        own = [task for task in tasks if self.worker.rank in task.ranks]
        self.prepare(own, tokens=sum(task.tokens for task in tasks if task.phase == "F"))
        held = sum(len(batch.positions) for batch in self.batches.values())
        self.clock.start()
        noted = [self.run(task) for task in own if not inside(task)]
        seconds = self.clock.stop()
        return RankStep(
            loss=self.loss.item(),
            seconds=seconds,
            passes=tuple(self.timed(noted, own)),
            items=tuple(item for task in own if self.leads(task) for item in task.items),
            tokens=held,
            peak_bytes=torch.cuda.max_memory_allocated(self.worker.device) if self.worker.kind == "cuda" else None,
        )

    def prepare(self, own: Sequence[Task], tokens: int) -> None:
        """What a step begins with; `tokens`: of all ranks."""
        self.tokens = tokens
        self.batches = {(task.micro_batch, task.group): self.batch(task) for task in own if task.phase == "F"}
        self.losses: dict[Key, Tensor] = {}  # of forwards whose backward has not come yet
        self.loss = torch.zeros((), dtype=torch.float64, device=self.worker.device)
        self.optimizer.zero_grad()
        self.sharded.hold(self.sharded.once)
        if self.worker.kind == "cuda":
            torch.cuda.reset_peak_memory_stats(self.worker.device)

    def leads(self, task: Task) -> bool:
        return task.phase == "F" and task.ranks[0] == self.worker.rank

    def run(self, task: Task) -> Noted:
        self.worker.begin(task.id)
        calls: list[Call] = []
        self.clock.calls = calls
        with record_function(f"task:{task.id}"):
            start = self.clock.mark()
            meter = self.execute[task.phase](task)
            return Noted(task, start, self.clock.mark(), calls, meter)

    def timed(self, noted: Sequence[Noted], own: Sequence[Task]) -> Iterator[Pass]:
        """In seconds, and each collective with the task that it belongs to."""
        inner = {(task.phase, task.micro_batch): task.id for task in own if inside(task)}
        for note in noted:
            at = note.task.micro_batch
            meetings: dict[Phase, tuple[Meeting, ...]] = {
                phase: tuple(self.meeting(call, inner[phase, at]) for call in note.calls if call.phase == phase)
                for phase, row in inner
                if row == at
            }
            outer = [call for call in note.calls if call.phase not in meetings]
            yield Pass(
                id=note.task.id,
                start=self.clock.seconds(note.start),
                end=self.clock.seconds(note.end),
                comm=note.meter.seconds,
                sent_bytes=note.meter.bytes + sum(call.sent_bytes for call in outer),
                gathers=meetings.get("gather", ()),
                syncs=meetings.get("sync", ()),
                blocking=self.worker.kind == "cpu",
                opens=inner.get(("gather", at), "") if note.task.phase == "F" else "",
                closes=inner.get(("sync", at), "") if note.task.phase == "B" else "",
                together=note.task.phase in ("gather", "sync"),
            )

    def meeting(self, call: Call, id: str) -> Meeting:
        return Meeting(id, self.clock.seconds(call.start), self.clock.seconds(call.end), call.sent_bytes)

    def batch(self, task: Task) -> Batch:
        """This rank's shard of the items of a forward; without items, that of an idle rank."""
        spec = self.sharded.model.spec
        sizes = even_sizes(task.tokens, len(task.ranks), token_unit(spec))
        exchange = exchange_over(self.groups, task.ranks, sizes, Meter())
        documents = [*zip(task.items, task.sizes, strict=True)]
        return packed_batch(spec, documents, self.seed, exchange=exchange, device=self.worker.device)

    def forward(self, task: Task) -> Meter:
        key = (task.micro_batch, task.group)
        meter = metered(self.batches[key])
        loss = self.sharded.model(self.batches[key]) / self.tokens
        self.loss += loss.detach()
        self.losses[key] = loss * self.sharded.gradient_scale
        return meter

    def backward(self, task: Task) -> Meter:
        key = (task.micro_batch, task.group)
        meter = metered(self.batches.pop(key))
        self.losses.pop(key).backward()  # type: ignore[no-untyped-call]
        return meter

    def gather(self, task: Task) -> Meter:
        """After the update, for the next step."""
        self.sharded.gather()
        return Meter()

    def sync(self, task: Task) -> Meter:
        """Reduce what piled up: FSDP2 does it in a backward, so one without tokens is run."""
        self.sharded.hold(False)
        idle = packed_batch(self.sharded.model.spec, [], self.seed, device=self.worker.device)
        self.sharded.model(idle).backward()
        return Meter()

    def update(self, task: Task) -> Meter:
        self.optimizer.step()
        return Meter()


def inside(task: Task) -> bool:
    """Whether FSDP2 does this task inside others: the collectives of a micro-batch."""
    return task.phase in ("gather", "sync") and task.micro_batch is not None


def metered(batch: Batch) -> Meter:
    """A new meter for the exchanges of the pass that begins."""
    meter = Meter()
    if isinstance(batch.exchange, Ulysses):
        batch.exchange.meter = meter
    return meter
