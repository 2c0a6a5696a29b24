"""A plan for your own trainer, without torch: tasks, process groups and tokens of each rank.

    followed = follow("plan.yaml")
    groups = {ranks: new_group(ranks) for ranks in followed.groups()}  # every rank creates every group, in this order
    for task in followed.tasks(rank):
        if task.phase == "F":
            share = followed.batch(rank, task)  # the items, who shares them, and my tokens

Ranks count from 0 over the whole job, layers and items are as in the plan, tokens count from 0 within an item. Names
and meanings of the results are stable in all releases that read `planner.plan/1`; docs/following.md explains them.
"""

from dataclasses import dataclass
from pathlib import Path

from planner import files
from planner.errors import InputError
from planner.plan.group_catalogue import process_groups
from planner.plan.legal.plan_laws import require_legal
from planner.plan.loss_weights import loss_weights
from planner.plan.mesh.rank_mesh import coordinates, expert_coordinates, expert_groups_over, expert_mesh, groups_over
from planner.plan.plan_file import Plan
from planner.plan.task import Task
from planner.plan.tasks.expand import expand
from planner.plan.tasks.module_work import module_work
from planner.plan.tokens.encoder_outputs import fed_tokens
from planner.plan.tokens.resharding import encoder_transfers, is_between_modules, transfer_key
from planner.plan.tokens.token_shards import rank_token_runs, rank_token_spans, sharing_ranks
from planner.specs.base import Layers, Ranks
from planner.specs.sequence_sharding import SequenceSplit
from planner.specs.workload.items import Document


@dataclass(frozen=True, slots=True)
class MeshPosition:
    """The position of a rank along one dim of a mesh."""

    index: int  # from 0
    ranks: Ranks  # that differ from it in this dim only, including itself, by index


@dataclass(frozen=True, slots=True)
class RankPosition:
    """The position of a rank in the meshes of a module. Dims that are missing have size 1."""

    mesh: dict[str, MeshPosition]  # tp, cp, dp, replica, pp
    experts: dict[str, MeshPosition]  # of one stage: edp (replicas of experts), ep, etp; empty without sharded experts


@dataclass(frozen=True, slots=True)
class TokenSpan:
    """Consecutive tokens of one item."""

    item: int
    first: int
    last: int  # the one after


@dataclass(frozen=True, slots=True)
class RankShare:
    """The share of a rank in the packed items of a task."""

    items: tuple[int, ...]  # of the group, in the order in which they are packed
    sizes: tuple[int, ...]  # tokens of each
    lengths: tuple[int, ...]  # tokens of each document, within which attention stays: an item, or each of its parts
    ranks: Ranks  # over which these items are sharded, including this one; of the same tp index
    split: SequenceSplit  # how: by heads within blocks of consecutive ranks, by tokens around rings over these
    tokens: tuple[TokenSpan, ...]  # of this rank, in order; the same on all ranks of a tp group
    rows: tuple[TokenSpan, ...]  # those whose activations it holds between layers: its tp shard of `tokens`


@dataclass(frozen=True, slots=True)
class SentOutputs:
    """Consecutive outputs of one encoder item that are sent to one rank; their gradients are sent back."""

    reader: str  # id of the forward that reads them
    source: int  # the rank that holds them
    target: int  # the rank that reads them, which may be the same
    item: int  # of the encoder
    first: int  # output of that item
    last: int  # the one after
    at: int  # row of the source's outputs that holds the first of them
    to: int  # row of the target's `rows` in the reader that it replaces


