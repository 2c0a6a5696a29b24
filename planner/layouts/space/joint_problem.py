"""What a bound over plans of several modules is found from: a job's modules on ranks of one kind, and what it fixes.

One module reads the others, itself or over each other, and feeds none: the samples are its items. A plan's `uses` give
the problem (scoring/bounds/plan_space.py), so that whoever reads a plan finds its bound again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

from planner.costs import Pricing
from planner.layouts.space.layout_fields import TrainingSetup, searched_overlap
from planner.layouts.space.layout_problem import LayoutProblem, priced_problem, ranks_alone
from planner.plan.gradient_flow import EdgeEnds, GradientFlow, gradient_flows
from planner.plan.plan_file import Layout, Prices
from planner.plan.task import Phase, Task
from planner.specs.base import Layers, Ranks, with_fields
from planner.specs.framework.knobs import Knobs
from planner.specs.hardware.cluster import Cluster
from planner.specs.hardware.profile import Device
from planner.specs.inputs import Inputs
from planner.specs.job import Limits
from planner.specs.layers import Module
from planner.specs.parallelism import MESH_DIMS, Parallelism, decided_fields
from planner.specs.trained_parameters import trained_parameters
from planner.specs.workload.items import Size, part_lengths
from planner.specs.workload.length_sources import Repeated

# Fields of a layout that passes depend on, besides its degrees.
PASS_FIELDS = ("recompute", "dtype", "sequence_parallel", "overlap")


@dataclass(frozen=True)
class JointProblem:
    """Modules that are planned together."""

    models: Mapping[str, Module]
    edges: tuple[EdgeEnds, ...]
    sizes: Mapping[str, Mapping[int, Size]]  # by module: item → its size
    fixed: Mapping[str, Parallelism]  # by module: the fields that the job fixes, its ranks too
    cluster: Cluster
    devices: Mapping[str, Device]
    prices: Prices
    limits: Limits
    knobs: Knobs
    uneven: bool = False  # whether stages of pipelines may have any numbers of layers
    repeated: Repeated | None = None  # epochs over the data set

    @cached_property
    def module(self) -> str:
        """The module that feeds no other."""
        (name,) = last_modules(self.models, self.edges)
        return name

    @cached_property
    def flows(self) -> dict[str, GradientFlow]:
        """What the backward of each module does."""
        return gradient_flows(self.models, self.edges)

    @property
    def others(self) -> list[str]:
        """The modules that it reads, itself or over others."""
        return [name for name in self.models if name != self.module]

    @property
    def hides(self) -> bool:
        """Whether passes of other modules may run while those of the samples' module exchange."""
        return self.knobs.orders == "any" and all(device.kind == "cuda" for device in self.devices.values())

    @property
    def packs(self) -> bool:
        """Whether samples are packed to the job's limits, so that micro-batches have no number of them."""
        several = (self.fixed[self.module].micro_batch or 1) > 1
        return bool(self.limits.inputs_per_rank) or (self.limits.tokens_per_rank is not None and not several)

    @cached_property
    def own(self) -> LayoutProblem:
        """The layouts of the samples' module on all ranks."""
        name, prices = self.module, self.prices
        fixed = with_fields(self.fixed[name], ranks=None, **({"micro_batch": None} if self.packs else {}))
        if not self.flows[name].trains():  # nothing of it is updated
            prices = with_fields(prices, timing=with_fields(prices.timing, step_ms=0.0))
        overlap = searched_overlap(fixed, self.knobs)
        trained = TrainingSetup(self.models[name], self.cluster.size, self.parts(name), fixed, True, overlap)
        return priced_problem(trained, self.cluster, self.devices, prices, self.limits, self.knobs)

    def on_ranks(self, count: int) -> LayoutProblem:
        """The layouts of the samples' module on so many ranks."""
        return replace(self.own, trained=replace(self.own.trained, ranks=count))

    def counts(self, name: str) -> range:
        """How many ranks a module may have: those that the job gives it, else any that its fixed degrees divide."""
        fixed, size = self.fixed[name], self.cluster.size
        if isinstance(fixed.ranks, Ranks):
            return range(len(fixed.ranks), len(fixed.ranks) + 1)
        step = prod(getattr(fixed, dim) or 1 for dim in MESH_DIMS)
        return range(step, size + 1, step)

    def parts(self, name: str) -> tuple[int, ...]:
        """Tokens of each part of each item of a module."""
        return tuple(length for size in self.sizes[name].values() for length in part_lengths(size))

    def least_pass_seconds(self, name: str) -> float:
        """Ranks' seconds of all passes over a module's items at least, without what many ranks wait for each other: in
        one micro-batch, on as few ranks as its fixed degrees need. Of an encoder whose features may be kept, what it
        computes of them in the mean of all epochs.
        """
        sizes, fixed = self.parts(name), self.fixed[name]
        layout = least_layout(with_fields(fixed, overlap=fixed.overlap or searched_overlap(fixed, self.knobs)))
        if not sizes or len(layout.ranks) > self.cluster.size:
            return 0.0
        pricing = Pricing(
            dict(self.models), {name: layout}, self.cluster, self.prices, dict(self.devices), flows=self.flows
        )
        phases: tuple[Phase, ...] = ("F", "B") if self.flows[name].has_backward() else ("F",)
        task = Task(
            module=name,
            layers=Layers(range(self.models[name].layers)),
            phase="F",
            micro_batch=0,
            group=name,
            ranks=layout.ranks,
            sizes=sizes,
            items=tuple(range(len(sizes))),
            degree=layout.cp,
            ring=layout.default_split.ring,
        )
        seconds = sum(pricing.price(task.changed(phase=phase)).value for phase in phases)
        least = seconds * len(layout.ranks) / (1.0 + float(self.own.machine.jitter(len(layout.ranks))))
        return least / self.repeated.epochs if self.repeated and self.may_keep_features(name) else least

    def may_keep_features(self, name: str) -> bool:
        """Whether features of a module may be read in all epochs but the first; their capacity is not asked."""
        flow, fixed = self.flows[name], self.fixed[name].features
        changed = flow.has_backward() or (self.repeated is not None and name in self.repeated.augmented)
        return name != self.module and not changed and fixed != "computed"

    def updated(self, name: str) -> int:
        """Parameters of a module that the step updates."""
        return trained_parameters(self.models[name]) if self.flows[name].trains() and self.sizes[name] else 0


