"""One plan of samples on groups that change with every micro-batch and of encoders on all ranks.

Decision: for each layout of the encoders that is tried (encoder_layouts.py) the samples are packed into groups as they
are alone, in the tokens that the encoders' memory leaves; then each item of an encoder gets a replica
(grouped_items.py) and the plan is simulated. Encoders' work is even over all ranks in every micro-batch, so it adds
about as much to each packing, and what packing balances is the samples' own. Activations of encoders are known only
when items are placed: a plan that holds more than ranks may is packed again with fewer tokens a rank.
"""

from collections.abc import Callable
from math import ceil, inf
from typing import NamedTuple

from planner.costs import PackingProblem, Pricing, packing_problem
from planner.errors import Infeasible
from planner.layouts import with_joint_fields
from planner.packing import Packing
from planner.plan.legal.plan_laws import violations
from planner.plan.plan_file import Group, Layout, MicroBatch, Plan, PlanInputs
from planner.scoring import PlanMemory, TriedPlan, states_error, with_score
from planner.specs.base import Ranks, with_fields
from planner.specs.inputs import Inputs
from planner.specs.parallelism import Sync, decided_fields
from planner.strategies.assignment.encoder_orders import Orders, orders_of
from planner.strategies.colocated.encoder_layouts import encoder_layouts
from planner.strategies.colocated.grouped_items import GroupedItems
from planner.strategies.plan_drafts import (
    STATE_FIELDS,
    data_parallel_layouts,
    draft_plan,
    plan_micro_batch,
    plan_uses,
    pricing_of_draft,
)
from planner.strategies.static.layouts_plan import (
    micro_batches_of,
    named_groups,
    plan_edges,
    unsupported_together,
    used_groups,
    with_orders,
)

PACKED_AGAIN = 6  # times at most, with fewer tokens a rank


class Grouping(NamedTuple):
    """How a strategy packs samples alone."""

    degrees: tuple[int, ...]
    sync: Sync
    pack: Callable[[PackingProblem, int], tuple[Packing, str]]  # with an effort; and a text about the work spent


def unsupported_beside_encoders(inputs: Inputs, name: str) -> str | None:
    """The reason why a job's samples cannot be on groups that change, beside encoders on all ranks, and the fix after
    ` | `; None where they can.
    """
    reason = unsupported_together(inputs)
    if reason:
        return reason
    if inputs.module in inputs.job.limits.inputs_per_rank:
        fix = "limits.tokens_per_rank, or strategy: modality_layout"
        return f"{name} packs samples to tokens_per_rank, and the job limits inputs_per_rank of them | {fix}"
    if inputs.job.per_batch:
        fix = "planning: ahead, or strategy: modality_layout"
        return f"{name} plans batches of several modules ahead of training | {fix}"
    kept = {*decided_fields(inputs.fixed_parallelism)} - {*STATE_FIELDS, "ranks"}
    if kept:
        where = f"{', '.join(sorted(kept))} of `{inputs.module}`"
        fix = "leave it out, or say it of an encoder under fix.layouts, or strategy: modality_layout"
        return f"groups of {name} change with every micro-batch, and the job fixes {where} | {fix}"
    every = Ranks(range(inputs.cluster.size))
    for module, fixed in inputs.job.fix.layouts.items():
        if fixed.ranks not in (None, every):
            fix = "leave ranks out, or strategy: modality_layout"
            return f"{name} has every module on all ranks, and the job fixes the ranks of `{module}` | {fix}"
        if fixed.zero == 3 and inputs.job.sync == "step":
            fix = "zero: 0, 1 or 2, or strategy: modality_layout"
            return f"{name} synchronises ranks once per step, and the job fixes zero: 3 of `{module}` | {fix}"
        if fixed.pp not in (None, 1):
            return f"{name} has encoders on one stage, and the job fixes pp of `{module}` | strategy: modality_layout"
    return None


def plan_beside_encoders(inputs: Inputs, base: Plan | None, grouping: Grouping) -> Plan:
    """The best plan found for one batch; `base`: of an earlier batch, whose layouts of encoders it keeps. Raises
    Infeasible, naming what binds with the layouts that need least memory.
    """
    inputs = with_joint_fields(inputs)
    samples, found = data_parallel_layouts(inputs), list[PackedPlan]()
    binding: Infeasible | None = None
    for encoders, orders in [(base.layouts, orders_of(base))] if base else encoder_layouts(inputs):
        layouts = with_hidden_offload(inputs, {name: {**encoders, **samples}[name] for name in inputs.model.modules})
        try:
            best = min((each.seconds for each in found), default=inf)
            done = plan_of_encoders(inputs, layouts, orders, grouping, best)
            found += [done] if done else []
        except Infeasible as error:
            binding = error
    if found:
        return min((each.plan for each in found), key=lambda plan: plan.outcome.value)
    raise binding or Infeasible(
        "no layout of the encoders on all ranks fits into half of their memory",
        where="memory",
        fix="more ranks, or strategy: modality_layout, which may give them ranks of their own",
    )


