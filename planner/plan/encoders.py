"""Encoder work inside another module's order: where the plan places it, or right before what needs it.

A placement names a task (`vit.F1[0-11]` of group v1) and an anchor (`llm.send.F1@2`: the send of micro-batch 1's
activations on stage 2). `before` and `after` mean the order on the ranks that both share; `beside` an anchor on another
stream means: started with it, not waiting for its end. Backwards follow the target's own work.
"""

import re
from dataclasses import replace

from planner.errors import InputError
from planner.plan.model import Edge, Place, Plan, Step, split_key
from planner.plan.task import Phase, Task
from planner.plan.work import Cell, Work, cell_task, cell_tasks, slot_tasks
from planner.specs.base import Layers

REFERENCE = re.compile(
    r"(?P<module>\w+)\.(?:(?P<what>send|recv)\.)?(?P<phase>[FB])(?P<row>\d+)(?:\[(?P<layers>[\d,-]+)\])?(?:@(?P<stage>\d+))?"
)


def add_encoder(plan: Plan, step: Step, edge: Edge, works: dict[str, Work], order: list[Task]) -> list[Task]:
    """The encoder's tasks, put where the plan places them or right before their consumer; backwards at the end."""
    encoder, target = works[edge.source], works[edge.target]
    places = [place for place in step.order.get("place", ()) if isinstance(place, Place)]
    for row in encoder.rows:
        for c in row:
            consumers = [consumer.id for consumer in consuming(plan, edge, target, c)]
            send, recv = edge_transfer(encoder, target, "F", c)
            order = [task.waiting_for(recv.id) if task.id in consumers else task for task in order]
            forward = [*split_forward(encoder, c, places), send, recv]
            order = put_forward(order, forward, places, consumers, works)
            producers = [i.replace("/F/", "/B/") for i in consumers]
            order = order + encoder_backward(encoder, target, c, forward, producers)
    return order


def consuming(plan: Plan, edge: Edge, target: Work, c: Cell) -> list[Task]:
    """The target's first-stage forwards that read the outputs of a cell."""
    feeds = plan.uses.feeds.get(edge.source, {})
    fed = {feeds[item] for item in c.items if item in feeds}
    return [cell_task(target, 0, "F", other) for row in target.rows for other in row if fed & set(other.items)]


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


def split_forward(encoder: Work, c: Cell, places: list[Place]) -> list[Task]:
    """A cell's forward over all stages; a stage is cut where a placement names some of its layers."""
    tasks: list[Task] = []
    for stage in range(len(encoder.stages)):
        for task in slot_like(encoder, stage, "F", c):
            cuts = [
                layers for place in places if (layers := placed_layers(place, task)) and set(layers) < set(task.layers)
            ]
            if task.phase == "F" and cuts:
                first = replace(task, layers=cuts[0])
                rest = replace(task, layers=Layers(i for i in task.layers if i not in set(cuts[0])), after=(first.id,))
                tasks += [first, rest]
            else:
                tasks.append(rewired(task, tasks))
    return tasks


def slot_like(encoder: Work, stage: int, phase: Phase, c: Cell) -> list[Task]:
    """The cell's tasks on a stage; under ZeRO-3 the whole slot, with its gather or sync, at the row's first cell."""
    if encoder.layout.zero < 3:
        return cell_tasks(encoder, stage, phase, c)
    first = encoder.rows[c.row][0]
    return slot_tasks(encoder, stage, phase, c.row) if c == first else []


def rewired(task: Task, forward: list[Task]) -> Task:
    """A task that waits for a forward which was cut in two waits for its last part, the one with the last layer."""
    known = {t.id for t in forward}
    parts = {t.layers[-1]: t.id for t in forward if t.phase == "F"}
    missing = {i: split_key(i.partition("/")[0])[1] for i in task.after if "/F/" in i and i not in known}
    after = tuple(parts.get(layers[-1], i) if (layers := missing.get(i)) else i for i in task.after)
    return replace(task, after=after)


def placed_layers(place: Place, task: Task) -> Layers | None:
    """The layers a placement names, if it speaks of this task."""
    match = REFERENCE.fullmatch(place.do)
    if not match or match["module"] != task.module or match["phase"] != (task.of or task.phase):
        return None
    if int(match["row"]) != task.micro_batch or place.on != task.group:
        return None
    return Layers.from_file(match["layers"]) if match["layers"] else task.layers  # type: ignore[return-value]


def put_forward(
    order: list[Task], forward: list[Task], places: list[Place], consumers: list[str], works: dict[str, Work]
) -> list[Task]:
    """Each task of `forward` at its placement; what has none right before the first consumer (or at the end)."""
    for place in places:
        named = [
            t
            for t in forward
            if t.phase == "F" and (layers := placed_layers(place, t)) and set(t.layers) <= set(layers)
        ]
        if named:
            carried = [t for t in forward if t.phase in ("send", "recv") and placed_layers(place, t)]
            moved = [t for t in forward if t in named or t in carried]
            at = anchor_index(order, place, works)
            order = order[:at] + moved + order[at:]
            forward = [t for t in forward if t not in moved]
    first = next((i for i, task in enumerate(order) if task.id in consumers), len(order))
    return order[:first] + forward + order[first:]


def anchor_index(order: list[Task], place: Place, works: dict[str, Work]) -> int:
    """Where in the order a placement points. Raises InputError when it names no task."""
    match = REFERENCE.fullmatch(place.anchor)
    if match and match["module"] in works:
        phase, of = (match["what"], match["phase"]) if match["what"] else (match["phase"], "")
        stages = works[match["module"]].stages
        at_stage = stages if match["stage"] is None else stages[int(match["stage"]) : int(match["stage"]) + 1]
        for i, task in enumerate(order):
            named = (task.module, task.phase, task.of, task.micro_batch) == (
                match["module"],
                phase,
                of,
                int(match["row"]),
            )
            if named and task.layers in at_stage:
                return i if place.before else i + 1
    raise InputError(
        f"the placement names no task: `{place.anchor}`", where="steps.order.place", fix="write it like llm.F0@0"
    )


def encoder_backward(encoder: Work, target: Work, c: Cell, forward: list[Task], producers: list[str]) -> list[Task]:
    """Gradients come back from the target, then the encoder's backward, last stage first."""
    send, recv = edge_transfer(encoder, target, "B", c)
    tasks = [send.waiting_for(*producers), recv]
    for stage in reversed(range(len(encoder.stages))):
        for task in slot_like(encoder, stage, "B", c):
            last = stage == len(encoder.stages) - 1 and task.phase == "B"
            tasks.append(rewired(task.waiting_for(recv.id) if last else task, forward))
    return tasks
