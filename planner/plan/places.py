"""Placements: which tasks they name, and where in an order.

`before` and `after` mean the order on the ranks that both share; `beside` an anchor on another stream means: started
with it, not waiting for its end. A pass that is placed takes along the transfers of its group on its stage, and all
that it waits for; by ZeRO-3 a backward takes along those of other groups, with which it meets, and the sync behind it.
Layers cut a forward; I or W cuts in two the backward of a micro-batch, on the stages it names.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

from planner.errors import InputError
from planner.plan.line import Line
from planner.plan.meets import BACKWARD
from planner.plan.model import Place, Plan, Step
from planner.plan.reading import Read
from planner.plan.reference import TaskRef
from planner.plan.task import Phase, Task
from planner.plan.work import Cell, Work
from planner.specs.base import Layers

WHERE = "steps.order.place"


@dataclass(frozen=True, slots=True, eq=False)
class Unit:
    """Cells of a micro-batch whose tasks stay together, and what is read of them."""

    cells: tuple[Cell, ...]
    reads: tuple[Read, ...]

    @property
    def row(self) -> int:
        return self.cells[0].row


class Placement:
    """One of a step, with what it says of the work of its module."""

    def __init__(self, number: int, place: Place, work: Work) -> None:
        self.number, self.place, self.work = number, place, work
        self.moved, self.anchor = place.moved, place.anchor

    @property
    def forward(self) -> bool:
        """Whether it is of the way forward."""
        return self.moved.phase in ("F", "gather") or self.moved.of == "F"

    def layers(self, task: Task) -> set[int]:
        """Of a task that it speaks of, those that it names."""
        ref = self.moved
        if (ref.module, ref.micro_batch) != (task.module, task.micro_batch) or not self.takes(task):
            return set()
        return set(task.layers) & within(ref, self.work.stages, task)

    def takes(self, task: Task) -> bool:
        """A pass, the transfers of its group; and a backward in which all ranks meet, which is one with those of other
        groups, what it reduces.
        """
        phase, of = self.moved.phase, self.moved.of
        if self.work.meets and phase in BACKWARD and (task.phase == phase or (task.phase == "sync" and phase != "I")):
            return True
        along = task.of and task.of == {"F": "F", "B": "B", "I": "B"}.get(phase)
        return self.moved.group == task.group and ((phase, of) == (task.phase, task.of) or bool(along))

    def names(self, task: Task) -> bool:
        """All of it."""
        return len(self.layers(task)) == len(task.layers)


def within(ref: TaskRef, stages: Sequence[Layers], task: Task) -> set[int]:
    """Layers that a reference does not leave out."""
    found = set(task.layers if ref.layers is None else ref.layers)
    if ref.stage is not None:
        found &= {*stages[ref.stage]} if ref.stage < len(stages) else set()
    return found


class Placements:
    """Of one module in a step. `targets`: what it feeds."""

    def __init__(self, step: Step, work: Work, targets: Sequence[str] = ()) -> None:
        self.work, self.targets = work, targets
        self.by_cell: dict[tuple[str, int | None], list[Placement]] = defaultdict(list)
        for number, place in enumerate(step.places):
            if place.moved.module == work.module:
                self.by_cell[place.on, place.moved.micro_batch].append(Placement(number, place, work))

    def of(self, unit: Unit, forward: bool) -> list[Placement]:
        """Those of its cells, one way, in the plan's order."""
        if not self.by_cell:
            return []
        groups = [name for c in unit.cells for name in (c.group, *(f"{c.group}>{target}" for target in self.targets))]
        names = [*groups, "all"] if self.work.meets else groups
        found = [each for name in names for each in self.by_cell.get((name, unit.row), ())]
        return sorted((each for each in found if each.forward is forward), key=lambda each: each.number)

    def in_turn(self, units: Sequence[Unit], forward: bool) -> list[Unit]:
        """As they come; but last, and from the last on, those placed around a later micro-batch of their own module."""
        late = [unit for unit in units if any(self.looks_ahead(each) for each in self.of(unit, forward))]
        return [unit for unit in units if unit not in late] + late[::-1]

    def looks_ahead(self, placement: Placement) -> bool:
        moved, anchor = placement.moved, placement.anchor
        return moved.module == anchor.module and (anchor.micro_batch or 0) > (moved.micro_batch or 0)

    @property
    def in_two(self) -> dict[tuple[int, int], Phase]:
        """By micro-batch and stage, where the backward is cut: the pass that completes its gradients."""
        refs = [each.moved for of_cell in self.by_cell.values() for each in of_cell]
        return {
            (ref.micro_batch or 0, number): "W"
            for ref in refs
            for number, layers in enumerate(self.work.stages)
            if ref.phase in ("I", "W") and ref.stage in (None, number) and {*(ref.layers or layers)} >= {*layers}
        }


