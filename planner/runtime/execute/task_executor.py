"""Executes this rank's tasks of one step, in the order that all ranks share, and times each of them.

The state of a pass is kept by module, chunk of layers, micro-batch and group. Batches of a step are created before its
clock starts, as a data loader would. ZeRO-3's gathers and syncs are issued by FSDP2 inside the forward and backward of
their micro-batch, so those two tasks are only recorded here. Sends do not wait; receives are posted one message ahead.
"""

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch.profiler import record_function

from planner.launch import SentBytes
from planner.launch.communication import RankPair
from planner.models import ShardedAdamW
from planner.models.autograd import HostCopier
from planner.plan.mesh.synchronisation import synchronised_phases
from planner.plan.task import Phase, Task
from planner.plan.tokens.resharding import is_between_modules
from planner.runtime.exchange.contrastive_exchange import ContrastiveExchange
from planner.runtime.exchange.edge_exchange import EdgeExchange
from planner.runtime.exchange.micro_batch_in_flight import InFlightKey, MicroBatchInFlight, in_flight_key
from planner.runtime.exchange.stage_transfers import StageTransfers, shared_order
from planner.runtime.execute.step_loader import LoadedStep
from planner.runtime.execute.table_passes import table_passes
from planner.runtime.execution_order import executed_by_fsdp, execution_order
from planner.runtime.measure.gpu_memory import StepMemory, memory_counter
from planner.runtime.measure.step_clock import CollectiveCall
from planner.runtime.measure.task_records import ExecutedTask, TaskSpan, sent_by_kind, task_spans
from planner.runtime.run_result import NO_FEATURES, FeatureCounts, RankMemory
from planner.runtime.state.gradient_norm import GradientClipping, GradientNorm
from planner.runtime.state.kept_features import KeptFeatures
from planner.runtime.state.optimizers import set_learning_rate
from planner.runtime.state.rank_state import RankState, empty_activations

NOT_LOADED = LoadedStep()  # its items are loaded as its batches are made
PREPARING = "items of the step"  # what ranks do before its clock starts


@dataclass(frozen=True, slots=True)
class RankStepResult:
    """Result of one step on one rank, which is sent to rank 0."""

    loss: float  # weighted sum over its own targets, divided by the weight of those of all ranks
    seconds: float
    passes: tuple[TaskSpan, ...]
    items: tuple[tuple[str, int], ...]  # module and item of forwards that this rank, the first of its group, ended
    tokens: int  # whose loss this rank computed
    memory: RankMemory | None  # None on the CPU
    sent_bytes: SentBytes
    clipped: GradientClipping | None = None  # the same on all ranks
    features: FeatureCounts = NO_FEATURES
    table_seconds: float = 0.0  # of embedding tables
    waited_s: float = 0.0  # for what its loader has ready, before the step
    loading_s: float = 0.0  # that included: all that its items took before the step's clock starts
    lost_in: str = ""  # first task whose loss is not finite; empty: it is


