"""What somebody else's trainer needs of a plan: whom it works with, on what, and in which order. No torch is loaded.

    followed = follow("plan.yaml")
    made = {ranks: new_group(ranks) for ranks in followed.groups()}       # every rank makes every group, in this order
    for task in followed.tasks(rank):
        if task.phase == "F":
            share = followed.batch(rank, task)                            # whose tokens, and which of them are mine

Ranks count from 0 over the whole job, layers and items are as the plan names them, tokens from 0 within an item. What
these functions give stays as it is through all releases that read `planner.plan/1`; docs/following.md tells more.
"""

from dataclasses import dataclass
from pathlib import Path

from planner import files
from planner.errors import InputError
from planner.plan.catalogue import catalogue
from planner.plan.expand import expand
from planner.plan.feeding import fed_tokens
from planner.plan.legal import require_legal
from planner.plan.mesh import coordinates, expert_coordinates, expert_groups_over, expert_mesh, groups_over
from planner.plan.model import Plan, Split
from planner.plan.reshard import crossing, crossings, on_edge
from planner.plan.shares import partners, runs_on, tokens_on
from planner.plan.task import Task
from planner.plan.work import module_work
from planner.specs.base import Layers, Ranks
from planner.specs.items import Document


@dataclass(frozen=True, slots=True)
class Along:
    """A rank in one dim of a mesh."""

    index: int  # its place, from 0
    ranks: Ranks  # that differ from it in this dim only, itself among them, in the order of their places


@dataclass(frozen=True, slots=True)
class Place:
    """A rank in the meshes of a module. A dim that is not named has size 1."""

    mesh: dict[str, Along]  # tp, cp, dp, replica, pp
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
    lengths: tuple[int, ...]  # tokens of each document, which attends to itself alone: an item, or each of its parts
    ranks: Ranks  # that share these items out among each other, this one with them; a rank of tp has its own
    split: Split  # how: heads within sub-groups of consecutive ranks, tokens around rings of these
    tokens: tuple[Tokens, ...]  # of this rank, in the order in which it has them; the same on all ranks of tp
    rows: tuple[Tokens, ...]  # those whose activations it holds between layers: its part of `tokens` under tp


@dataclass(frozen=True, slots=True)
class Sent:
    """Consecutive outputs of one encoder item on their way to one rank; their gradients come back."""

    reader: str  # id of the forward that reads them
    source: int  # the rank that has them
    target: int  # the rank that reads them, which may be the same
    item: int  # of the encoder
    first: int  # output of that item
    last: int  # the one after
    at: int  # row of the outputs on the source in which the first of them lies
    to: int  # row of what the target has of the reader's `rows` for which it stands


