"""Inserts the tasks of an encoder into the order of the modules that read it: where the plan places them, or as its
rules say: each forward when it is read, or when an earlier micro-batch is; backwards after everything else, or each
when the last gradient of its outputs is there. Gradients of outputs are summed over all readers: a backward waits for
every one of these.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from planner.plan.plan_file import Plan, Step
from planner.plan.task import Phase
from planner.plan.tasks.encoder_reads import EdgeReads, EncoderRead
from planner.plan.tasks.module_tasks import BACKWARD, INPUTS, ModuleTasks
from planner.plan.tasks.module_work import ModuleWork
from planner.plan.tasks.placements import ModulePlacements, ResolvedPlacement, TaskUnit, insert_placed_tasks
from planner.plan.tasks.readers_order import NominalOrder, NominalTimes
from planner.plan.tasks.step_draft import StepDraft
from planner.plan.tasks.task_inserter import TaskInserter
from planner.plan.tokens.encoder_outputs import reading_stages
from planner.specs.base import Layers


def insert_encoder_tasks(
    plan: Plan, step: Step, encoder: ModuleTasks, draft: StepDraft, order: list[int], times: NominalTimes
) -> list[int]:
    """Return `order`, which is by these times, with the encoder's tasks inserted; all by number."""
    edges = [edge for edge in plan.edges if edge.source == encoder.work.module]
    line = TaskInserter(draft, order)
    readings = [
        EdgeReads(plan, step, edge, (encoder, draft.modules[edge.target]), stage, line)
        for edge in edges
        for stage in reading_stages(plan.uses.models[edge.target], plan.layouts[edge.target], edge.by)
    ]
    units = [
        TaskUnit(
            tuple(places),
            tuple(encoder.cells[place] for place in places),
            tuple(read for reading in readings for place in places if (read := reading.of(place))),
        )
        for places in unit_places(encoder)
    ]
    works = {name: module.work for name, module in draft.modules.items()}
    placements = ModulePlacements(step, encoder.work, [edge.target for edge in edges])
    at_once = bool(step.rules(encoder.work.module, "B"))
    insertion = EncoderInsertion(encoder, works, placements, line, times, at_once)
    forwards, late = insertion.insert_forwards(units)
    insertion.insert_backwards(units, forwards)
    insertion.insert_recvs(late)  # behind all that other micro-batches have in front of the same readers
    return line.resulting_order()