def least_layout(fixed: Parallelism) -> Layout:
    """One replica of a module on one stage, with the degrees and options that are fixed of its passes."""
    tp, cp = fixed.tp or 1, fixed.cp or fixed.ulysses or 1
    chosen = {name: value for name, value in decided_fields(fixed).items() if name in PASS_FIELDS}
    return Layout(ranks=Ranks(range(tp * cp)), tp=tp, cp=cp, ulysses=fixed.ulysses or 1, **chosen)


def last_modules(models: Mapping[str, Module], edges: tuple[EdgeEnds, ...]) -> list[str]:
    """The modules that feed no other."""
    feeding = {edge.source for edge in edges}
    return [name for name in models if name not in feeding]


def with_joint_fields(inputs: Inputs) -> Inputs:
    """The job with all fields that it fixes of any module under `fix.layouts`, where its plan keeps them."""
    ranks_alone(inputs)  # which raises InputError for others than the first ones
    every = {name: inputs.fixed_of(name) for name in inputs.model.modules}
    layouts = {name: fixed for name, fixed in every.items() if fixed != Parallelism()}
    return replace(inputs, job=with_fields(inputs.job, fix=with_fields(inputs.job.fix, layouts=layouts)))


def unbounded_jointly(inputs: Inputs) -> str | None:
    """The reason why there is no bound over all plans of a job's modules; None where there is one."""
    last = last_modules(inputs.model.modules, inputs.model.edges)
    if last != [inputs.module]:
        return f"samples are items of `{inputs.module}`, and {' and '.join(last)} feed no other module"
    if inputs.profile.modules or inputs.profile.collectives:
        return "modules are priced by fits or collectives that were measured"
    return None
