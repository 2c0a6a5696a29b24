"""The tasks of one module in one step, stage by stage, in the order of its schedule, with what each waits for.

A stage is a chunk of consecutive layers; chunk c lies on pipeline rank c mod pp, and may share it with others.

A slot of the schedule (`F3` on stage 1) becomes: receive the activations, gather the parameters (ZeRO-3), compute on
every group that has items in that micro-batch, send the result on; backward likewise with gradients, then their
reduction. Where backward is in two, I receives and sends, as the gradient of the inputs is all that other stages need,
and takes the gathered parameters; W needs neither, and the reduction follows it. Where all ranks of a stage meet in
every micro-batch (plan/meets.py), idle ones get a task without tokens, so that collectives match on every rank.
"""

from collections.abc import Container, Sequence
from dataclasses import dataclass, field

from planner.plan.meets import meets, reduces
from planner.plan.mesh import stage_ranks
from planner.plan.model import Assignment, Group, Layout, Plan, Step, assignments
from planner.plan.schedules import CHUNKED, ONE_BY_ONE, Slot
from planner.plan.schedules.explicit import slots_of
from planner.plan.task import Phase, Task
from planner.specs.base import Layers, Ranks
from planner.specs.items import Size, lengths_of


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
    parts: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Work:
    """One module in one step: its stages, each a chunk of layers, and the cells of each row."""

    module: str
    layout: Layout
    stages: tuple[Layers, ...]
    rows: tuple[tuple[Cell, ...], ...]
    meets: bool = False  # whether all ranks of a stage take part in every micro-batch
    reduced: bool = False  # whether gradients are summed over ranks of a stage
    # What `stage_ranks` has found, by which object was asked of: to hash many ranks takes longer than all else.
    held: dict[tuple[int, int], tuple[Ranks, Ranks]] = field(default_factory=dict)

    def stage_ranks(self, stage: int, within: Ranks) -> Ranks:
        """The ranks of `within` that hold a stage."""
        key = stage % self.pipeline, id(within)
        if key not in self.held:  # which keeps the object, and with it its number
            self.held[key] = within, Ranks(sorted(set(stage_ranks(self.layout, key[0])) & set(within)))
        return self.held[key][1]

    @property
    def pipeline(self) -> int:
        """Ranks that a micro-batch goes through; each has as many of the stages as any other."""
        return self.layout.pp

    def slots(self, order: str | Sequence[str] | None) -> list[list[Slot]]:
        """Of each pipeline rank, in a step's order, else in the layout's, else in the usual one. Raises InputError."""
        chunks = len(self.stages) // self.pipeline
        usual = self.layout.schedule or (CHUNKED if chunks > 1 else ONE_BY_ONE)
        return slots_of(usual if order is None else order, self.pipeline, len(self.rows), chunks)

    def chunks(self, rank: int) -> list[Layers]:
        """Those on one rank, in the order of the layers; none where it has nothing of the module."""
        return [layers for n, layers in enumerate(self.stages) if rank in self.stage_ranks(n, self.layout.ranks)]

    def rank_layers(self, place: int) -> Layers:
        """All layers on one of them."""
        return Layers(layer for stage in self.stages[place :: self.pipeline] for layer in stage)


def module_work(plan: Plan, step: Step, module: str, others: Container[int] = ()) -> Work:
    """What `step` assigns of `module`. `others`: ranks whose cells are left out, since those of another group tell
    what they do (plan/alike.py).
    """
    layout, spec = plan.layouts[module], plan.uses.models[module]
    stages = layout.stages or (Layers(range(spec.layers)),)
    rows, met = [], meets(layout, spec)
    for number, row in enumerate(step.micro_batches):
        placed = [(a, plan.groups[a.group]) for a in assignments(plan, row) if a.module == module]
        cells = [
            cell(number, *each, layout, plan.uses.items[module]) for each in placed if each[1].ranks[0] not in others
        ]
        idle = idle_cells(number, layout, [group.ranks for _, group in placed]) if met else []
        rows.append((*cells, *(c for c in idle if c.ranks[0] not in others)))
    return Work(module, layout, stages, tuple(rows), met, reduces(layout, spec))


