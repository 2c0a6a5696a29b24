"""Encoder work inside another module's order: where the plan places it, or right before what needs it.

A placement names a task (`vit.F1[0-11]` of group v1) and an anchor (`llm.send.F1@2`: the send of micro-batch 1's
activations on stage 2). `before` and `after` mean the order on the ranks that both share; `beside` an anchor on another
stream means: started with it, not waiting for its end. Backwards follow the target's own work.
"""

import re
from collections import defaultdict
from dataclasses import replace
from itertools import groupby

from planner.errors import InputError
from planner.plan.line import Line
from planner.plan.model import Edge, Place, Plan, Step, split_key
from planner.plan.task import Phase, Task
from planner.plan.work import Cell, Work, cell_task, cell_tasks, slot_tasks
from planner.specs.base import Layers

MOVED = re.compile(r"(?P<module>[^.]+)\.F(?P<row>[0-9]{1,9})(?:\[(?P<layers>[0-9,-]+)\])?")
ANCHOR = re.compile(
    r"(?P<module>[^.]+)\.(?:(?P<what>send|recv)\.)?(?P<phase>[FBIW])(?P<row>[0-9]{1,9})(?:@(?P<stage>[0-9]{1,9}))?"
)


def add_encoder(plan: Plan, step: Step, edge: Edge, works: dict[str, Work], order: list[Task]) -> list[Task]:
    """The encoder's tasks, put where the plan places them or right before their consumer; backwards at the end."""
    encoder, target = works[edge.source], works[edge.target]
    asked, reading, line = places_by_cell(step, encoder), Reading(plan, edge, target, order), Line(order)
    for row in encoder.rows:
        for unit in units(encoder, row):
            places = places_of_unit(asked, unit, target)
            consumers = {c: reading.consumers(c) for c in unit if c.items}
            met = {c: reading.meeting(fed) for c, fed in consumers.items()}
            forward = split_forward(encoder, unit, places)
            whole = forward if places else []
            for c, held_up in met.items():
                send, recv = edge_transfer(encoder, target, "F", c)
                forward += [rewired(send, whole), recv]
                line.wait(held_up, recv.id)
            put_forward(line, forward, places, {i for of_cell in met.values() for i in of_cell}, works)
            returned = {c: [returning(i, reading.cut_in_two) for i in fed] for c, fed in consumers.items()}
            line.append(encoder_backward(encoder, target, unit, whole, returned))
    return line.tasks()


def places_of(step: Step) -> list[Place]:
    return [place for place in step.order.get("place", ()) if isinstance(place, Place)]


Asked = dict[tuple[str, int], list[tuple[int, Place]]]  # group and micro-batch → placements, numbered


def places_by_cell(step: Step, encoder: Work) -> Asked:
    """Of one encoder."""
    found: Asked = defaultdict(list)
    for number, place in enumerate(places_of(step)):
        match = MOVED.fullmatch(place.do)
        if match and match["module"] == encoder.module:
            found[place.on, int(match["row"])].append((number, place))
    return found


def places_of_unit(asked: Asked, unit: tuple[Cell, ...], target: Work) -> list[Place]:
    """In the plan's order."""
    names = [(name, c.row) for c in unit for name in (c.group, f"{c.group}>{target.module}")]
    found = {number: place for name in names if name in asked for number, place in asked[name]}
    return [found[number] for number in sorted(found)]


def units(encoder: Work, row: tuple[Cell, ...]) -> list[tuple[Cell, ...]]:
    """Cells whose tasks stay together: the whole row where all ranks meet in it, as in ZeRO-3's one gather and sync."""
    return [row] if encoder.meets and row else [(c,) for c in row]


