"""What a framework refuses to launch, with the rule and the fix: layouts, a million at once or one, and whole plans.

A layout says the same of every micro-batch. Strategies decide more: groups that change, which sequences share a
micro-batch, the order of passes slot by slot. Few frameworks can be told these: `STEP_RULES` judges them.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.errors import Infeasible, InputError
from planner.plan.launchable.launch_rules import (
    RULES,
    LaunchCase,
    Rule,
    TrainedFacts,
    Truth,
    UndecidedError,
    numbers_of,
    trained_facts,
    with_defaults,
)
from planner.plan.plan_file import ALL, Assignment, Layout, Plan, Step, assignments
from planner.plan.schedules import DEFAULT_SCHEDULE, Slot
from planner.plan.schedules.explicit import resolve_slots
from planner.specs.base import Ranks, with_fields
from planner.specs.framework.knobs import Knobs
from planner.specs.framework.software import ANY
from planner.specs.hardware.cluster import rank_kinds
from planner.specs.inputs import Inputs
from planner.specs.parallelism import Parallelism


class LaunchRefusal(NamedTuple):
    """The rule that a layout breaks, what is wrong, and what to do."""

    rule: str
    message: str
    fix: str


def launchable(
    columns: Mapping[str, NDArray[np.int64]],
    fixed: Parallelism,
    facts: TrainedFacts,
    knobs: Knobs,
    rules: Sequence[Rule] = RULES,
) -> NDArray[np.bool_]:
    """Whether these rules let each layout be launched, (layouts,). `columns`: the fields that differ, by their names in
    `Parallelism`, words as places in CODED_FIELDS; `fixed`: those that a job fixes of all.
    """
    numbers = {**numbers_of(fixed), **{name: np.asarray(column) for name, column in columns.items()}}
    at = LaunchCase(numbers, fixed, facts, knobs)
    allowed = np.ones(np.broadcast_shapes(*(np.shape(each) for each in columns.values())), dtype=np.bool_)
    for rule in rules:
        allowed &= ~np.asarray(refuses(rule, at), dtype=np.bool_)
    return allowed


def launch_refusals(
    layout: Parallelism, facts: TrainedFacts, knobs: Knobs, rules: Sequence[Rule] = RULES
) -> tuple[LaunchRefusal, ...]:
    """The rules that one layout breaks, of these; of fields that are not decided none."""
    at = LaunchCase(numbers_of(layout), layout, facts, knobs)
    broken, told = [rule for rule in rules if refuses(rule, at)], with_defaults(at)
    return tuple(LaunchRefusal(rule.name, *rule.why(told).split(" | ", 1)) for rule in broken)


def refuses(rule: Rule, at: LaunchCase) -> Truth:
    """Whether a rule refuses each layout: False where it needs what is not decided."""
    try:
        return rule.refuses(at)
    except UndecidedError:
        return False


def first_refusal(inputs: Inputs, layout: Parallelism, *, runs: bool = True) -> LaunchRefusal | None:
    """The first rule of a job's software that a layout of its module breaks; rules about the batch only if the layout
    is to run. None where it breaks none.
    """
    sizes = tuple(inputs.batches[0].items.values()) if runs else ()
    ranks = len(layout.ranks) if isinstance(layout.ranks, Ranks) else inputs.cluster.size
    facts = trained_facts(inputs.spec, ranks, sizes)
    return next(iter(launch_refusals(layout, facts, inputs.software.knobs)), None)


def refusal_text(software: str, refusal: LaunchRefusal, what: str = "layout") -> str:
    """What is wrong with a layout, or with a plan, as a sentence."""
    return f"{software} cannot launch this {what}: {refusal.message} (rule: {refusal.rule})"


def require_launchable(inputs: Inputs, layout: Parallelism, where: str, *, runs: bool = True) -> None:
    """Raises InputError at `where` in the job for the first rule of its software that a layout of its module breaks."""
    refusal = first_refusal(inputs, layout, runs=runs)
    if refusal:
        raise InputError(
            refusal_text(inputs.software.name, refusal),
            where=f"{inputs.sources.get('job', inputs.job.name)} ({where})",
            fix=f"{refusal.fix}; or software: {ANY}, to price what nothing can launch",
        )


@dataclass(frozen=True, slots=True)
class StepCase:
    """One module in the steps of a plan, and the knobs that they are judged by."""

    plan: Plan
    module: str
    knobs: Knobs

    @property
    def layout(self) -> Layout:
        """The layout of the module."""
        return self.plan.layouts[self.module]

    @property
    def assigned(self) -> Iterator[Assignment]:
        """The assignments of the module's groups, over all steps."""
        for step in self.plan.steps:
            yield from self.assigned_in(step)

    def assigned_in(self, step: Step) -> Iterator[Assignment]:
        """The assignments of the module's groups in one step."""
        for micro_batch in step.micro_batches:
            yield from (a for a in assignments(self.plan, micro_batch) if a.module == self.module)

    @property
    def batches(self) -> Iterator[tuple[int, ...]]:
        """The tokens of each sequence, step by step; none of several modules, whose items no framework counts alike."""
        for step in self.plan.steps:
            alone = len(self.plan.layouts) == 1
            items = (item for a in self.assigned_in(step) for item in a.items) if alone else ()
            yield tuple(self.plan.uses.tokens(self.module, item) for item in items)


@dataclass(frozen=True, slots=True)
class StepRule:
    """What is wrong with the steps of a module, as `wrong | fix`; empty where nothing is."""

    name: str
    wrong: Callable[[StepCase], str]


