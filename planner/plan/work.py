"""The tasks of one module in one step, stage by stage, in the order of its schedule, with what each waits for.

A slot of the schedule (`F3` on stage 1) becomes: receive the activations, gather the parameters (ZeRO-3), compute on
every group that has items in that micro-batch, send the result on; backward likewise with gradients, then their
reduction. Idle ranks get a task without tokens, so that collectives match on every rank.
"""

from dataclasses import dataclass, replace

from planner.plan.model import Assignment, Group, Layout, Piece, Plan, Step, assignments
from planner.plan.schedules import schedule
from planner.plan.task import Phase, Task
from planner.specs.base import Layers, Ranks


@dataclass(frozen=True, slots=True)
class Cell:
    """What one group has of one module in one micro-batch."""

    row: int
    group: str
    ranks: Ranks
    items: tuple[int, ...]
    sizes: tuple[int, ...]
    degree: int
    share: float
    ring: int = 1
    offload: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Work:
    """One module in one step: its stages, and the cells of each row."""

    module: str
    layout: Layout
    stages: tuple[Layers, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def stage_ranks(self, stage: int, within: Ranks) -> Ranks:
        """The ranks of `within` that hold a stage."""
        return Ranks(sorted(set(stage_ranks(self.layout, stage)) & set(within)))


def module_work(plan: Plan, step: Step, module: str) -> Work:
    """What `step` assigns of `module`."""
    layout = plan.layouts[module]
    stages = layout.stages or (Layers(range(plan.uses.models[module].layers)),)
    rows = []
    for number, row in enumerate(step.micro_batches):
        cells = []
        for assignment in assignments(plan, row):
            if assignment.module == module:
                cells.append(cell(number, assignment, plan.groups[assignment.group], plan.uses.items[module]))
        rows.append((*cells, *idle_cells(number, layout, cells)))
    return Work(module, layout, stages, tuple(rows))


def cell(row: int, assignment: Assignment, group: Group, sizes: dict[int, int]) -> Cell:
    items = assignment.items
    offload = tuple(entry.offload if isinstance(entry, Piece) else 0.0 for entry in assignment.entries)
    return Cell(
        row,
        assignment.group,
        group.ranks,
        items,
        tuple(sizes[i] for i in items),
        group.degree,
        group.share,
        group.split.get("ring", 1),
        offload if any(offload) else (),
    )


def idle_cells(row: int, layout: Layout, cells: list[Cell]) -> list[Cell]:
    """Under ZeRO-3 every rank takes part in every gather: a cell without items for each rank that has none."""
    if layout.zero < 3 or not cells:
        return []
    busy = {rank for c in cells for rank in c.ranks}
    idle = [rank for rank in layout.ranks if rank not in busy]
    return [Cell(row, f"idle{rank}", Ranks((rank,)), (), (), 1, 1.0) for rank in idle]


def stage_ranks(layout: Layout, stage: int) -> Ranks:
    """Ranks at `stage` of the mesh's `pp` dim; all of them when there is none. First dim slowest."""
    if "pp" not in layout.mesh:
        return layout.ranks
    stride = 1
    for dim in reversed(layout.mesh):
        if dim == "pp":
            break
        stride *= layout.mesh[dim]
    return Ranks(rank for i, rank in enumerate(layout.ranks) if i // stride % layout.mesh["pp"] == stage)


def stage_tasks(work: Work, generator: str) -> list[list[Task]]:
    """For each stage its tasks in the generator's order."""
    slots = schedule(generator, len(work.stages), len(work.rows))
    return [
        [task for phase, row in slots[stage] for task in slot_tasks(work, stage, "F" if phase == "F" else "B", row)]
        for stage in range(len(work.stages))
    ]


def slot_tasks(work: Work, stage: int, phase: Phase, row: int) -> list[Task]:
    """Everything that happens on `stage` for one slot of the schedule."""
    tasks: list[Task] = []
    if not work.rows[row]:  # nobody works on the module in this micro-batch: nothing to gather for
        return tasks
    sharded = work.layout.zero == 3
    if sharded and phase == "F":
        tasks.append(collective(work, stage, "gather", row))
    computed = [task for c in work.rows[row] for task in cell_tasks(work, stage, phase, c)]
    if sharded:
        opening = tasks[0].id if tasks else collective(work, stage, "gather", row).id
        computed = [task.waiting_for(opening) if task.phase == phase else task for task in computed]
    tasks += computed
    if sharded and phase == "B":
        tasks.append(collective(work, stage, "sync", row).waiting_for(*(t.id for t in computed if t.phase == "B")))
    return tasks


def collective(work: Work, stage: int, phase: Phase, row: int | None) -> Task:
    """A gather or a sync over every rank of a stage."""
    return Task(work.module, work.stages[stage], phase, row, "all", work.stage_ranks(stage, work.layout.ranks))


def cell_tasks(work: Work, stage: int, phase: Phase, c: Cell) -> list[Task]:
    """Receive, compute, send: one cell on one stage in one direction. A cell without items has nothing to send."""
    previous, following = (stage - 1, stage + 1) if phase == "F" else (stage + 1, stage - 1)
    task = cell_task(work, stage, phase, c)
    if not task.ranks:  # an idle rank is on one stage only
        return []
    tasks = []
    if c.items and 0 <= previous < len(work.stages):
        incoming = transfer(work, previous, stage, phase, c)
        tasks.append(incoming[1])
        task = task.waiting_for(incoming[1].id)
    if phase == "B":
        task = task.waiting_for(cell_task(work, stage, "F", c).id)
    tasks.append(task)
    if c.items and 0 <= following < len(work.stages):
        tasks.append(transfer(work, stage, following, phase, c)[0])
    return tasks


def cell_task(work: Work, stage: int, phase: Phase, c: Cell) -> Task:
    return Task(
        work.module,
        work.stages[stage],
        phase,
        c.row,
        c.group,
        work.stage_ranks(stage, c.ranks),
        c.sizes,
        c.items,
        c.degree,
        c.share,
        c.ring,
        c.offload,
    )


def transfer(work: Work, source: int, target: int, of: Phase, c: Cell) -> tuple[Task, Task]:
    """The send on one stage and the matching recv on its neighbour."""
    near, far = cell_task(work, source, of, c), cell_task(work, target, of, c)
    send = replace(near, phase="send", of=of, peers=far.ranks, after=(near.id,))
    recv = replace(far, phase="recv", of=of, peers=near.ranks, after=(send.id,))
    return send, recv