class TaskExecutor:
    """One rank: its modules and optimizers, and a handler for each phase of a task."""

    def __init__(
        self, local: RankState, optimizers: Mapping[str, ShardedAdamW], norm: GradientNorm | None = None
    ) -> None:
        self.local, self.optimizers, self.norm = local, optimizers, norm
        self.worker, self.clock, self.meter = local.worker, local.clock, local.meter
        self.number = 0  # of the step, from 1; 0: the warm-up
        self.places: dict[str, int] = {}  # of this rank's tasks, in the order that all ranks share
        self.flights: dict[InFlightKey, MicroBatchInFlight] = {}
        self.active: set[str] = set()  # modules that have an item in this step, on any rank
        self.synchronised = synchronised_phases(local.plan)
        self.memory = StepMemory(memory_counter(local.worker.device))
        self.mover = HostCopier(local.worker.device)
        self.features: Mapping[str, KeptFeatures] = {}  # by module, those that are kept; none before the first step
        self.transfers = StageTransfers(local.channels, local.meter, local.worker.rank)
        self.tables = table_passes(local)
        self.edges = EdgeExchange(local.plan, local.channels, local.meter, local.compute_dtypes)
        self.compared = ContrastiveExchange(local.plan, local.groups, local.meter, local.compute_dtypes)
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
            "loss": self.compare,
        }

    def set_learning_rate(self, rate: float) -> None:
        """Set the learning rate of all parameters and tables."""
        set_learning_rate(self.optimizers, rate)
        if self.tables:
            self.tables.rate = rate

    def step(self, tasks: Sequence[Task], loaded: LoadedStep = NOT_LOADED) -> RankStepResult:
        """Executes this rank's tasks of a step; `tasks`: of all ranks; `loaded`: what was loaded ahead."""
        self.worker.begin_task(PREPARING, self.number)
        self.places = {task.id: place for place, task in enumerate(tasks) if self.worker.rank in task.ranks}
        own = [tasks[place] for place in self.places.values()]
        begun = time.perf_counter()
        with record_function("load_batch"):
            self.prepare(tasks, own, loaded)
        loading_s = loaded.waited_s + time.perf_counter() - begun
        tokens = sum(self.flight(task).tokens for task in own if task.phase == "F" and self.local.ends_in_loss(task))
        self.clock.start()
        if self.tables:
            self.tables.lookup(self.number)
        passes_and_syncs, updates = execution_order(
            [task for task in own if not executed_by_fsdp(task, self.local.task_gathered)]
        )
        done = [self.run(task) for task in passes_and_syncs]
        self.memory.end_passes()
        clipped = self.clip(self.norm) if self.norm else None
        done += [self.run(task) for task in updates]
        if self.tables:
            self.tables.finish(self.number, max(self.places.values(), default=0), trained=bool(updates))
        self.local.channels.wait_for_sends()
        seconds, loss = self.clock.stop(), sum(self.losses.values(), self.no_loss).item()
        return RankStepResult(
            loss=loss,
            lost_in="" if math.isfinite(loss) else self.first_lost_task(),
            seconds=seconds,
            passes=tuple(
                task_spans(done, [task for task in own if executed_by_fsdp(task, self.local.task_gathered)], self.clock)
            ),
            items=tuple((task.module, item) for task in own if self.reports_items(task) for item in task.items),
            tokens=tokens,
            memory=self.memory.end(),
            sent_bytes=sent_by_kind(done) | (self.tables.sent() if self.tables else {}),
            clipped=clipped,
            features=sum((kept.take_counts() for kept in self.features.values()), NO_FEATURES),
            table_seconds=self.tables.seconds if self.tables else 0.0,
            waited_s=loaded.waited_s,
            loading_s=loading_s,
        )

    def prepare(self, tasks: Sequence[Task], own: Sequence[Task], loaded: LoadedStep) -> None:
        """Creates batches and buffers of a step, and resets gradients and stages."""
        counts = self.local.target_counts(task for task in tasks if task.phase == "F")  # of all ranks
        self.weights = self.local.loss_weights(counts)
        self.active = {task.module for task in tasks if task.phase == "F" and task.items}
        forwards = [task for task in own if task.phase == "F"]
        self.flights.clear()  # of the previous step: frees their memory for this one
        self.flights = {
            self.key(task): MicroBatchInFlight(
                self.local.loaders[task.module].batch(
                    task, self.worker.device, self.weights, loaded.contents.get(task.id)
                )
            )
            for task in forwards
        }
        for flight in self.flights.values():
            flight.batch.auxiliary.scale = 1 / max(1, sum(counts.values()))
        for task in own:
            if task.phase in ("F", "B", "I"):
                self.flight(task).add_pass(task, self.mover)
        self.edges.begin_step(self.local.followed, tasks, self.flights)
        self.compared.begin_step(tasks, self.flights)
        if self.tables:
            self.tables.load(tasks, [self.flight(task) for task in forwards])
        buffer = lambda recv: empty_activations(self.local.stage(recv), self.flight(recv).tokens)  # noqa: E731
        self.order = shared_order(
            self.worker.rank, tasks, self.message_pairs, self.synchronised, self.local.task_gathered
        )
        self.transfers.expect(tasks, buffer, self.edges.receives, self.order)
        self.no_loss = torch.zeros((), dtype=torch.float64, device=self.worker.device)
        self.losses: dict[str, torch.Tensor] = {}
        for optimizer in self.optimizers.values():
            optimizer.zero_grad()
        for stage in self.local.all_stages:
            stage.begin_step()
        self.memory.begin()

    def first_lost_task(self) -> str:
        """The first task of this step whose loss is not finite; the last one with a loss if only their sum is."""
        return next((task for task, loss in self.losses.items() if not loss.isfinite()), [*self.losses][-1])

    def message_pairs(self, send: Task) -> Iterable[RankPair]:
        """Sender and receiver of each message of a send."""
        return self.edges.pairs(send) if is_between_modules(send) else zip(send.ranks, send.peers, strict=True)

    def key(self, task: Task) -> InFlightKey:
        return in_flight_key(task, self.local.stage(task).layers[0])

    def flight(self, task: Task) -> MicroBatchInFlight:
        return self.flights[self.key(task)]

    def reports_items(self, task: Task) -> bool:
        """Whether this rank reports the items of the task as processed: one rank does for each group."""
        return task.phase == "F" and self.local.has_last_layer(task) and task.ranks[0] == self.worker.rank

    def run(self, task: Task) -> ExecutedTask:
        """Executes one task, with marks before and after it."""
        self.worker.begin_task(task.id, self.number, self.places[task.id])
        calls: list[CollectiveCall] = []
        self.clock.calls = calls
        with record_function(f"task:{task.id}"):
            start = self.clock.mark()
            for source in self.order.shared.get(task.id, ()):
                self.local.channels.begin_with(source)
            self.handlers[task.phase](task)
            return ExecutedTask(task, start, self.clock.mark(), calls, self.meter.take_measured())

    def clip(self, norm: GradientNorm) -> GradientClipping:
        """Clips gradients. That is no task of the plan: its all-reduce is in the record of none."""
        self.worker.begin_task("norm of gradients", self.number, max(self.places.values(), default=0))
        self.clock.calls = []
        clipped = norm.clip_gradients()
        self.meter.take_measured()
        return clipped

    def forward(self, task: Task) -> None:
        stage, flight = self.local.stage(task), self.flight(task)
        if self.local.flows[task.module].passes_on:
            flight.require_input_gradients()
        if flight.input is None and flight.output is None and task.layers[0]:  # an idle rank: no message came
            flight.input = empty_activations(stage, 0).requires_grad_()
        x = flight.input if flight.output is None else flight.output
        kept = self.features.get(task.module)
        found = kept.read(task, flight.batch) if kept else None
        if found is None:
            with flight.saving_for_backward():
                flight.output = stage.network(flight.batch, x, task.layers)
            if kept:
                kept.write(task, flight.batch, flight.output)
        else:
            flight.output = found
        if not self.local.flows[task.module].passes_on:
            flight.free_features()
        loss = self.no_loss + flight.batch.auxiliary.total(task.layers)
        if stage.task_gathered and task.layers[-1] == stage.layers[-1]:
            stage.end_forward()
        if self.local.computes_loss(task):
            flight.output = flight.output / self.weights.total
            loss = loss + flight.output.detach()
        self.losses[task.id] = loss

    def backward(self, task: Task) -> None:
        """Runs a whole backward (B), or its input gradients only (I)."""
        flight = self.flight(task)
        assert flight.output is not None, "its forward comes first"
        if flight.gradient is None and flight.output.dim():  # an idle rank: no gradient came
            flight.gradient = torch.zeros_like(flight.output)
        with self.local.stage(task).backward(whole=task.phase == "B"):
            torch.autograd.backward(flight.output, flight.gradient)
        flight.free_activations()
        if not self.local.flows[task.module].passes_on:
            flight.free_inputs()

    def backward_of_weights(self, task: Task) -> None:
        """Runs the weight gradients (W) of a split backward."""
        store = self.flight(task).deferred
        assert store is not None, "its I comes first"
        store.accumulate()
        self.local.stage(task).accumulate()

    def compare(self, task: Task) -> None:
        """Computes the loss of a task that compares features, and the gradients of those that are here."""
        self.losses[task.id] = self.no_loss + self.compared.compare(task, self.worker.device)

    def send(self, task: Task) -> None:
        """Sends activations to the next stage or gradients to the one before; or outputs to another module, or back."""
        if is_between_modules(task):
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
        if is_between_modules(task):
            self.edges.receive(task)
            return
        flight, x = self.flight(task), self.transfers.receive(task)
        if task.of == "F":
            flight.input = x.requires_grad_(self.local.flows[task.module].through_layers)
        else:
            flight.gradient = x

    def gather(self, task: Task) -> None:
        """Gathers parameters: after the update for the next step, or for the passes of a micro-batch."""
        for stage in self.local.stages_of(task):
            if stage.task_gathered:
                stage.begin_forward()
            else:
                stage.gather()

    def sync(self, task: Task) -> None:
        """Reduces accumulated gradients."""
        for stage in self.local.stages_of(task):
            stage.reduce()

    def update(self, task: Task) -> None:
        """Updates a module, after completing gradients that no sync task reduced. A module without items in this step
        is not updated, as in one process, where it has no gradients: no weight decay, no momentum.
        """
        self.local.complete_gradients(task.module)
        if task.module in self.active:
            self.optimizers[task.module].step()