class FollowedPlan:
    """A legal plan, to be executed rank by rank."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    def tasks(self, rank: int, step: int = 0) -> tuple[Task, ...]:
        """Return a rank's tasks of a step, in an order in which ranks never deadlock.

        Raises InputError when there is no such rank or step.
        """
        require_index("rank", rank, self.plan.size)
        return tuple(task for task in all_tasks(self.plan, step) if rank in task.ranks)

    def groups(self) -> tuple[Ranks, ...]:
        """Return all groups of several ranks, sorted, each once. Every rank creates all of them in this order, also
        those that it is not in, as `torch.distributed.new_group` requires. One may contain all ranks.
        """
        return tuple(sorted(ranks for ranks in process_groups(self.plan) if len(ranks) > 1))

    def layers(self, module: str, rank: int) -> tuple[Layers, ...]:
        """Return the chunks of a module's layers on a rank; none where it has no layer of the module."""
        require_index("rank", rank, self.plan.size)
        return tuple(module_work(self.plan, self.plan.steps[0], known_module(self.plan, module)).chunks(rank))

    def mesh(self, module: str, rank: int, layer: int = 0) -> RankPosition:
        """Return the position of a rank in a module's meshes; the experts' mesh is that of `layer`, as layers may
        differ.

        Raises InputError where the rank has no layer of the module.
        """
        layout = self.plan.layouts[known_module(self.plan, module)]
        if rank not in layout.ranks:
            message = f"rank {rank} has no layer of `{module}`"
            raise InputError(message, where="rank", fix=f"its ranks are {layout.ranks}")
        layout = layout.at_layer(layer)
        position, expert_position = coordinates(layout, rank), expert_coordinates(layout, rank)
        mesh = {dim: MeshPosition(index, groups_over(layout, (dim,))[rank]) for dim, index in position.items()}
        experts = {
            dim: MeshPosition(expert_position[dim], expert_groups_over(layout, (dim,))[rank])
            for dim in (expert_mesh(layout) if layout.ep * layout.etp > 1 else ())
        }
        return RankPosition(mesh, experts)

    def batch(self, rank: int, task: Task) -> RankShare:
        """Return the rank's share of a pass, or of a transfer within a module, that it executes. A task without items
        is an idle rank's: it takes part in the collectives of its stage only. Raises InputError for any other task.
        """
        if is_between_modules(task):
            raise InputError(f"{task.id} is between two modules", where="task", fix="ask for its routes")
        spec, layout = self.plan.uses.models[known_module(self.plan, task.module)], self.plan.layouts[task.module]
        if rank not in task.ranks:
            fix = f"its ranks are {task.ranks}"
            raise InputError(f"rank {rank} does not execute {task.id}", where="rank", fix=fix)
        return RankShare(
            items=task.items,
            sizes=task.sizes,
            lengths=task.lengths,
            ranks=sharing_ranks(layout, task.ranks, rank),
            split=task.split,
            tokens=tuple(
                item_tokens(task.documents[at], *span) for at, *span in rank_token_spans(spec, layout, task, rank)
            ),
            rows=tuple(TokenSpan(run.item, run.first, run.last) for run in rank_token_runs(spec, layout, task, rank)),
        )

    def routes(self, task: Task, step: int = 0) -> tuple[SentOutputs, ...]:
        """Return what a send or recv between modules carries, over all ranks: rows of outputs, or in backward of their
        gradients, which are summed where several ranks read a row. Raises InputError for any other task.
        """
        if not is_between_modules(task):
            raise InputError(f"{task.id} is not between two modules", where="task", fix="ask for its batch")
        sent = encoder_transfers(self.plan, all_tasks(self.plan, step))
        found = (routes for send, routes in sent if transfer_key(send) == transfer_key(task))
        return tuple(SentOutputs(reader.id, *route) for routes in found for reader, route in routes)

    def targets(self, module: str, step: int = 0) -> int:
        """Return the number of a step's targets, over all ranks. Encoders' outputs have no target. Raises InputError
        where the module feeds another, and so has no loss.
        """
        return sum(self.item_targets(module, step).values())

    def target_shares(self, module: str, step: int = 0) -> dict[int, float]:
        """Return, by item, the factor of the loss of each of its targets: their sum over all ranks is the loss of the
        step, weighted as the plan says, and gradients are sums over ranks. Raises InputError as `targets` does.
        """
        counts = self.item_targets(module, step)
        weights = loss_weights(self.plan.uses, {(module, item): count for item, count in counts.items()})
        return {item: weights.of_target(module, item) / weights.total for item in counts}

    def item_targets(self, module: str, step: int) -> dict[int, int]:
        """Return the number of targets of each item of a step. Raises InputError as `targets` does."""
        spec = self.plan.uses.models[known_module(self.plan, module)]
        if any(edge.source == module for edge in self.plan.edges):
            message = f"`{module}` feeds another module, and has no loss"
            raise InputError(message, where="module", fix="ask for the one that reads its outputs")
        if any(task.loss == "contrastive" and module in task.modules for task in self.plan.uses.tasks.values()):
            message = f"features of `{module}` are compared with another module's, and have no targets"
            raise InputError(message, where="module", fix="the samples of its tasks are in plan.uses.tasks")
        fed = fed_tokens(self.plan)
        return {
            item: size // spec.tokens_per_output - fed.get((module, item), 0)
            for task in all_tasks(self.plan, step)
            if (task.module, task.phase) == (module, "F") and task.layers[-1] == spec.layers - 1
            for item, size in zip(task.items, task.sizes, strict=True)
        }


def follow(path: str | Path) -> FollowedPlan:
    """Read a plan file. Raises InputError when it cannot be read, or is no legal plan."""
    plan = files.read(path, Plan)
    require_legal(plan, str(path))
    return FollowedPlan(plan)


def all_tasks(plan: Plan, step: int) -> tuple[Task, ...]:
    """Return the tasks of all ranks. Raises InputError when there is no such step."""
    require_index("step", step, len(plan.steps))
    return tuple(expand(plan, step))


def item_tokens(document: Document, first: int, last: int) -> TokenSpan:
    """Return tokens of a document as tokens of its item."""
    return TokenSpan(document.item, document.begin + first, document.begin + last)


def require_index(what: str, number: int, count: int) -> None:
    """Raises InputError for a rank or step that does not exist."""
    if not 0 <= number < count:
        raise InputError(f"there is no {what} {number}", where=what, fix=f"0 to {count - 1}")


def known_module(plan: Plan, module: str) -> str:
    """Return the name of a module that has a layout. Raises InputError for any other."""
    if module not in plan.layouts:
        fix = f"one of {', '.join(plan.layouts)}"
        raise InputError(f"the plan has no module `{module}`", where="module", fix=fix)
    return module
