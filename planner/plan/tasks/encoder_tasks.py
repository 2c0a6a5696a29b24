"""Inserts the tasks of an encoder into the order of the modules that read it: where the plan places them, else as its
layout says: each forward when it is read, or when an earlier micro-batch is; backwards after everything else, or each
when the last gradient of its outputs is there. Gradients of outputs are summed over all readers: a backward waits for
every one of these.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from planner.plan.plan_file import Plan, Step, parse_module_key
from planner.plan.task import Phase, Task
from planner.plan.tasks.encoder_reads import EdgeReads, EncoderRead
from planner.plan.tasks.module_work import GroupWork, ModuleWork, group_tasks, slot_tasks
from planner.plan.tasks.placements import ModulePlacements, ResolvedPlacement, TaskUnit, insert_placed_tasks
from planner.plan.tasks.readers_order import NominalOrder, NominalTimes
from planner.plan.tasks.task_inserter import TaskInserter
from planner.plan.tokens.encoder_outputs import reading_stages
from planner.specs.base import Layers

LateRecv = tuple[EncoderRead, Task, Task]  # what reads, and the send and recv of its outputs


def insert_encoder_tasks(
    plan: Plan, step: Step, encoder: ModuleWork, works: Mapping[str, ModuleWork], order: list[Task], times: NominalTimes
) -> list[Task]:
    """Return `order`, which is by these times, with the encoder's tasks inserted."""
    edges = [edge for edge in plan.edges if edge.source == encoder.module]
    readings = [
        EdgeReads(plan, edge, works[edge.target], stage, order)
        for edge in edges
        for stage in reading_stages(plan.uses.models[edge.target], plan.layouts[edge.target], edge.by)
    ]
    units = [
        TaskUnit(cells, tuple(read for reading in readings for c in cells if (read := reading.of(c))))
        for cells in task_units(encoder)
    ]
    placements = ModulePlacements(step, encoder, [edge.target for edge in edges])
    insertion = EncoderInsertion(encoder, works, placements, TaskInserter(order), times)
    forwards, late = insertion.insert_forwards(units)
    insertion.insert_backwards(units, forwards)
    insertion.insert_recvs(late)  # behind all that other micro-batches have in front of the same readers
    return insertion.line.resulting_order()


@dataclass(slots=True)
class EncoderInsertion:
    """The tasks of an encoder on their way into an order, `line`. `works`: of all modules."""

    encoder: ModuleWork
    works: Mapping[str, ModuleWork]
    placements: ModulePlacements
    line: TaskInserter
    times: NominalTimes
    known_order: NominalOrder | None = None

    @property
    def order(self) -> NominalOrder:
        """The order with times; it changes where placements are around tasks of the same encoder."""
        if self.known_order is None or self.known_order.order is not self.line.order:
            self.known_order = NominalOrder(self.line.order, self.times)
        return self.known_order

    def insert_forwards(self, units: Sequence[TaskUnit]) -> tuple[dict[TaskUnit, list[Task]], list[LateRecv]]:
        """Insert forwards and sends of outputs. Return, for units with placements, the forward as these cut it; and the
        recvs that are not inserted yet.
        """
        unit_forwards: dict[TaskUnit, list[Task]] = {}
        late: list[LateRecv] = []
        for unit in self.placements.insertion_order(units, forward=True):
            placed = self.placements.of(unit, forward=True)
            tasks = forward_tasks(self.encoder, unit, placed)
            unplaced = insert_placed_tasks(self.line, tasks, placed, self.works)
            if placed:
                placed_ids = {task.id for task in tasks} - {task.id for task in unplaced}
                self.line.insert_late(unplaced, {i for read in unit.reads for i in read.blocked_ids}, placed_ids)
            else:
                first = self.line.first_position(i for read in unit.reads for i in read.before_ids)
                self.line.insert_before(unplaced, self.order.running(unit.ranks, first))
            for read in unit.reads:
                send, recv = read.transfer(self.encoder, "F")
                self.line.add_wait(read.blocked_ids, recv.id)
                if read.stage or not placed:
                    late.append((read, send, recv))
            if self.placements.by_cell:  # which may be around what is received
                self.insert_recvs(late)
                late.clear()
            unit_forwards[unit] = tasks if placed else []
        return unit_forwards, late

    def insert_recvs(self, late: Sequence[LateRecv]) -> None:
        """Insert each recv right before what reads, behind its send."""
        for read, send, recv in late:
            self.line.insert_late([recv], read.blocked_ids, {send.id})

    def insert_backwards(self, units: Sequence[TaskUnit], unit_forwards: Mapping[TaskUnit, list[Task]]) -> None:
        """Insert transfers of gradients, and backwards."""
        for unit in self.placements.insertion_order(units, forward=False):
            placed, forward = self.placements.of(unit, forward=False), unit_forwards[unit]
            tasks = backward_tasks(self.encoder, unit, self.placements.split_backwards)
            unplaced = insert_placed_tasks(self.line, [rewire(task, forward) for task in tasks], placed, self.works)
            gradients = {i for read in unit.reads for i in read.behind_ids}
            if placed or not gradients or self.encoder.layout.backward == "last":
                self.line.insert_at_end(unplaced)
            elif forward:
                self.line.insert_directly_after(unplaced, gradients | {task.id for task in forward})
            else:
                behind = max(self.order.behind(gradients), *self.line.positions_after(gradients))
                self.line.insert_before(unplaced, behind)


