"""What a plan's experts take: the load of the fullest rank, how tokens travel, and whether compute can hide it."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import isfinite

from planner.costs import (
    DISPATCHES,
    LayoutColumns,
    MachineModel,
    PipelineBatch,
    best_dispatch,
    columns_of,
    expert_load,
    expert_ratio,
    pricing_of,
    published_ratio,
)
from planner.plan.launchable.launch_refusals import launch_refusals
from planner.plan.launchable.launch_rules import RULES, trained_facts
from planner.plan.mesh.rank_mesh import has_experts
from planner.plan.plan_file import Layout, Plan, assignments
from planner.specs.base import Layers, with_fields
from planner.specs.framework.knobs import Knobs
from planner.specs.hardware.cluster import device_of_rank
from planner.specs.layers import Module
from planner.specs.parallelism import Dispatch


@dataclass(frozen=True, slots=True)
class LoadAnswer:
    """Tokens of the fullest rank of experts over the mean, with the half-width of the 80 % interval."""

    mean: float
    spread: float
    source: str  # measured, by counts that the job or the model has; or assumed


@dataclass(frozen=True, slots=True)
class ExpertAnswer:
    """The experts of those layers of a module that place them alike."""

    module: str
    layers: str  # as ranges
    ep: int
    etp: int
    dispatch: Dispatch
    cheapest_dispatch: Dispatch  # of those that the software can launch
    load: LoadAnswer
    ratio: float | None  # seconds of the experts' products over those of dispatch and combine; None: no tokens travel
    published_ratio: float | None  # the same by the formula of arXiv 2505.11432

    @property
    def is_bound_by_exchange(self) -> bool:
        """Whether tokens travel for longer than experts compute: no overlap can hide that."""
        return self.ratio is not None and self.ratio < 1.0


def expert_answers(plan: Plan) -> Iterator[ExpertAnswer]:
    """One answer for each module and placement of experts, on the first kind of its ranks."""
    pricing = pricing_of(plan)
    for name, layout in plan.layouts.items():
        module = plan.uses.models[name]
        machine = pricing.machine(device_of_rank(plan.uses.cluster, layout.ranks[0]))
        routed = [layer for layer in range(module.layers) if has_experts(module, layer)]
        for placed, layers in layout.by_expert_placement(routed) if routed else ():
            at = columns_of(placed, PipelineBatch(seq=mean_rank_tokens(plan, name, layout)))
            kinds = launchable_dispatches(module, placed, plan.uses.software.knobs)
            yield expert_answer(name, module, layers, replace(at, cp=1, ulysses=1), machine, kinds)


def launchable_dispatches(module: Module, layout: Layout, knobs: Knobs) -> tuple[Dispatch, ...]:
    """The dispatches that a layout could have in its framework, its own among them."""
    facts = trained_facts(module, len(layout.ranks))
    rules = [rule for rule in RULES if rule.name.startswith("dispatch")]
    cases = {kind: with_fields(layout, dispatch=kind) for kind in DISPATCHES}
    able = {kind for kind, case in cases.items() if not launch_refusals(case, facts, knobs, rules)}
    return tuple(kind for kind in DISPATCHES if kind in {layout.dispatch, *able})


def expert_answer(
    name: str,
    module: Module,
    layers: Layers,
    at: LayoutColumns,
    machine: MachineModel,
    kinds: tuple[Dispatch, ...] = DISPATCHES,
) -> ExpertAnswer:
    """The answer about layers with the experts' placement of `at`, of which `at.seq` tokens are one rank's of cp;
    `kinds`: the dispatches that they could have.
    """
    load = expert_load(module, at, machine.timing)
    assert isinstance(at.dispatch, str), "a plan's layout has one dispatch"
    return ExpertAnswer(
        module=name,
        layers=str(layers),
        ep=at.ep,
        etp=at.etp,
        dispatch=at.dispatch,
        cheapest_dispatch=kinds[int(best_dispatch(module, at, machine, kinds).which)],
        load=LoadAnswer(mean=float(load.mean), spread=float(load.spread), source=load.source),
        ratio=finite(expert_ratio(module, at, machine)),
        published_ratio=finite(published_ratio(module, at, machine)),
    )


def finite(ratio: float) -> float | None:
    """The number; None where it is infinite, which JSON does not have."""
    return float(ratio) if isfinite(ratio) else None


def mean_rank_tokens(plan: Plan, module: str, layout: Layout) -> float:
    """Tokens of a rank of cp in one micro-batch, in the mean over all groups that work on the module."""
    each = [
        sum(plan.uses.tokens(module, item) for item in assigned.items)
        / plan.groups[assigned.group].resolved_split(layout).degree
        for step in plan.steps
        for micro_batch in step.micro_batches
        for assigned in assignments(plan, micro_batch)
        if assigned.module == module
    ]
    return sum(each) / len(each) if each else 1.0