def cell(row: int, assignment: Assignment, group: Group, layout: Layout, sizes: dict[int, Size]) -> Cell:
    items, split, offload = assignment.items, group.split_in(layout), assignment.offload_in(layout)
    parts = tuple(lengths_of(sizes[i]) for i in items)
    return Cell(
        row,
        assignment.group,
        group.ranks,
        items,
        tuple(map(sum, parts)),
        split.degree,
        assignment.share,
        split.ring,
        offload if any(offload) else (),
        parts if any(len(of_item) > 1 for of_item in parts) else (),
    )


def idle_cells(row: int, layout: Layout, held: list[Ranks]) -> list[Cell]:
    """Where all ranks meet in every micro-batch: a cell without items for each rank that has none."""
    if not held:
        return []
    busy = {rank for ranks in held for rank in ranks}
    idle = [rank for rank in layout.ranks if rank not in busy]
    return [Cell(row, f"idle{rank}", Ranks((rank,)), (), (), 1, 1.0) for rank in idle]


def stage_tasks(work: Work, slots: Sequence[Sequence[Slot]]) -> list[list[Task]]:
    """For each rank of the pipeline its tasks in the order of its slots."""
    return [
        [task for phase, row, chunk in of_rank for task in slot_tasks(work, chunk * work.pipeline + place, phase, row)]
        for place, of_rank in enumerate(slots)
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
    if sharded and phase != "W":
        opening = tasks[0].id if tasks else collective(work, stage, "gather", row).id
        computed = [task.waiting_for(opening) if task.phase == phase else task for task in computed]
    tasks += computed
    if sharded and phase in ("B", "W"):
        tasks.append(collective(work, stage, "sync", row).waiting_for(*(t.id for t in computed if t.phase == phase)))
    return tasks


def collective(work: Work, stage: int, phase: Phase, row: int | None) -> Task:
    """A gather or a sync over every rank of a stage; once a step (no row), of all chunks on these ranks together."""
    layers = work.stages[stage] if row is not None else work.rank_layers(stage)
    return Task(work.module, layers, phase, row, "all", work.stage_ranks(stage, work.layout.ranks))


def cell_tasks(work: Work, stage: int, phase: Phase, c: Cell) -> list[Task]:
    """Receive, compute, send: one cell on one stage in one direction. A cell without items has nothing to send."""
    task = cell_task(work, stage, phase, c)
    if not task.ranks:  # an idle rank is on one stage only
        return []
    if phase == "W":
        return [task.waiting_for(cell_task(work, stage, "I", c).id)]
    previous, following = (stage - 1, stage + 1) if phase == "F" else (stage + 1, stage - 1)
    tasks = []
    if c.items and 0 <= previous < len(work.stages):
        tasks.append(received(work, previous, stage, phase, c))
        task = task.waiting_for(tasks[-1].id)
    if phase != "F":
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
        parts=c.parts,
    )


def sent(work: Work, source: int, target: int, phase: Phase, c: Cell) -> Task:
    """The send on one stage to its neighbour."""
    near = cell_task(work, source, phase, c)
    return near.transferring("send", carried(phase), work.stage_ranks(target, c.ranks), (near.id,))


def received(work: Work, source: int, target: int, phase: Phase, c: Cell) -> Task:
    """The matching recv. It does not matter whether backward is in two on the other side."""
    far, near, of = cell_task(work, target, phase, c), work.stage_ranks(source, c.ranks), carried(phase)
    send = Task(work.module, work.stages[source], "send", c.row, c.group, near, of=of)
    return far.transferring("recv", of, near, (send.id,))


def carried(phase: Phase) -> Phase:
    """What a send of this pass carries: activations, or their gradients."""
    return "F" if phase == "F" else "B"