class Reading:
    """The target's first-stage forwards that read the outputs of cells."""

    def __init__(self, plan: Plan, edge: Edge, target: Work, order: list[Task]) -> None:
        self.target, self.feeds = target, plan.uses.feeds.get(edge.source, {})
        cells = [c for row in target.rows for c in row]
        self.ids = [cell_task(target, 0, "F", c).id for c in cells]
        self.readers: dict[int, list[int]] = defaultdict(list)  # item → cells that have it
        for number, c in enumerate(cells):
            for item in dict.fromkeys(c.items):
                self.readers[item].append(number)
        self.row_of = {task.id: task.micro_batch for task in order if task.module == target.module}
        self.met: dict[int | None, list[str]] = defaultdict(list)  # micro-batch → gather and passes on the first stage
        for task in order:
            if (task.module, task.layers) == (target.module, target.stages[0]) and task.phase in ("gather", "F"):
                self.met[task.micro_batch].append(task.id)
        self.cut_in_two = {task.id for task in order if task.phase == "I"}

    def consumers(self, c: Cell) -> list[str]:
        fed = {self.feeds[item] for item in c.items if item in self.feeds}
        return [self.ids[number] for number in sorted({number for item in fed for number in self.readers[item]})]

    def meeting(self, consumers: list[str]) -> set[str]:
        """Consumers; and where all ranks of the target's stage meet in a micro-batch, its gather and its passes: none
        of them ends before a consumer has what it reads.
        """
        if not self.target.meets:
            return set(consumers)
        rows = {self.row_of[id] for id in consumers if id in self.row_of}
        return {id for row in rows for id in self.met[row]}


def returning(forward: str, cut_in_two: set[str]) -> str:
    """The target's task that brings the gradient of a forward's inputs: a whole backward, or the first part of one."""
    first = forward.replace("/F/", "/I/")
    return first if first in cut_in_two else forward.replace("/F/", "/B/")


def edge_transfer(encoder: Work, target: Work, of: Phase, c: Cell) -> tuple[Task, Task]:
    """Outputs from the encoder's last stage to the target's first, or their gradients back."""
    last = len(encoder.stages) - 1
    near = cell_task(encoder, last, of, c)
    far = target.stage_ranks(0, target.layout.ranks)
    name = f"{c.group}>{target.module}"
    send_ranks, recv_ranks = (near.ranks, far) if of == "F" else (far, near.ranks)
    after = (near.id,) if of == "F" else ()
    send = replace(near, phase="send", of=of, group=name, ranks=send_ranks, peers=recv_ranks, after=after)
    recv = replace(near, phase="recv", of=of, group=name, ranks=recv_ranks, peers=send_ranks, after=(send.id,))
    return send, recv


def split_forward(encoder: Work, unit: tuple[Cell, ...], places: list[Place]) -> list[Task]:
    """A unit's forward over all stages; a stage is cut where a placement names some of its layers."""
    tasks: list[Task] = []
    for stage in range(len(encoder.stages)):
        for task in unit_tasks(encoder, stage, "F", unit):
            named = [set(layers) for place in places if (layers := placed_layers(place, task))]
            tasks += cut(rewired(task, tasks if places else []), named if task.phase == "F" else [])
    return tasks


def cut(task: Task, named: list[set[int]]) -> list[Task]:
    """A task in runs of layers that are named by the same placements, each waiting for the one before it."""
    runs = [Layers(run) for _, run in groupby(task.layers, lambda layer: [layer in layers for layers in named])]
    parts = [replace(task, layers=runs[0])]
    for run in runs[1:]:
        parts.append(replace(task, layers=run, after=(parts[-1].id,)))
    return parts


def unit_tasks(encoder: Work, stage: int, phase: Phase, unit: tuple[Cell, ...]) -> list[Task]:
    """The unit's tasks on a stage; under ZeRO-3 with the row's gather or sync."""
    if encoder.meets:
        return slot_tasks(encoder, stage, phase, unit[0].row)
    return [task for c in unit for task in cell_tasks(encoder, stage, phase, c)]


def rewired(task: Task, forward: list[Task]) -> Task:
    """A task that waits for a forward which was cut in two waits for its last part, the one with the last layer.
    `forward`: of a unit with placements; others are not cut.
    """
    if not forward:
        return task
    known = {t.id for t in forward}
    parts = {t.layers[-1]: t.id for t in forward if t.phase == "F"}
    missing = {i: split_key(i.partition("/")[0])[1] for i in task.after if "/F/" in i and i not in known}
    after = tuple(parts.get(layers[-1], i) if (layers := missing.get(i)) else i for i in task.after)
    return replace(task, after=after)


