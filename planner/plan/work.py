"""The tasks of one module in one step, stage by stage, in the order of its schedule, with what each waits for.

A stage is a chunk of consecutive layers; chunk c lies on pipeline rank c mod pp, and may share it with others.

A slot of the schedule (`F3` on stage 1) becomes: receive the activations, gather the parameters (ZeRO-3), compute on
every group that has items in that micro-batch, send the result on; backward likewise with gradients, then their
reduction. Idle ranks get a task without tokens, so that collectives match on every rank.
"""

from dataclasses import dataclass, field, replace

from planner.plan.model import Assignment, Group, Layout, Piece, Plan, Step, assignments
from planner.plan.schedules import CHUNKED, schedule
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
    """One module in one step: its stages, each a chunk of layers, and the cells of each row."""

    module: str
    layout: Layout
    stages: tuple[Layers, ...]
    rows: tuple[tuple[Cell, ...], ...]
    held: dict[tuple[int, Ranks], Ranks] = field(default_factory=dict)  # what `stage_ranks` has found

    def stage_ranks(self, stage: int, within: Ranks) -> Ranks:
        """The ranks of `within` that hold a stage."""
        key = stage % self.pipeline, within
        if key not in self.held:
            self.held[key] = Ranks(sorted(set(stage_ranks(self.layout, key[0])) & set(within)))
        return self.held[key]

    @property
    def pipeline(self) -> int:
        """Ranks that a micro-batch goes through; each has as many of the stages as any other."""
        return self.layout.mesh.get("pp", 1)

    def rank_layers(self, place: int) -> Layers:
        """All layers on one of them."""
        return Layers(layer for stage in self.stages[place :: self.pipeline] for layer in stage)


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
    """For each rank of the pipeline its tasks in the generator's order."""
    count = work.pipeline
    return [
        [
            task
            for phase, row, chunk in slots
            for task in slot_tasks(work, chunk * count + place, "F" if phase == "F" else "B", row)
        ]
        for place, slots in enumerate(schedule(generator, count, len(work.rows), len(work.stages) // count))
    ]


def usual_schedule(work: Work) -> str:
    """Where the plan does not say."""
    return CHUNKED if len(work.stages) > work.pipeline else "1f1b"


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
    """A gather or a sync over every rank of a stage; once a step (no row), of all chunks on these ranks together."""
    layers = work.stages[stage] if row is not None else work.rank_layers(stage)
    return Task(work.module, layers, phase, row, "all", work.stage_ranks(stage, work.layout.ranks))


def cell_tasks(work: Work, stage: int, phase: Phase, c: Cell) -> list[Task]:
    """Receive, compute, send: one cell on one stage in one direction. A cell without items has nothing to send."""
    previous, following = (stage - 1, stage + 1) if phase == "F" else (stage + 1, stage - 1)
    task = cell_task(work, stage, phase, c)
    if not task.ranks:  # an idle rank is on one stage only
        return []
    tasks = []
    if c.items and 0 <= previous < len(work.stages):
        tasks.append(received(work, previous, stage, phase, c))
        task = task.waiting_for(tasks[-1].id)
    if phase == "B":
        task = task.waiting_for(cell_task(work, stage, "F", c).id)
    tasks.append(task)
    if c.items and 0 <= following < len(work.stages):
        tasks.append(sent(work, stage, following, phase, c))
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


def sent(work: Work, source: int, target: int, of: Phase, c: Cell) -> Task:
    """The send on one stage to its neighbour."""
    near = cell_task(work, source, of, c)
    return replace(near, phase="send", of=of, peers=work.stage_ranks(target, c.ranks), after=(near.id,))


def received(work: Work, source: int, target: int, of: Phase, c: Cell) -> Task:
    """The matching recv."""
    far, near = cell_task(work, target, of, c), work.stage_ranks(source, c.ranks)
    send = Task(work.module, work.stages[source], "send", c.row, c.group, near, of=of)
    return replace(far, phase="recv", of=of, peers=near, after=(send.id,))