def task_units(encoder: ModuleWork) -> list[tuple[GroupWork, ...]]:
    """Return the parts of each micro-batch whose tasks stay together: the whole micro-batch where all ranks synchronise
    in it, as in ZeRO-3's one gather and sync; else each group's work.
    """
    return [
        cells
        for micro_batch in encoder.micro_batches
        if micro_batch
        for cells in ([micro_batch] if encoder.syncs_each_micro_batch else [(c,) for c in micro_batch])
    ]


def forward_tasks(encoder: ModuleWork, unit: TaskUnit, placed: Sequence[ResolvedPlacement]) -> list[Task]:
    """Return a unit's forward over all stages, split where a placement names part of its layers, then the sends, which
    take along the recv of a first stage where something is placed. Else it is received right before it is read: before,
    ranks would wait for outputs of micro-batches that have yet to come to them.
    """
    tasks: list[Task] = []
    for stage in range(len(encoder.stages)):
        for task in unit_tasks(encoder, stage, "F", unit):
            named = [layers for each in placed if each.moved.phase == "F" and (layers := each.layers(task))]
            tasks += split_by_layers(rewire(task, tasks if placed else []), named if task.phase == "F" else [])
    forward = tasks if placed else []
    transfers = [(read.stage, *read.transfer(encoder, "F")) for read in unit.reads]
    sends = [rewire(send, forward) for _, send, _ in transfers]
    return tasks + [
        task
        for (stage, _, recv), send in zip(transfers, sends, strict=True)
        for task in (send, *((recv,) if placed and not stage else ()))
    ]


def backward_tasks(encoder: ModuleWork, unit: TaskUnit, split_backwards: Mapping[tuple[int, int], Phase]) -> list[Task]:
    """Return the transfers of gradients from all readers, then the unit's backward, last stage first. Where it is split
    into I and W, the gradients of weights come last.
    """
    tasks: list[Task] = []
    weights: list[Task] = []
    received: dict[str, list[str]] = {}  # group → ids of the recvs of its gradients
    for read in unit.reads if encoder.has_backward(len(encoder.stages) - 1) else ():
        send, recv = read.transfer(encoder, "B")
        tasks += [send, recv]
        received.setdefault(read.cell.group, []).append(recv.id)
    for stage in reversed(range(len(encoder.stages))):
        in_two = (unit.micro_batch, stage) in split_backwards
        for task in unit_tasks(encoder, stage, "I" if in_two else "B", unit):
            last = stage == len(encoder.stages) - 1 and task.phase in ("B", "I")
            tasks.append(task.with_dependencies(*received.get(task.group, ())) if last else task)
        weights += unit_tasks(encoder, stage, "W", unit) if in_two else []
    return tasks + weights


def unit_tasks(encoder: ModuleWork, stage: int, phase: Phase, unit: TaskUnit) -> list[Task]:
    """Return the unit's tasks on a stage; under ZeRO-3 with the gather or sync of its micro-batch."""
    if encoder.syncs_each_micro_batch:
        return slot_tasks(encoder, stage, phase, unit.micro_batch)
    return [task for c in unit.cells for task in group_tasks(encoder, stage, phase, c)]


def split_by_layers(task: Task, named: list[set[int]]) -> list[Task]:
    """Split a task into runs of layers that are named by the same placements; each waits for the one before it."""
    if not named:
        return [task]
    runs = [Layers(run) for _, run in groupby(task.layers, lambda layer: [layer in layers for layers in named])]
    parts = [task.changed(layers=runs[0])]
    for run in runs[1:]:
        parts.append(task.changed(layers=run, after=(parts[-1].id,)))
    return parts


def rewire(task: Task, forward: list[Task]) -> Task:
    """Replace dependencies on a forward that was split by its last part, the one with the last layer.

    `forward`: the forward of a unit with placements; others are not split.
    """
    if not forward:
        return task
    known = {t.id for t in forward}
    last = {(t.group, t.layers[-1]): t.id for t in forward if t.phase == "F"}
    missing = {i: parse_module_key(i.partition("/")[0])[1] for i in task.after if "/F/" in i and i not in known}
    after = tuple(
        last.get((i.rpartition("/")[2], layers[-1]), i) if (layers := missing.get(i)) else i for i in task.after
    )
    return task.changed(after=after)