def placed_layers(place: Place, task: Task) -> Layers | None:
    """The layers a placement names, if it speaks of this task."""
    match = MOVED.fullmatch(place.do)
    if not match or match["module"] != task.module or (task.of or task.phase) != "F":
        return None
    if int(match["row"]) != task.micro_batch or place.on != task.group:
        return None
    return split_key(place.do)[1] if match["layers"] else task.layers


def put_forward(
    line: Line, forward: list[Task], places: list[Place], consumers: set[str], works: dict[str, Work]
) -> None:
    """Each task of `forward` at its placement, with what it waits for; the rest behind, right before a consumer."""
    ids: set[str] = set()
    for place in places:
        moved = needed(forward, {task.id for task in forward if placed(place, task)})
        if moved:
            if place.anchor.startswith(f"{moved[0].module}."):  # which may have been put there
                line.settle()
            at = anchor_index(line, place, works)
            (line.put if place.before else line.put_behind)(moved, at)
            ids |= {task.id for task in moved}
            forward = [task for task in forward if task.id not in ids]
    line.put_late(forward, consumers, ids)


def placed(place: Place, task: Task) -> bool:
    """Does a placement name this task, all of it?"""
    return set(task.layers) <= set(placed_layers(place, task) or ())


def needed(forward: list[Task], ids: set[str]) -> list[Task]:
    """The tasks called `ids` and all of `forward` that they wait for; each is behind what it waits for there."""
    kept = []
    for task in reversed(forward):
        if task.id in ids:
            kept.append(task)
            ids = ids | set(task.after)
    return kept[::-1]


def anchor_index(line: Line, place: Place, works: dict[str, Work]) -> int:
    """Where in the order a placement points: where all ranks of a module meet in a micro-batch, not between their
    tasks. Raises InputError when it names no task.
    """
    match, found = ANCHOR.fullmatch(place.anchor), []
    if match and match["module"] in works:
        phase, of = (match["what"], match["phase"]) if match["what"] else (match["phase"], "")
        stages = works[match["module"]].stages
        at_stage = stages if match["stage"] is None else stages[int(match["stage"]) : int(match["stage"]) + 1]
        named = line.named.get((match["module"], phase, of, int(match["row"])), ())
        found = [at for at in named if line.order[at].layers in at_stage]
    if not found or not match:
        raise no_task(place.anchor, "llm.F0@0")
    if place.before or not works[match["module"]].meets:
        return found[0] if place.before else found[0] + 1
    return 1 + max(at for at in found if line.order[at].layers == line.order[found[0]].layers)


def check_places(plan: Plan, step: Step, order: list[Task]) -> None:
    """Raises InputError when a placement moves nothing: only encoders' forwards are placed."""
    encoders = {edge.source for edge in plan.edges}
    of_group: dict[tuple[str, int | None], list[Task]] = defaultdict(list)
    for task in order if places_of(step) else ():
        if task.module in encoders:
            of_group[task.group, task.micro_batch].append(task)
    for place in places_of(step):
        match = MOVED.fullmatch(place.do)
        candidates = of_group.get((place.on, int(match["row"])), ()) if match else ()
        if not any(placed(place, task) for task in candidates):
            raise no_task(f"{place.do} on {place.on}", "vit.F0[0-11], on a group that works on micro-batch 0")


def no_task(name: str, example: str) -> InputError:
    return InputError(
        f"the placement names no task: `{name}`", where="steps.order.place", fix=f"write it like {example}"
    )


def encoder_backward(
    encoder: Work, target: Work, unit: tuple[Cell, ...], forward: list[Task], returned: dict[Cell, list[str]]
) -> list[Task]:
    """Gradients come back from the target once it has `returned` them, then the unit's backward, last stage first."""
    tasks: list[Task] = []
    received: dict[str, str] = {}  # group → the recv of its gradients
    for c, awaited in returned.items():
        send, recv = edge_transfer(encoder, target, "B", c)
        tasks += [send.waiting_for(*awaited), recv]
        received[c.group] = recv.id
    for stage in reversed(range(len(encoder.stages))):
        for task in unit_tasks(encoder, stage, "B", unit):
            last = stage == len(encoder.stages) - 1 and task.phase == "B" and task.group in received
            tasks.append(rewired(task.waiting_for(received[task.group]) if last else task, forward))
    return tasks
