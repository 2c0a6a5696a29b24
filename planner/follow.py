"""What somebody else's trainer needs of a plan: whom it works with, on what, and in which order. No torch is loaded.

    followed = follow("plan.yaml")
    made = {ranks: new_group(ranks) for ranks in followed.groups()}       # every rank makes every group, in this order
    for task in followed.tasks(rank):
        if task.phase == "F":
            share = followed.batch(rank, task)                            # whose tokens, and which of them are mine

Ranks count from 0 over the whole job, layers and items are as the plan names them, tokens from 0 within an item. What
these functions give stays as it is through all releases that read `planner.plan/1`; docs/following.md tells more.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from planner import files
from planner.errors import InputError
from planner.plan.catalogue import catalogue, sharing
from planner.plan.expand import expand
from planner.plan.feeding import merged_tokens
from planner.plan.legal import require_legal
from planner.plan.mesh import coordinates, expert_coordinates, expert_groups_over, expert_mesh, groups_over
from planner.plan.model import Layout, Plan
from planner.plan.shares import runs_on
from planner.plan.task import Split, Task
from planner.plan.work import module_work
from planner.specs.base import Layers, Ranks
from planner.specs.dealing import dealt


@dataclass(frozen=True, slots=True)
class Along:
    """A rank in one dim of a mesh."""

    index: int  # its place, from 0
    ranks: Ranks  # that differ from it in this dim only, itself among them, in the order of their places


@dataclass(frozen=True, slots=True)
class Place:
    """A rank in the meshes of a module. A dim that is not named has size 1."""

    mesh: dict[str, Along]  # replica, dp, pp, tp
    experts: dict[str, Along]  # of one stage: edp (replicas of experts), ep, etp; empty where there are none


@dataclass(frozen=True, slots=True)
class Tokens:
    """Consecutive tokens of one item."""

    item: int
    first: int
    last: int  # the one after


@dataclass(frozen=True, slots=True)
class Share:
    """What a rank has of the packed items of a task."""

    items: tuple[int, ...]  # of the group, in the order in which they are packed
    sizes: tuple[int, ...]  # tokens of each
    ranks: Ranks  # that share these items out among each other, this one with them; a rank of tp has its own
    split: Split  # how: heads within sub-groups of consecutive ranks, tokens around rings of these
    tokens: tuple[Tokens, ...]  # of this rank, in the order in which it has them; the same on all ranks of tp
    rows: tuple[Tokens, ...]  # those whose activations it holds between layers: its part of `tokens` under tp


class Followed:
    """A legal plan, rank by rank."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    def tasks(self, rank: int, step: int = 0) -> tuple[Task, ...]:
        """What a rank does in a step, in order: ranks that keep to it never wait for each other in a circle.

        Raises InputError when there is no such rank or step.
        """
        for what, number, count in (("rank", rank, self.plan.size), ("step", step, len(self.plan.steps))):
            if not 0 <= number < count:
                raise InputError(f"there is no {what} {number}", where=what, fix=f"0 to {count - 1}")
        return tuple(task for task in expand(self.plan, step) if rank in task.ranks)

    def groups(self) -> tuple[Ranks, ...]:
        """All groups of several ranks, rising, each once: every rank makes all of them in this order, also those that
        it is not in, as `torch.distributed.new_group` asks. The whole world may be among them.
        """
        return tuple(sorted(ranks for ranks in catalogue(self.plan) if len(ranks) > 1))

    def layers(self, module: str, rank: int) -> tuple[Layers, ...]:
        """The chunks of a module's layers on a rank; none where it has nothing of the module."""
        layout = self.layout(module)
        work = module_work(self.plan, self.plan.steps[0], module)
        held = (layers for number, layers in enumerate(work.stages) if rank in work.stage_ranks(number, layout.ranks))
        return tuple(held)

    def mesh(self, module: str, rank: int) -> Place:
        """Raises InputError where the rank has nothing of the module."""
        layout = self.layout(module)
        if rank not in layout.ranks:
            message = f"rank {rank} has nothing of `{module}`"
            raise InputError(message, where="rank", fix=f"its ranks are {layout.ranks}")
        place, of_experts = coordinates(layout, rank), expert_coordinates(layout, rank)
        mesh = {dim: Along(index, groups_over(layout, (dim,))[rank]) for dim, index in place.items()}
        experts = {
            dim: Along(of_experts[dim], expert_groups_over(layout, (dim,))[rank])
            for dim in (expert_mesh(layout) if layout.experts else ())
        }
        return Place(mesh, experts)

    def batch(self, rank: int, task: Task) -> Share:
        """Of a forward or a backward that this rank executes. One without items is an idle rank's: it takes part in the
        collectives of its stage, and has nothing else to do.
        """
        layout, unit = self.layout(task.module), merged_tokens(self.plan.uses.models[task.module])
        if rank not in task.ranks:
            fix = f"its ranks are {task.ranks}"
            raise InputError(f"rank {rank} does not execute {task.id}", where="rank", fix=fix)
        ranks = sharing(layout, task.ranks, rank)
        spans = dealt(task.sizes, task.split, ranks.index(rank), unit)
        rows = runs_on(self.plan.uses.models[task.module], layout, task, rank)
        return Share(
            items=task.items,
            sizes=task.sizes,
            ranks=ranks,
            split=task.split,
            tokens=tuple(named(spans, task.items)),
            rows=tuple(Tokens(run.item, run.first, run.last) for run in rows),
        )

    def targets(self, module: str, step: int = 0) -> int:
        """Tokens of a module that all ranks work on in a step: what a sum of losses is divided by."""
        last = self.plan.uses.models[module].layers - 1
        return sum(
            task.tokens
            for task in expand(self.plan, step)
            if (task.module, task.phase) == (module, "F") and task.layers[-1] == last
        )

    def layout(self, module: str) -> Layout:
        if module not in self.plan.layouts:
            fix = f"one of {', '.join(self.plan.layouts)}"
            raise InputError(f"the plan has no module `{module}`", where="module", fix=fix)
        return self.plan.layouts[module]


def follow(path: str | Path) -> Followed:
    """A plan file. Raises InputError when it cannot be read, or is no legal plan."""
    plan = files.read(path, Plan)
    require_legal(plan, str(path))
    return Followed(plan)


def named(spans: Sequence[tuple[int, int, int]], items: Sequence[int]) -> Iterator[Tokens]:
    return (Tokens(items[document], first, last) for document, first, last in spans)
