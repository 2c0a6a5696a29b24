"""Work of a module that feeds others, inside their order: where the plan places it, else forwards right before what
needs them, and backwards behind all else. Gradients of outputs are the sum over all that read them, so a backward waits
for every one of these.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby

from planner.plan.line import Line
from planner.plan.model import Plan, Step, split_key
from planner.plan.places import Placement, Placements, Unit, put
from planner.plan.reading import Reading
from planner.plan.task import Phase, Task
from planner.plan.work import Cell, Work, cell_tasks, slot_tasks
from planner.specs.base import Layers


def add_encoder(plan: Plan, step: Step, encoder: Work, works: Mapping[str, Work], order: list[Task]) -> list[Task]:
    """Its tasks in the order of what it feeds: all forwards, then all backwards."""
    edges = [edge for edge in plan.edges if edge.source == encoder.module]
    readings = [Reading(plan, edge, works[edge.target], order) for edge in edges]
    placements, line = Placements(step, encoder, [edge.target for edge in edges]), Line(order)
    forwards: dict[Unit, list[Task]] = {}
    units = [
        Unit(cells, tuple(read for reading in readings for c in cells if (read := reading.of(c))))
        for cells in together(encoder)
    ]
    for unit in placements.in_turn(units, forward=True):
        placed = placements.of(unit, forward=True)
        forwards[unit] = encoder_forward(encoder, unit, placed)
        for read in unit.reads:
            line.wait(read.held_up, read.transfer(encoder, "F")[1].id)
        rest = put(line, forwards[unit], placed, works)
        there = {task.id for task in forwards[unit]} - {task.id for task in rest}
        line.put_late(rest, {i for read in unit.reads for i in read.held_up}, there)
        forwards[unit] = forwards[unit] if placed else []
    in_two = placements.in_two
    for unit in placements.in_turn(units, forward=False):
        backward = encoder_backward(encoder, unit, in_two)
        backward = [rewired(task, forwards[unit]) for task in backward]
        line.append(put(line, backward, placements.of(unit, forward=False), works))
    return line.tasks()


def together(encoder: Work) -> list[tuple[Cell, ...]]:
    """Cells whose tasks stay together: the whole row where all ranks meet in it, as in ZeRO-3's one gather and sync."""
    return [cells for row in encoder.rows if row for cells in ([row] if encoder.meets else [(c,) for c in row])]


def encoder_forward(encoder: Work, unit: Unit, placed: Sequence[Placement]) -> list[Task]:
    """A unit's forward over all stages, cut where a placement names some layers of one; then what is read is sent."""
    tasks: list[Task] = []
    for stage in range(len(encoder.stages)):
        for task in unit_tasks(encoder, stage, "F", unit):
            named = [layers for each in placed if each.moved.phase == "F" and (layers := each.layers(task))]
            tasks += cut(rewired(task, tasks if placed else []), named if task.phase == "F" else [])
    whole = tasks if placed else []
    transfers = [read.transfer(encoder, "F") for read in unit.reads]
    return tasks + [task for send, recv in transfers for task in (rewired(send, whole), recv)]


def encoder_backward(encoder: Work, unit: Unit, in_two: Mapping[tuple[int, int], Phase]) -> list[Task]:
    """Gradients come back from all that read, then the unit's backward, last stage first; where it is cut in two, the
    gradients of weights at the end.
    """
    tasks: list[Task] = []
    weights: list[Task] = []
    received: dict[str, list[str]] = {}  # group → the recvs of its gradients
    for read in unit.reads:
        send, recv = read.transfer(encoder, "B")
        tasks += [send, recv]
        received.setdefault(read.cell.group, []).append(recv.id)
    for stage in reversed(range(len(encoder.stages))):
        halved = (unit.row, stage) in in_two
        for task in unit_tasks(encoder, stage, "I" if halved else "B", unit):
            last = stage == len(encoder.stages) - 1 and task.phase in ("B", "I")
            tasks.append(task.waiting_for(*received.get(task.group, ())) if last else task)
        weights += unit_tasks(encoder, stage, "W", unit) if halved else []
    return tasks + weights


def unit_tasks(encoder: Work, stage: int, phase: Phase, unit: Unit) -> list[Task]:
    """The unit's tasks on a stage; under ZeRO-3 with the row's gather or sync."""
    if encoder.meets:
        return slot_tasks(encoder, stage, phase, unit.row)
    return [task for c in unit.cells for task in cell_tasks(encoder, stage, phase, c)]


def cut(task: Task, named: list[set[int]]) -> list[Task]:
    """A task in runs of layers that are named by the same placements, each waiting for the one before it."""
    runs = [Layers(run) for _, run in groupby(task.layers, lambda layer: [layer in layers for layers in named])]
    parts = [replace(task, layers=runs[0])]
    for run in runs[1:]:
        parts.append(replace(task, layers=run, after=(parts[-1].id,)))
    return parts


def rewired(task: Task, forward: list[Task]) -> Task:
    """A task that waits for a forward which was cut in two waits for its last part, the one with the last layer.
    `forward`: of a unit with placements; others are not cut.
    """
    if not forward:
        return task
    known = {t.id for t in forward}
    last = {(t.group, t.layers[-1]): t.id for t in forward if t.phase == "F"}
    missing = {i: split_key(i.partition("/")[0])[1] for i in task.after if "/F/" in i and i not in known}
    after = tuple(
        last.get((i.rpartition("/")[2], layers[-1]), i) if (layers := missing.get(i)) else i for i in task.after
    )
    return replace(task, after=after)
