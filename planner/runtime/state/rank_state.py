"""What one rank holds of a plan: its chunks of every module, process groups and channels; and how it loads the batch of
a micro-batch: its shard of the items of its group, and the collectives that it shares them by.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import torch
import torch.distributed as dist
from torch import nn

from planner.launch import Worker
from planner.launch.communication import (
    Channels,
    CommunicationMeter,
    ProcessGroups,
    SharedMicroBatch,
    dispatchers_by_layer,
    sequence_parallel_over,
    tensor_parallel_over,
)
from planner.models import Batch, SequenceParallel, TokenDispatcher
from planner.models.inputs import (
    ClickSource,
    HeldSpan,
    ItemGrids,
    PackedContents,
    PlannedItems,
    SampleSource,
    batch_of_documents,
    fed_source,
    held_spans,
    sample_source,
)
from planner.plan.embeddings import tokens_of_sums
from planner.plan.gradient_flow import gradient_flows
from planner.plan.group_catalogue import process_groups
from planner.plan.loss_weights import LossWeights, loss_weights
from planner.plan.mesh.rank_mesh import groups_over
from planner.plan.plan_file import Layout, Plan
from planner.plan.task import Task
from planner.plan.tasks.expand import expand
from planner.plan.tasks.module_work import module_work
from planner.plan.tokens.encoder_outputs import ItemKey, fed_tokens, token_grids
from planner.plan.tokens.token_shards import sharing_ranks
from planner.runtime.checkpoint.checkpoint_index import data_digest
from planner.runtime.checkpoint.stored_states import initial_weights, resumed_checkpoint
from planner.runtime.exchange.edge_transfers import plan_channels
from planner.runtime.execution_order import task_gathered_encoders
from planner.runtime.measure.step_clock import StepClock
from planner.runtime.run_options import RunOptions
from planner.runtime.state.fsdp import COMPUTE_DTYPES
from planner.runtime.state.rank_tables import RankTables
from planner.runtime.state.replicated_gradients import sum_replicated_gradients
from planner.runtime.state.sharded_stage import ShardedStage
from planner.specs.layers import Module
from planner.specs.workload.items import Document


@dataclass(frozen=True, slots=True)
class BatchLoader:
    """Creates the batches of one module on one rank."""

    spec: Module
    layout: Layout
    groups: ProcessGroups
    meter: CommunicationMeter  # counts what its collectives send
    source: SampleSource
    dispatch: Mapping[int, TokenDispatcher]  # token dispatch to the experts of each layer
    grids: ItemGrids  # of its items, whose tokens are places of images

    def sharing(self, task: Task) -> SequenceParallel:
        """How the ranks of a forward task share its items."""
        ranks, unit = sharing_ranks(self.layout, task.ranks, self.groups.rank), self.spec.tokens_per_output
        sharing = SharedMicroBatch(ranks, task.split, task.lengths, unit, bool(task.parts))
        return sequence_parallel_over(self.groups, sharing, self.meter)

    def held(self, task: Task) -> list[HeldSpan]:
        """The parts of a forward task's items that this rank loads."""
        packed = [Document(*each) for each in task.documents]
        return held_spans(packed, self.sharing(task).local_spans([each.tokens for each in packed]))

    def batch(
        self, task: Task, device: torch.device, weights: LossWeights, loaded: PackedContents | None = None
    ) -> Batch:
        """Batch of a forward task on this rank, whose contents may be loaded already; empty on an idle rank. `weights`:
        of the step's targets.
        """
        exchange, unit = self.sharing(task), self.spec.tokens_per_output
        batch = batch_of_documents(
            self.source,
            self.spec,
            task.documents,
            sequence_parallel=exchange,
            device=device,
            planned=PlannedItems(weights.within(task), self.grids, loaded),
        )
        block = groups_over(self.layout, ("tp",))[self.groups.rank]
        tensor = tensor_parallel_over(self.groups, block, len(batch.positions), unit, self.meter)
        return replace(batch, tensor_parallel=tensor, dispatchers=self.dispatch)