def plan_refusals(plan: Plan) -> Iterator[tuple[str, LaunchRefusal]]:
    """The rules of its software that a plan breaks, each with the module that breaks it."""
    knobs = plan.uses.software.knobs
    for name, layout in plan.layouts.items():
        at = StepCase(plan, name, knobs)
        shares = [share for a in at.assigned for share in a.offload_shares(layout)]
        alike = {*shares} <= {layout.offload_share}
        offloading = layout if alike else with_fields(layout, offload=max([layout.offload_share, *shares]))
        every = [trained_facts(plan.uses.models[name], len(layout.ranks), sizes) for sizes in at.batches]
        refusals = dict.fromkeys(each for facts in every for each in launch_refusals(offloading, facts, knobs))
        yield from ((name, refusal) for refusal in refusals)
        for rule in STEP_RULES:
            message, _, fix = rule.wrong(at).partition(" | ")
            if message:
                yield name, LaunchRefusal(rule.name, message, fix)


def unlaunchable_error(plan: Plan, otherwise: str = "or ") -> Infeasible | None:
    """What is wrong with a strategy's plan that its software cannot launch: the first rule it breaks, with that rule's
    fix and what else would help; None where it breaks none.
    """
    for _, refusal in plan_refusals(plan):
        fix = f"{refusal.fix}; {otherwise}software: {ANY}, to price what nothing can launch"
        return Infeasible(refusal_text(plan.uses.software.name, refusal, "plan"), where="software", fix=fix)
    return None


def changed_groups(at: StepCase) -> str:
    """Sequences on other groups than the replicas of the layout."""
    own = at.layout.default_split
    splits = {at.plan.groups[a.group].resolved_split(at.layout) for a in at.assigned}
    if at.knobs.groups == "any" or splits <= {own}:
        return ""
    degrees = sorted({split.degree for split in splits})
    several = f"{degrees[0]} to {degrees[-1]} ranks" if len(degrees) > 1 else f"{degrees[0]} ranks"
    return f"groups of {several} are none of its layout's, whose cp is {own.degree} | a static layout"


def packed_sequences(at: StepCase) -> str:
    """More sequences in a micro-batch of a group than the layout has; encoders have as many as their readers need."""
    if at.knobs.packing == "any" or any(edge.source == at.module for edge in at.plan.edges):
        return ""
    most = max((len(a.items) for a in at.assigned), default=0)
    if most <= at.layout.micro_batch:
        return ""
    return f"up to {most} sequences share a micro-batch, whose size is {at.layout.micro_batch} | a static layout"


def unlike_shares(at: StepCase) -> str:
    """Replicas with unlike many micro-batches, as ranks of several kinds have them."""
    if at.knobs.groups == "any" or len(rank_kinds(at.plan.uses.cluster)) == 1:
        return ""
    for step in at.plan.steps:
        counts = sorted(Counter(a.group for a in at.assigned_in(step)).values())
        if counts and counts[0] < counts[-1]:
            return f"replicas have {counts[0]} to {counts[-1]} micro-batches, and its have as many each | software: any"
    return ""


def written_orders(at: StepCase) -> str:
    """An order of passes that is none of the schedules by name, or tasks that are placed within one."""
    if at.knobs.orders == "any":
        return ""
    if any(place.moved.module == at.module for step in at.plan.steps for place in step.placements):
        return "its tasks are placed among those of another module | no placements"
    names = (DEFAULT_SCHEDULE, *at.knobs.schedules)
    if all(is_one_of(at, step, names) for step in at.plan.steps):
        return ""
    return f"the order of its passes is none of {', '.join(names)} | strategy: parallel_search"


def shared_devices(at: StepCase) -> str:
    """Modules side by side on a device, each with a share of it."""
    if at.knobs.orders == "any" or all(a.share == 1.0 for a in at.assigned):
        return ""
    return "it has a share of its devices, beside another module | no `share`"


def encoders_ahead(at: StepCase) -> str:
    """Encoders farther ahead than the software has them, which on ranks of their readers run for the micro-batch that
    reads them.
    """
    readers = [edge.target for edge in at.plan.edges if edge.source == at.module]
    shared = any({*at.plan.layouts[reader].ranks} & {*at.layout.ranks} for reader in readers)
    most = 0 if shared else at.knobs.ahead
    ahead = max((step.ahead(at.module, reader) for step in at.plan.steps for reader in readers), default=0)
    if at.knobs.orders == "any" or ahead <= most:
        return ""
    where = "on the ranks of who reads them" if shared else "on ranks of their own"
    ahead_by = "ahead of all" if ahead >= ALL else f"{ahead} ahead"
    return f"encoders {where} run {most} micro-batches ahead, not {ahead_by} | before: {readers[0]}.F-{most}"


def is_one_of(at: StepCase, step: Step, names: tuple[str, ...]) -> bool:
    """Whether the order of the module in a step is one of these schedules, by name or slot by slot."""
    order, layout, count = step.order_of(at.module), at.layout, len(step.micro_batches)
    if order is None or isinstance(order, str):
        return order is None or order in names
    slots = slots_of(order, layout, count)
    return slots is None or any(slots == slots_of(name, layout, count) for name in names)


def slots_of(order: str | tuple[str, ...], layout: Layout, micro_batches: int) -> list[list[Slot]] | None:
    """The slots of a schedule, or of an order, on this layout; None where it does not fit, as other laws say."""
    try:
        return resolve_slots(order, layout.pp, micro_batches, layout.vpp)
    except InputError:
        return None


STEP_RULES = (
    StepRule("groups", changed_groups),
    StepRule("packing", packed_sequences),
    StepRule("shares of replicas", unlike_shares),
    StepRule("order of passes", written_orders),
    StepRule("encoders ahead", encoders_ahead),
    StepRule("shares of devices", shared_devices),
)
