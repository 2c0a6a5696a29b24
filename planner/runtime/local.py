"""What one rank has of a plan: its chunks of every module, what loads them, and the ways to other ranks."""

from collections.abc import Iterable, Iterator

import torch
from torch import nn

from planner.launch.channels import Channels, Pair
from planner.launch.groups import Groups
from planner.launch.meter import Meter
from planner.launch.worker import Worker
from planner.plan.expand import expand
from planner.plan.model import Plan
from planner.plan.task import Task
from planner.plan.work import Work, module_work
from planner.runtime.batches import Loader
from planner.runtime.catalogue import catalogue
from planner.runtime.clock import Clock
from planner.runtime.options import RunOptions
from planner.runtime.stage import Stage
from planner.specs.base import Layers


class Local:
    """One rank's part of everything. Made by all ranks together: they create the same groups in the same order."""

    def __init__(self, worker: Worker, plan: Plan, options: RunOptions, clock: Clock) -> None:
        self.worker, self.plan, self.clock, self.meter = worker, plan, clock, Meter()
        self.groups = Groups(catalogue(plan))
        self.channels = Channels(pairs(expand(plan)), worker.device)
        self.stages: dict[str, list[Stage]] = {}
        self.loaders: dict[str, Loader] = {}
        self.fed = {edge.source: edge.target for edge in plan.edges}  # module → the module that reads its outputs
        for name, layout in plan.layouts.items():
            if worker.rank not in layout.ranks:
                continue
            spec, dtype = plan.uses.models[name], options.dtype or layout.dtype
            chunks = own_chunks(module_work(plan, plan.steps[0], name), worker.rank)
            self.stages[name] = [Stage(spec, layout, layers, dtype, clock) for layers in chunks]
            self.loaders[name] = Loader(spec, layout, self.groups, self.meter, options.seed)
            for stage in self.stages[name]:
                stage.materialise(self.groups, options.seed)

    def stage(self, task: Task) -> Stage:
        """Whose layers the task works on."""
        return next(stage for stage in self.stages[task.module] if task.layers[0] in stage.layers)

    def of_module(self, task: Task) -> list[Stage]:
        return self.stages[task.module]

    def settle(self, module: str) -> None:
        """Gradients that no sync has brought into their place, as those of a rank that shares its states with none."""
        for stage in self.stages[module]:
            if not stage.reduced:
                stage.reduce()

    @property
    def all_stages(self) -> Iterator[Stage]:
        return (stage for stages in self.stages.values() for stage in stages)

    def parameters(self, module: str) -> Iterator[nn.Parameter]:
        """What an optimizer works on."""
        return (shard for stage in self.stages[module] for shard in stage.shards.values())

    def ends(self, task: Task) -> bool:
        """Whether the pass gives a loss."""
        return task.module not in self.fed and self.concludes(task)

    def concludes(self, task: Task) -> bool:
        """Whether the pass goes through the last layer of its module."""
        return task.layers[-1] == self.plan.uses.models[task.module].layers - 1


def own_chunks(work: Work, rank: int) -> list[Layers]:
    everyone = work.layout.ranks
    return [layers for number, layers in enumerate(work.stages) if rank in work.stage_ranks(number, everyone)]


def pairs(tasks: Iterable[Task]) -> set[Pair]:
    """Who sends to whom: in a pipeline, each rank to the one in its place on the next stage."""
    return {pair for task in tasks if task.phase == "send" for pair in zip(task.ranks, task.peers, strict=False)}


def empty(stage: Stage, rows: int) -> torch.Tensor:
    """Memory for activations between layers, [rows, hidden]."""
    return torch.empty(rows, stage.spec.hidden, dtype=stage.computed, device=stage.clock.device)