@dataclass(slots=True)
class EncoderInsertion:
    """The tasks of an encoder on their way into an order, `line`. `works`: of all modules."""

    encoder: ModuleTasks
    works: Mapping[str, ModuleWork]
    placements: ModulePlacements
    line: TaskInserter
    times: NominalTimes
    at_once: bool  # whether backwards run when their gradients are there, and not at the end
    known_order: NominalOrder | None = None

    @property
    def order(self) -> NominalOrder:
        """The order with times; it changes where placements are around tasks of the same encoder."""
        if self.known_order is None or self.known_order.table is not self.line.table:
            self.known_order = NominalOrder(self.line, self.times)
        return self.known_order

    def insert_forwards(self, units: Sequence[TaskUnit]) -> tuple[dict[TaskUnit, list[int]], list[EncoderRead]]:
        """Insert forwards and sends of outputs. Return, for units with placements, the forward as these cut it; and the
        reads whose recvs are not inserted yet.
        """
        unit_forwards: dict[TaskUnit, list[int]] = {}
        late: list[EncoderRead] = []
        for unit in self.placements.insertion_order(units, forward=True):
            placed = self.placements.of(unit, forward=True)
            tasks = self.forward_tasks(unit, placed)
            unplaced = insert_placed_tasks(self.line, tasks, placed, self.works)
            if placed:
                first_readers = {number for read in unit.reads for number in read.blocked}
                self.line.insert_late(unplaced, first_readers, {*tasks} - {*unplaced})
            else:
                first = self.line.first_position(number for read in unit.reads for number in read.before)
                self.line.insert_before(unplaced, self.order.running(unit.ranks, first))
            for read in unit.reads:
                self.line.add_wait(read.blocked, read.outputs[1])
            late += [read for read in unit.reads if read.outputs[1] not in tasks]
            if self.placements.by_cell:  # which may be around what is received
                self.insert_recvs(late)
                late.clear()
            unit_forwards[unit] = tasks if placed else []
        return unit_forwards, late

    def insert_recvs(self, late: Sequence[EncoderRead]) -> None:
        """Insert each recv of outputs right before what reads, behind its send."""
        for read in late:
            send, recv = read.outputs
            self.line.insert_late([recv], read.blocked, {send})

    def insert_backwards(self, units: Sequence[TaskUnit], unit_forwards: Mapping[TaskUnit, list[int]]) -> None:
        """Insert transfers of gradients, and backwards."""
        for unit in self.placements.insertion_order(units, forward=False):
            placed, forward = self.placements.of(unit, forward=False), unit_forwards[unit]
            tasks = self.backward_tasks(unit, self.placements.split_backwards)
            unplaced = insert_placed_tasks(self.line, tasks, placed, self.works)
            gradients = {number for read in unit.reads for number in read.behind}
            if placed or not gradients or not self.at_once:
                self.line.insert_at_end(unplaced)
            elif forward:
                self.line.insert_directly_after(unplaced, gradients | {*forward})
            else:
                behind = max(self.order.behind(gradients), *self.line.positions_after(gradients))
                self.line.insert_first(unplaced, behind)

    def forward_tasks(self, unit: TaskUnit, placed: Sequence[ResolvedPlacement]) -> list[int]:
        """Return a unit's forward over all stages, split where a placement names part of its layers, then the sends,
        which take along the recv of a first stage where something is placed around another task. Else it is received
        right before it is read: before, ranks would wait for outputs of micro-batches that have yet to come to them.
        """
        around = any(not each.place.fills for each in placed)
        tasks: list[int] = []
        for stage in range(len(self.encoder.work.stages)):
            for number in self.unit_tasks(stage, "F", unit):
                tasks += self.split_by_layers(number, placed) if placed else [number]
        for read in unit.reads:
            tasks += read.outputs if around and not read.stage else read.outputs[:1]
        return tasks

    def split_by_layers(self, number: int, placed: Sequence[ResolvedPlacement]) -> list[int]:
        """Split a forward into runs of layers that are named by the same placements."""
        task = self.line.draft.task(number)
        named = [layers for each in placed if each.moved.phase == "F" and (layers := each.layers(task))]
        if task.phase != "F" or not named:
            return [number]
        runs = [Layers(run) for _, run in groupby(task.layers, lambda layer: [layer in layers for layers in named])]
        return self.line.draft.cut(number, runs)

    def backward_tasks(self, unit: TaskUnit, split_backwards: Mapping[tuple[int, int], Phase]) -> list[int]:
        """Return the transfers of gradients from all readers, then the unit's backward, last stage first. Where it is
        split into I and W, the gradients of weights come last.
        """
        tasks: list[int] = []
        weights: list[int] = []
        encoder, last = self.encoder, len(self.encoder.work.stages) - 1
        first = INPUTS if (unit.micro_batch, last) in split_backwards else BACKWARD
        for read in unit.reads if encoder.work.has_backward(last) else ():
            tasks += read.gradients
            self.line.draft.added_waits.append((encoder.number(read.place, last, first), read.gradients[1]))
        for stage in reversed(range(last + 1)):
            in_two = (unit.micro_batch, stage) in split_backwards
            tasks += self.unit_tasks(stage, "I" if in_two else "B", unit)
            weights += self.unit_tasks(stage, "W", unit) if in_two else []
        return tasks + weights

    def unit_tasks(self, stage: int, phase: Phase, unit: TaskUnit) -> list[int]:
        """Return the unit's tasks on a stage; under ZeRO-3 with the gather or sync of its micro-batch."""
        if self.encoder.work.syncs_each_micro_batch:
            return self.encoder.of_slot(stage, phase, unit.micro_batch)
        return [number for place in unit.places for number in self.encoder.of_group(stage, phase, place)]


def unit_places(encoder: ModuleTasks) -> list[range]:
    """Return the parts of each micro-batch whose tasks stay together: the whole micro-batch where all ranks synchronise
    in it, as in ZeRO-3's one gather and sync; else each group's work.
    """
    begins = encoder.begins
    if not encoder.work.syncs_each_micro_batch:
        return [range(place, place + 1) for place in range(begins[-1])]
    return [range(first, last) for first, last in pairwise(begins) if first < last]