class Followed:
    """A legal plan, rank by rank."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    def tasks(self, rank: int, step: int = 0) -> tuple[Task, ...]:
        """What a rank does in a step, in order: ranks that keep to it never wait for each other in a circle.

        Raises InputError when there is no such rank or step.
        """
        require("rank", rank, self.plan.size)
        return tuple(task for task in everyones(self.plan, step) if rank in task.ranks)

    def groups(self) -> tuple[Ranks, ...]:
        """All groups of several ranks, rising, each once: every rank makes all of them in this order, also those that
        it is not in, as `torch.distributed.new_group` asks. The whole world may be among them.
        """
        return tuple(sorted(ranks for ranks in catalogue(self.plan) if len(ranks) > 1))

    def layers(self, module: str, rank: int) -> tuple[Layers, ...]:
        """The chunks of a module's layers on a rank; none where it has nothing of the module."""
        require("rank", rank, self.plan.size)
        return tuple(module_work(self.plan, self.plan.steps[0], known(self.plan, module)).chunks(rank))

    def mesh(self, module: str, rank: int, layer: int = 0) -> Place:
        """Experts are those of a layer: they may lie otherwise in some.

        Raises InputError where the rank has nothing of the module.
        """
        layout = self.plan.layouts[known(self.plan, module)]
        if rank not in layout.ranks:
            message = f"rank {rank} has nothing of `{module}`"
            raise InputError(message, where="rank", fix=f"its ranks are {layout.ranks}")
        layout = layout.at(layer)
        place, of_experts = coordinates(layout, rank), expert_coordinates(layout, rank)
        mesh = {dim: Along(index, groups_over(layout, (dim,))[rank]) for dim, index in place.items()}
        experts = {
            dim: Along(of_experts[dim], expert_groups_over(layout, (dim,))[rank])
            for dim in (expert_mesh(layout) if layout.ep * layout.etp > 1 else ())
        }
        return Place(mesh, experts)

    def batch(self, rank: int, task: Task) -> Share:
        """Of a pass, or of a transfer within a module, that this rank executes. One without items is an idle rank's: it
        takes part in the collectives of its stage, and has nothing else to do.
        """
        if on_edge(task):
            raise InputError(f"{task.id} is between two modules", where="task", fix="ask for its routes")
        spec, layout = self.plan.uses.models[known(self.plan, task.module)], self.plan.layouts[task.module]
        if rank not in task.ranks:
            fix = f"its ranks are {task.ranks}"
            raise InputError(f"rank {rank} does not execute {task.id}", where="rank", fix=fix)
        return Share(
            items=task.items,
            sizes=task.sizes,
            lengths=task.lengths,
            ranks=partners(layout, task.ranks, rank),
            split=task.split,
            tokens=tuple(within(task.documents[at], *span) for at, *span in tokens_on(spec, layout, task, rank)),
            rows=tuple(Tokens(run.item, run.first, run.last) for run in runs_on(spec, layout, task, rank)),
        )

    def routes(self, task: Task, step: int = 0) -> tuple[Sent, ...]:
        """What a send or a recv between modules carries, over all ranks: rows of outputs, or on the way back of their
        gradients. A row that several ranks read gets the sum of theirs.
        """
        if not on_edge(task):
            raise InputError(f"{task.id} is not between two modules", where="task", fix="ask for its batch")
        sent = crossings(self.plan, everyones(self.plan, step))
        found = (carried for send, carried in sent if crossing(send) == crossing(task))
        return tuple(Sent(reader.id, *route) for carried in found for reader, route in carried)

    def targets(self, module: str, step: int = 0) -> int:
        """Tokens of a module with a target, of all ranks in a step: what a sum of losses is divided by. Those that
        encoders make have none. Raises InputError where the module feeds another, and so has no loss.
        """
        last = self.plan.uses.models[known(self.plan, module)].layers - 1
        if any(edge.source == module for edge in self.plan.edges):
            message = f"`{module}` feeds another module, and has no loss"
            raise InputError(message, where="module", fix="ask for the one that reads its outputs")
        made = fed_tokens(self.plan)
        return sum(
            size - made.get((module, item), 0)
            for task in everyones(self.plan, step)
            if (task.module, task.phase) == (module, "F") and task.layers[-1] == last
            for item, size in zip(task.items, task.sizes, strict=True)
        )


def follow(path: str | Path) -> Followed:
    """A plan file. Raises InputError when it cannot be read, or is no legal plan."""
    plan = files.read(path, Plan)
    require_legal(plan, str(path))
    return Followed(plan)


def everyones(plan: Plan, step: int) -> tuple[Task, ...]:
    """The tasks of all ranks."""
    require("step", step, len(plan.steps))
    return tuple(expand(plan, step))


def within(document: Document, first: int, last: int) -> Tokens:
    """Tokens of a document, as those of its item."""
    return Tokens(document.item, document.begin + first, document.begin + last)


def require(what: str, number: int, count: int) -> None:
    if not 0 <= number < count:
        raise InputError(f"there is no {what} {number}", where=what, fix=f"0 to {count - 1}")


def known(plan: Plan, module: str) -> str:
    """Its name, if it has a layout."""
    if module not in plan.layouts:
        fix = f"one of {', '.join(plan.layouts)}"
        raise InputError(f"the plan has no module `{module}`", where="module", fix=fix)
    return module