class RankState:
    """Modules, batch loaders, groups and channels of one rank. All ranks create it together, in one order."""

    def __init__(self, worker: Worker, plan: Plan, options: RunOptions, clock: StepClock) -> None:
        self.worker, self.plan, self.clock, self.meter = worker, plan, clock, CommunicationMeter()
        self.options = options
        self.resumed = resumed_checkpoint(options)
        tables = plan.uses.tables
        self.source = ClickSource(options.seed, tables) if tables else sample_source(options.data, options.seed)
        self.followed = plan  # whose items the steps work on: the run's plan, or that of a step planned meanwhile
        self.sources, self.grids = item_sources(plan, self.source), item_grids_of(plan)
        self.groups = ProcessGroups(process_groups(plan))
        self.steps = tuple(expand(plan, number) for number in range(len(plan.steps)))  # all tasks of each
        self.channels = Channels(plan_channels(plan, self.steps), worker.device)
        self.stages: dict[str, list[ShardedStage]] = {}
        self.loaders: dict[str, BatchLoader] = {}
        self.feeding_modules = frozenset(edge.source for edge in plan.edges)  # modules whose outputs other modules read
        compared = {name for task in plan.uses.tasks.values() if task.loss == "contrastive" for name in task.modules}
        self.encoders = self.feeding_modules | compared  # modules without a loss of their own
        self.task_gathered = task_gathered_encoders(plan)
        self.flows = gradient_flows(plan.uses.models, plan.edges)
        for name, layout in plan.layouts.items():
            if worker.rank not in layout.ranks:
                continue
            spec, dtype = plan.uses.models[name], options.dtype or layout.dtype
            chunks = module_work(plan, plan.steps[0], name).chunks(worker.rank)
            feeds = name in self.feeding_modules
            self.stages[name] = [ShardedStage(spec, layout, layers, dtype, clock, feeds) for layers in chunks]
            for stage in self.stages[name]:
                stage.network.feeds_module = name in self.encoders
                stage.network.passes_gradients_on = self.flows[name].passes_on
            dispatch = dispatchers_by_layer(layout, range(spec.layers), self.groups, self.meter)
            self.loaders[name] = BatchLoader(
                spec, layout, self.groups, self.meter, self.sources[name], dispatch, self.grids[name]
            )
            for stage in self.stages[name]:
                stage.materialise(self.groups, initial_weights(options, self.resumed, name))
        self.tables: RankTables | None = None
        if isinstance(self.source, ClickSource):
            (stage,) = self.all_stages
            of = torch.empty(0, dtype=stage.stored_dtype, device=worker.device)
            self.tables = RankTables(plan, self.source, self.groups, of, options.table_scale)

    def follow(self, plan: Plan) -> None:
        """Load the items of this plan from now on: it has the modules and layouts of the run's own."""
        if plan is self.followed:
            return
        self.followed = plan
        self.sources, self.grids = item_sources(plan, self.source), item_grids_of(plan)
        self.loaders = {
            name: replace(loader, source=self.sources[name], grids=self.grids[name])
            for name, loader in self.loaders.items()
        }

    @cached_property
    def tensor_group(self) -> dist.ProcessGroup:
        """Gloo group of all ranks to gather unsharded tensors. Every rank must ask for it at the same time."""
        group: dist.ProcessGroup = dist.new_group(backend="gloo", group_desc="whole tensors")
        return group

    @cached_property
    def data_digest(self) -> str | None:
        """Digest of the data; None for synthetic items."""
        return data_digest(self.options)

    @property
    def compute_dtypes(self) -> dict[str, torch.dtype]:
        """Dtype of activations of each module, also of modules that are not on this rank."""
        dtypes = {name: self.options.dtype or layout.dtype for name, layout in self.plan.layouts.items()}
        return {name: COMPUTE_DTYPES[dtype] for name, dtype in dtypes.items()}

    def stage(self, task: Task) -> ShardedStage:
        """The stage on this rank with the layers of the task."""
        return next(stage for stage in self.stages[task.module] if task.layers[0] in stage.layers)

    def stages_of(self, task: Task) -> list[ShardedStage]:
        """All stages on this rank whose layers are among those of the task."""
        return [stage for stage in self.stages[task.module] if set(stage.layers) <= set(task.layers)]

    def complete_gradients(self, module: str) -> None:
        """Completes the gradients of a module before its update: reduces those that no sync task did, as of a rank that
        shares its states with none, and sums those of replicated parameters. A second call does nothing.
        """
        stages = self.stages[module]
        for stage in stages:
            if not stage.reduced:
                stage.reduce()
        if not stages[0].replicated_summed:
            sum_replicated_gradients(stages, self.groups, self.meter)
            stages[0].replicated_summed = True

    @property
    def all_stages(self) -> Iterator[ShardedStage]:
        return (stage for stages in self.stages.values() for stage in stages)

    def parameters(self, module: str) -> Iterator[tuple[str, nn.Parameter]]:
        """Names and shards (of their local shapes) of the trained parameters of a module on this rank."""
        return (named for stage in self.stages[module] for named in stage.trained.items())

    def computes_loss(self, task: Task) -> bool:
        """Whether the pass ends in a loss."""
        return task.module not in self.encoders and self.has_last_layer(task)

    def ends_in_loss(self, task: Task) -> bool:
        """Whether a loss is all that reads the outputs of a pass: its own, or that of a task of several modules."""
        return task.module not in self.feeding_modules and self.has_last_layer(task)

    def target_counts(self, tasks: Iterable[Task]) -> dict[ItemKey, int]:
        """Number of targets of each item of these forwards that end in their own loss, which is summed over them."""
        return {
            (task.module, item): self.sources[task.module].target_count(self.plan.uses.models[task.module], item, size)
            for task in tasks
            if self.computes_loss(task)
            for item, size in zip(task.items, task.sizes, strict=True)
        }

    def loss_weights(self, counts: Mapping[ItemKey, int]) -> LossWeights:
        """The weights of the targets of a step with so many of each item."""
        return loss_weights(self.plan.uses, counts)

    def has_last_layer(self, task: Task) -> bool:
        """Whether the pass includes the last layer of its module."""
        return task.layers[-1] == self.plan.uses.models[task.module].layers - 1


def item_sources(plan: Plan, source: SampleSource) -> dict[str, SampleSource]:
    """By module, the source of its items in a plan."""
    return {name: fed_source(source, fed_items(plan, name)) for name in plan.layouts}


def item_grids_of(plan: Plan) -> dict[str, ItemGrids]:
    """By module, the grids among the tokens of its items in a plan."""
    return {name: token_grids(plan, name) for name in plan.layouts}


def fed_items(plan: Plan, module: str) -> dict[int, int]:
    """Number of tokens that encoder outputs replace, or sums of embedding tables, by item of a module."""
    if plan.uses.tables:
        return dict.fromkeys(plan.uses.items[module], tokens_of_sums(plan.uses.tables, plan.uses.models[module].hidden))
    return {item: tokens for (reader, item), tokens in fed_tokens(plan).items() if reader == module}


def empty_activations(stage: ShardedStage, tokens: int) -> torch.Tensor:
    """Uninitialised activations between layers, (tokens, hidden)."""
    return torch.empty(tokens, stage.spec.hidden, dtype=stage.compute_dtype, device=stage.clock.device)
