"""Placements: which tasks they name, and at which position of an order these are inserted.

`before` and `after` are meant of ranks that both tasks share; `beside` a task means started with it, without waiting
for its end: a pass beside a pass, or beside an exchange once a step, stands in front of the first that is meant, and
takes its time from their exchanges (costs/side_by_side.py). A pass that is placed takes along the transfers of its
group on its stage, and all that it waits for; under ZeRO-3 a backward takes along those of other groups, with which it
synchronises, and the sync after it. Layers split a forward; I or W splits the backward of a micro-batch in two, on the
stages that the placement names.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

from planner.errors import InputError
from planner.plan.mesh.synchronisation import BACKWARD_PHASES
from planner.plan.plan_file import Plan, Step, TaskPlacement
from planner.plan.task import PASS_PHASES, Phase, Task, TaskRef
from planner.plan.tasks.encoder_reads import EncoderRead
from planner.plan.tasks.module_work import ModuleWork
from planner.plan.tasks.task_inserter import TaskInserter
from planner.plan.tasks.task_table import GroupWork
from planner.specs.base import Layers, Ranks

PLACE_KEY = "steps.order.place"


@dataclass(frozen=True, slots=True, eq=False)
class TaskUnit:
    """Work of groups in one micro-batch whose tasks stay together, and what other modules read of it."""

    places: tuple[int, ...]  # of the encoder
    cells: tuple[GroupWork, ...]
    reads: tuple[EncoderRead, ...]

    @property
    def micro_batch(self) -> int:
        """The micro-batch by number."""
        return self.cells[0].micro_batch or 0

    @property
    def ranks(self) -> set[int]:
        """All ranks that work on it."""
        return {rank for c in self.cells for rank in c.ranks}


class ResolvedPlacement:
    """One placement of a step, resolved against the work of its module."""

    def __init__(self, number: int, place: TaskPlacement, work: ModuleWork) -> None:
        self.number, self.place, self.work = number, place, work
        self.moved, self.anchor = place.moved, place.anchor

    @property
    def in_front(self) -> bool:
        """Whether what is placed stands in front of the first task that is meant, and not behind the last."""
        return bool(self.place.before) or self.place.fills

    @property
    def forward(self) -> bool:
        """Whether it places a forward, a gather, or a transfer of activations."""
        return self.moved.phase in ("F", "gather") or self.moved.of == "F"

    def layers(self, task: Task) -> set[int]:
        """Return the layers of a task that the placement names; none where it does not cover the task."""
        ref = self.moved
        if (ref.module, ref.micro_batch) != (task.module, task.micro_batch) or not self.covers(task):
            return set()
        return set(task.layers) & included_layers(ref, self.work.stages, task)

    def covers(self, task: Task) -> bool:
        """Whether the task moves with the placed one: the pass itself, transfers of its group, and where all ranks
        synchronise, the backwards of all groups and their reduction.
        """
        phase, of = self.moved.phase, self.moved.of
        if (
            self.work.syncs_each_micro_batch
            and phase in BACKWARD_PHASES
            and (task.phase == phase or (task.phase == "sync" and phase != "I"))
        ):
            return True
        along = task.of and task.of == {"F": "F", "B": "B", "I": "B"}.get(phase)
        group = task.group.partition(">")[0] if self.place.fills else task.group  # what fills takes along all it sends
        return self.moved.group in ("", group) and ((phase, of) == (task.phase, task.of) or bool(along))

    def covers_all(self, task: Task) -> bool:
        """Whether the placement names all layers of a task."""
        return len(self.layers(task)) == len(task.layers)


def included_layers(ref: TaskRef, stages: Sequence[Layers], task: Task) -> set[int]:
    """Return the layers of a task that a reference includes."""
    layers = set(task.layers if ref.layers is None else ref.layers)
    if ref.stage is not None:
        layers &= {*stages[ref.stage]} if ref.stage < len(stages) else set()
    return layers


class ModulePlacements:
    """The placements of one module in a step. `targets`: the modules that it feeds."""

    def __init__(self, step: Step, work: ModuleWork, targets: Sequence[str] = ()) -> None:
        self.work, self.targets = work, targets
        self.by_cell: dict[tuple[str, int | None], list[ResolvedPlacement]] = defaultdict(list)
        for number, place in enumerate(step.placements):
            if place.moved.module == work.module:
                self.by_cell[place.on, place.moved.micro_batch].append(ResolvedPlacement(number, place, work))

    def of(self, unit: TaskUnit, forward: bool) -> list[ResolvedPlacement]:
        """Return the placements of a unit's forwards, or of its backwards, in the plan's order."""
        if not self.by_cell:
            return []
        groups = [name for c in unit.cells for name in (c.group, *(f"{c.group}>{target}" for target in self.targets))]
        names = dict.fromkeys(["", *groups, "all"] if self.work.syncs_each_micro_batch else ["", *groups])
        found = [each for name in names for each in self.by_cell.get((name, unit.micro_batch), ())]
        return sorted((each for each in found if each.forward is forward), key=lambda each: each.number)

    def insertion_order(self, units: Sequence[TaskUnit], forward: bool) -> list[TaskUnit]:
        """Return units in the order of insertion: those placed around a later micro-batch of their own module come
        last, in reverse, so that this micro-batch is there before them.
        """
        late = [unit for unit in units if any(self.looks_ahead(each) for each in self.of(unit, forward))]
        return [unit for unit in units if unit not in late] + late[::-1]

    def looks_ahead(self, placement: ResolvedPlacement) -> bool:
        """Whether it is placed around a later micro-batch of its own module."""
        moved, anchor = placement.moved, placement.anchor
        return moved.module == anchor.module and (anchor.micro_batch or 0) > (moved.micro_batch or 0)

    @property
    def split_backwards(self) -> dict[tuple[int, int], Phase]:
        """Micro-batch, stage → the pass that completes its gradients, W, where placements split the backward."""
        refs = [each.moved for of_cell in self.by_cell.values() for each in of_cell]
        return {
            (ref.micro_batch or 0, number): "W"
            for ref in refs
            for number, layers in enumerate(self.work.stages)
            if ref.phase in ("I", "W") and ref.stage in (None, number) and {*(ref.layers or layers)} >= {*layers}
        }


def insert_placed_tasks(
    line: TaskInserter, tasks: list[int], placements: Sequence[ResolvedPlacement], works: Mapping[str, ModuleWork]
) -> list[int]:
    """Insert the tasks that placements name, with those that they wait for; return the tasks that none names."""
    for placement in placements:
        named = [number for number in tasks if placement.covers_all(line.draft.task(number))]
        for together in by_pass(line, named) if placement.place.fills else (named,):
            moved = with_dependencies(line, tasks, {*together})
            if not moved:
                continue
            if placement.anchor.module == placement.work.module:  # whose tasks may have been inserted before
                line.commit()
            position = anchor_position(line, placement, works, line.draft.task(together[0]).ranks)
            (line.insert_before if placement.in_front else line.insert_after)(moved, position)
            if placement.place.fills:
                line.draft.run_beside(together[0])
            tasks = [number for number in tasks if number not in moved]
    return tasks


def with_dependencies(line: TaskInserter, tasks: list[int], named: set[int]) -> list[int]:
    """Return the tasks that are named and all others of `tasks` that they wait for. `tasks` are in a valid order."""
    result, awaited = [], line.draft.awaited_by(tasks)
    for number in reversed(tasks):
        if number in named:
            result.append(number)
            named = named | awaited[number]
    return result[::-1]


def by_pass(line: TaskInserter, numbers: Sequence[int]) -> list[list[int]]:
    """Return a pass on each of its stages, with its transfers behind it; those before it come along anyway."""
    found: list[list[int]] = []
    for number in numbers:
        if line.draft.task(number).phase in PASS_PHASES:
            found.append([number])
        elif found:
            found[-1].append(number)
    return found


def anchor_position(
    line: TaskInserter, placement: ResolvedPlacement, works: Mapping[str, ModuleWork], ranks: Ranks
) -> int:
    """Return the position that a placement points to: that of the first task that its anchor names, or the one after
    the last; where all ranks synchronise in a micro-batch, after the last of all groups. What fills gaps, on `ranks`,
    looks for it there, then on others of a group that has some of these. Raises InputError if it names none.
    """
    ref = placement.anchor
    work = works.get(ref.module)
    of_group = placement.in_front or not (work and work.syncs_each_micro_batch)
    named = [(at, line.table.task(at)) for at in line.positions_named(ref)]
    meant = [(at, task) for at, task in named if work and includes(ref, task, work, bool(of_group))]
    positions = [at for at, _ in meant]
    if placement.place.fills:
        here = [at for at, task in meant if not {*ranks}.isdisjoint(task.ranks)]
        near = [at for at, _ in meant if not {*ranks}.isdisjoint(line.table.works[line.table.work[at]].ranks)]
        positions = here or near or positions
    if not positions:
        candidates = [task for _, task in named]
        raise no_task_error(str(ref), candidates, f"another task of `{ref.module}`, such as {ref.module}.F0@0")
    return positions[0] if placement.in_front else positions[-1] + 1


def includes(ref: TaskRef, task: Task, work: ModuleWork, one_group: bool) -> bool:
    """Whether a reference includes a task. Tasks that run once a step have the layers of all chunks on their ranks."""
    if one_group and ref.group not in ("", task.group):
        return False
    if ref.micro_batch is None and ref.stage is not None:
        return ref.stage < len(work.stages) and set(work.stages[ref.stage]) <= set(task.layers)
    return set(task.layers) <= included_layers(ref, work.stages, task)


def check_placements(step: Step, works: Mapping[str, ModuleWork], order: Sequence[Task]) -> None:
    """Check that each placement names some task of the order. Raises InputError."""
    of_cell: dict[tuple[str, str, int | None], list[Task]] = defaultdict(list)
    for task in order if step.placements else ():
        for group in ("", task.group):
            of_cell[task.module, group, task.micro_batch].append(task)
    for number, place in enumerate(step.placements):
        moved = place.moved
        candidates = of_cell[moved.module, place.on, moved.micro_batch]
        placement = ResolvedPlacement(number, place, works[moved.module])
        if not any(placement.covers_all(task) for task in candidates):
            similar = [task for task in candidates if task.phase == moved.phase] or candidates
            name = f"{place.do} on {place.on}" if place.on else place.do
            raise no_task_error(name, similar, f"a group that works on micro-batch {moved.micro_batch}")


def no_task_error(name: str, candidates: Sequence[Task], other: str) -> InputError:
    """Return the error of a name that matches no task; `candidates` and `other` are what could be meant."""
    near = dict.fromkeys(str(TaskRef(t.module, t.phase, t.micro_batch, t.of, t.layers)) for t in candidates[:4])
    fix = f"name {', '.join(near)}, or {other}" if near else f"name {other}"
    return InputError(f"the placement names no task: `{name}`", where=PLACE_KEY, fix=fix)


def encoder_insertion_order(plan: Plan, step: Step) -> list[str]:
    """Return the encoders in the order of insertion: each after the modules that it feeds, and after those around whose
    tasks it is placed. Raises InputError when there is no such order.
    """
    predecessors: dict[str, list[str]] = {edge.source: [] for edge in plan.edges}
    for edge in plan.edges:
        predecessors[edge.source] += [edge.target] if edge.target in predecessors else []
    for place in step.placements:
        moved, anchor = place.moved.module, place.anchor.module
        if moved in predecessors and anchor in predecessors and moved != anchor:
            predecessors[moved].append(anchor)
    try:
        return [*TopologicalSorter(predecessors).static_order()]
    except CycleError as error:
        around = " around ".join(f"`{name}`" for name in reversed(error.args[1]))
        message = f"tasks are placed around others whose own place follows from them: {around}"
        fix = "place one of them around a module that feeds no other"
        raise InputError(message, where=PLACE_KEY, fix=fix) from None