def put(line: Line, tasks: list[Task], placements: Sequence[Placement], works: Mapping[str, Work]) -> list[Task]:
    """Into the order what placements name, with what it waits for; the rest of `tasks`, which none of them names."""
    for placement in placements:
        moved = needed(tasks, {task.id for task in tasks if placement.names(task)})
        if not moved:
            continue
        if placement.anchor.module == moved[0].module:  # which may have been put there
            line.settle()
        ids, at = {task.id for task in moved}, anchored(line, placement.place, works)
        (line.put if placement.place.before else line.put_behind)(moved, at)
        tasks = [task for task in tasks if task.id not in ids]
    return tasks


def needed(tasks: list[Task], ids: set[str]) -> list[Task]:
    """The tasks called `ids` and all of `tasks` that they wait for; each is behind what it waits for there."""
    kept = []
    for task in reversed(tasks):
        if task.id in ids:
            kept.append(task)
            ids = ids | set(task.after)
    return kept[::-1]


def anchored(line: Line, place: Place, works: Mapping[str, Work]) -> int:
    """Where in the order a placement points: in front of the first task that its anchor names, or behind the last, and
    where all ranks meet in a micro-batch, behind the last of all groups. Raises InputError when it names none.
    """
    ref = place.anchor
    named = line.named.get((ref.module, ref.phase, ref.of, ref.micro_batch), ())
    work = works.get(ref.module)
    anywhere = place.before or not (work and work.meets)
    found = [at for at in named if work and speaks_of(ref, line.order[at], work, bool(anywhere))]
    if not found:
        there = [line.order[at] for at in named]
        raise nothing(str(ref), there, f"another task of `{ref.module}`, such as {ref.module}.F0@0")
    return found[0] if place.before else found[-1] + 1


def speaks_of(ref: TaskRef, task: Task, work: Work, one_group: bool) -> bool:
    """What is done once a step is of all chunks on its ranks."""
    if one_group and ref.group not in ("", task.group):
        return False
    if ref.micro_batch is None and ref.stage is not None:
        return ref.stage < len(work.stages) and set(work.stages[ref.stage]) <= set(task.layers)
    return set(task.layers) <= within(ref, work.stages, task)


def check_named(step: Step, works: Mapping[str, Work], order: Sequence[Task]) -> None:
    """Raises InputError when a placement names no task."""
    of_cell: dict[tuple[str, str, int | None], list[Task]] = defaultdict(list)
    for task in order if step.places else ():
        of_cell[task.module, task.group, task.micro_batch].append(task)
    for number, place in enumerate(step.places):
        moved = place.moved
        there = of_cell.get((moved.module, place.on, moved.micro_batch), [])
        placement = Placement(number, place, works[moved.module])
        if not any(placement.names(task) for task in there):
            alike = [task for task in there if task.phase == moved.phase] or there
            raise nothing(f"{place.do} on {place.on}", alike, f"a group that works on micro-batch {moved.micro_batch}")


def nothing(name: str, there: Sequence[Task], other: str) -> InputError:
    """`there`, and `other`: what could be meant."""
    near = dict.fromkeys(str(TaskRef(t.module, t.phase, t.micro_batch, t.of, t.layers)) for t in there[:4])
    fix = f"name {', '.join(near)}, or {other}" if near else f"name {other}"
    return InputError(f"the placement names no task: `{name}`", where=WHERE, fix=fix)


def adding(plan: Plan, step: Step) -> list[str]:
    """Modules that feed others, each behind those that it feeds, and behind those around whose tasks it is placed.
    Raises InputError when there is no such order.
    """
    behind: dict[str, list[str]] = {edge.source: [] for edge in plan.edges}
    for edge in plan.edges:
        behind[edge.source] += [edge.target] if edge.target in behind else []
    for place in step.places:
        moved, anchor = place.moved.module, place.anchor.module
        if moved in behind and anchor in behind and moved != anchor:
            behind[moved].append(anchor)
    try:
        return [*TopologicalSorter(behind).static_order()]
    except CycleError as error:
        around = " around ".join(f"`{name}`" for name in reversed(error.args[1]))
        message = f"tasks are placed around others whose own place follows from them: {around}"
        fix = "place one of them around a module that feeds none"
        raise InputError(message, where=WHERE, fix=fix) from None