def with_hidden_offload(inputs: Inputs, layouts: dict[str, Layout]) -> dict[str, Layout]:
    """The layouts, of which encoders offload no more than hides of their shortest item, unless the job says how much: a
    search of layouts goes by the longest.
    """
    tried = TriedPlan(draft_plan(inputs, plan_uses(inputs, layouts, ()), layouts, {}, ()))
    return {
        name: with_fields(layout, offload=min(layout.offload, tried.hidden_offload(name)))
        if name != inputs.module and layout.offload and inputs.fixed_of(name).offload is None
        else layout
        for name, layout in layouts.items()
    }


class PackedPlan(NamedTuple):
    """A plan, the work spent on it, and seconds of its step by the estimate that assignments are compared by."""

    plan: Plan
    effort: str
    seconds: float


def plan_of_encoders(
    inputs: Inputs, layouts: dict[str, Layout], orders: Orders, grouping: Grouping, known: float
) -> PackedPlan | None:
    """The priced plan with these layouts of encoders; None where it is estimated no quicker than a `known` one before
    any token is taken from it. Raises Infeasible.
    """
    used = plan_uses(inputs, layouts, grouping.degrees)
    pricing = pricing_of_draft(inputs, used, layouts)
    room = TokenRoom(inputs, pricing, used)
    tokens = room.most
    for _ in range(PACKED_AGAIN):
        done = packed_plan(inputs, pricing, orders, with_tokens(used, tokens), grouping)
        if tokens == room.most and done.seconds >= known:
            return None
        plan = with_fields(done.plan, uses=used)
        beyond = room.tokens_beyond(plan)
        if not beyond:
            break
        tokens -= beyond
    require_encoders_hold_items(plan)
    return done._replace(plan=with_score(plan, done.effort))


def require_encoders_hold_items(plan: Plan) -> None:
    """Raises Infeasible where a group of an encoder has more than the job's limits allow."""
    limits = plan.uses.limits
    if limits.tokens_per_rank is None and not limits.inputs_per_rank:
        return
    for broken in violations(plan):
        raise Infeasible(
            broken.message, where="limits (what binds)", fix="inputs_per_rank of its encoder, or larger ones"
        )


class TokenRoom:
    """The tokens that a rank can hold beside what all modules hold there whatever it works on."""

    def __init__(self, inputs: Inputs, pricing: Pricing, used: PlanInputs) -> None:
        self.limit = used.limits.tokens_per_rank
        memory = PlanMemory(draft_plan(inputs, used, pricing.layouts, {}, ()), pricing)
        self.allowed = memory.allowed_bytes(0)
        self.of_token = memory.token_bytes(inputs.module)
        left = self.allowed - memory.static_bytes(0)
        self.most = int(left // self.of_token) if self.limit is None else self.limit
        if self.most < 1:
            raise states_error(memory)

    def tokens_beyond(self, plan: Plan) -> int:
        """How many tokens fewer a rank would have to hold for a plan to fit; 0 where it does."""
        if self.limit is not None:
            return 0
        beyond = (TriedPlan(plan).memory_share - 1.0) * self.allowed
        return max(0, ceil(beyond / self.of_token))


def with_tokens(used: PlanInputs, tokens: int) -> PlanInputs:
    """What a plan uses, with so many tokens of samples at most on a rank."""
    return with_fields(used, limits=with_fields(used.limits, tokens_per_rank=tokens))


def packed_plan(inputs: Inputs, pricing: Pricing, orders: Orders, used: PlanInputs, grouping: Grouping) -> PackedPlan:
    """Samples packed, and items of encoders assigned, as an unpriced plan. Raises Infeasible."""
    module, layouts, (batch,) = inputs.module, pricing.layouts, inputs.batches
    problem = packing_problem(pricing, module, used, batch.items, grouping.sync)
    packed, effort = grouping.pack(problem, inputs.effort)
    found = GroupedItems(pricing, inputs, problem, orders).best(packed)
    groups: dict[str, Group] = {}
    samples = [plan_micro_batch(each, problem, inputs.spec, groups) for each in packed]
    encoders = {name: own for name, own in found.groups.items() if name != module}
    used_by = {name: [*used_groups(own, layouts[name], found.cells[name])] for name, own in encoders.items()}
    by_number = [{name: found.cells[name][number] for name in encoders} for number in range(len(packed))]
    items = micro_batches_of(module, by_number, encoders)
    micro_batches: list[MicroBatch] = [{**each, module: own} for each, own in zip(items, samples, strict=True)]  # type: ignore[dict-item]
    plan = draft_plan(inputs, used, layouts, {**groups, **named_groups(used_by)}, tuple(micro_batches))
    edges = plan_edges(inputs, layouts, groups.values())
    return PackedPlan(with_orders(with_fields(plan, edges=edges), orders), effort, found.seconds)
