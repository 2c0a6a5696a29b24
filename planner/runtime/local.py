"""What one rank holds of a plan: its chunks of every module, their batch loaders, process groups and channels."""

from collections.abc import Iterator
from datetime import timedelta
from functools import cached_property

import torch
import torch.distributed as dist
from torch import nn

from planner.launch.channels import Channels
from planner.launch.experts import dispatch_by_layer
from planner.launch.groups import Groups
from planner.launch.meter import Meter
from planner.launch.worker import Worker
from planner.models.fed import Fed
from planner.models.tokens import source_of
from planner.plan.catalogue import catalogue
from planner.plan.feeding import fed_tokens
from planner.plan.model import Plan
from planner.plan.task import Task
from planner.plan.work import module_work
from planner.runtime.batches import Loader
from planner.runtime.checkpoint import data_of, read_index
from planner.runtime.clock import Clock
from planner.runtime.executed import apart
from planner.runtime.fsdp import COMPUTED
from planner.runtime.options import RunOptions
from planner.runtime.resuming import first_of
from planner.runtime.settle import settle
from planner.runtime.stage import Stage
from planner.runtime.ways import pairs

PATIENCE = timedelta(days=1)  # timeout while rank 0 writes files: a slow disk should not end a run


class Local:
    """Modules, batch loaders, groups and channels of one rank. All ranks create it together, with the same groups in
    the same order.
    """

    def __init__(self, worker: Worker, plan: Plan, options: RunOptions, clock: Clock) -> None:
        self.worker, self.plan, self.clock, self.meter = worker, plan, clock, Meter()
        self.options = options
        self.found = (
            None if options.resume is None else read_index(options.resume)
        )  # index of the checkpoint to resume from
        self.source = source_of(options.data, options.seed)
        self.sources = {name: Fed(self.source, fed_items(plan, name)) for name in plan.layouts}
        self.groups = Groups(catalogue(plan))
        self.channels = Channels(pairs(plan), worker.device)
        self.stages: dict[str, list[Stage]] = {}
        self.loaders: dict[str, Loader] = {}
        self.feeding = frozenset(edge.source for edge in plan.edges)  # modules whose outputs other modules read
        self.apart = apart(plan)
        for name, layout in plan.layouts.items():
            if worker.rank not in layout.ranks:
                continue
            spec, dtype = plan.uses.models[name], options.dtype or layout.dtype
            chunks = module_work(plan, plan.steps[0], name).chunks(worker.rank)
            feeds = name in self.feeding
            self.stages[name] = [Stage(spec, layout, layers, dtype, clock, feeds) for layers in chunks]
            dispatch = dispatch_by_layer(layout, range(spec.layers), self.groups, self.meter)
            self.loaders[name] = Loader(spec, layout, self.groups, self.meter, self.sources[name], dispatch)
            for stage in self.stages[name]:
                stage.materialise(self.groups, first_of(options, self.found, name))

    @cached_property
    def patient(self) -> dist.ProcessGroup:
        """Gloo group of all ranks, with a long timeout, to gather unsharded tensors and to wait while rank 0 writes.
        Every rank must ask for it at the same time.
        """
        group: dist.ProcessGroup = dist.new_group(backend="gloo", timeout=PATIENCE, group_desc="whole tensors")
        return group

    @cached_property
    def data(self) -> str | None:
        """Digest of the tokens; None for synthetic items."""
        return data_of(self.options)

    @property
    def computed(self) -> dict[str, torch.dtype]:
        """Dtype of activations of each module, also of modules that are not on this rank."""
        dtypes = {name: self.options.dtype or layout.dtype for name, layout in self.plan.layouts.items()}
        return {name: COMPUTED[dtype] for name, dtype in dtypes.items()}

    def stage(self, task: Task) -> Stage:
        """The stage on this rank with the layers of the task."""
        return next(stage for stage in self.stages[task.module] if task.layers[0] in stage.layers)

    def of_module(self, task: Task) -> list[Stage]:
        """All stages on this rank whose layers are among those of the task."""
        return [stage for stage in self.stages[task.module] if set(stage.layers) <= set(task.layers)]

    def settle(self, module: str) -> None:
        """Completes the gradients of a module before its update: reduces those that no sync task did, as of a rank that
        shares its states with none, and sums those of replicated parameters. A second call does nothing.
        """
        stages = self.stages[module]
        for stage in stages:
            if not stage.reduced:
                stage.reduce()
        if not stages[0].settled:
            settle(stages, self.groups, self.meter)
            stages[0].settled = True

    @property
    def all_stages(self) -> Iterator[Stage]:
        return (stage for stages in self.stages.values() for stage in stages)

    def parameters(self, module: str) -> Iterator[tuple[str, nn.Parameter]]:
        """Names and shards of the parameters of a module on this rank."""
        return (named for stage in self.stages[module] for named in stage.shards.items())

    def ends(self, task: Task) -> bool:
        """Whether the pass ends in a loss."""
        return task.module not in self.feeding and self.concludes(task)

    def targets(self, task: Task) -> int:
        """Number of target tokens over which the loss of a forward's items is summed."""
        spec = self.plan.uses.models[task.module]
        source = self.sources[task.module]
        return sum(source.targets(spec, *item) for item in zip(task.items, task.sizes, strict=True))

    def concludes(self, task: Task) -> bool:
        """Whether the pass includes the last layer of its module."""
        return task.layers[-1] == self.plan.uses.models[task.module].layers - 1


def fed_items(plan: Plan, module: str) -> dict[int, int]:
    """Number of tokens that encoder outputs replace, by item of a module."""
    return {item: tokens for (reader, item), tokens in fed_tokens(plan).items() if reader == module}


def empty(stage: Stage, tokens: int) -> torch.Tensor:
    """Uninitialised activations between layers, (tokens, hidden)."""
    return torch.empty(tokens, stage.spec.hidden, dtype=stage.computed, device=stage.clock.device)
