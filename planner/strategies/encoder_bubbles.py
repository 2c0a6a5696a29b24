"""Passes of encoders beside the passes and exchanges of an LLM on the same ranks (Optimus, arXiv 2408.03505).

Decision: where each pass of an encoder stands among those of the LLM, whose layouts, order and samples are those of
the refined strategy. Colocated, all forwards are in front of the LLM and all backwards behind it. Instead, a pass may
have a stream of its own beside the LLM's passes, whose exchanges leave the device idle:

    seconds hidden = (1 − w) · (min(S, c) + min(s, C))     w: of the shorter, what is waited for     SideBySide (costs)
    a pass begins in front of a slot, and takes the slots behind it until Σ S ≥ c            GapStream (gap_schedule.py)
    forwards end before the LLM reads (EF ≤ F), backwards begin when gradients are there (EB ≥ B)           the same
    backwards behind the LLM's last: beside its reduction, or beside its gather of updated weights     placed_plan
    as many micro-batches to a pass as is quickest, the fewer the more find a gap                granularities, here
    T simulated                                                                                     quickest, here

c and s are seconds of compute and exchange of the pass, C and S of the slots. Optimus cuts layers into kernels, as a
layer takes longer than an exchange; here passes are whole, and go on from one exchange to the next at the rate at which
these leave room. It keeps what it starts from where nothing is quicker.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

from planner.costs import SharedPrices, pricing_of
from planner.errors import Infeasible, InputError, Unsupported
from planner.layouts import unbounded_jointly
from planner.plan.join_plans import round_digits
from planner.plan.legal.plan_laws import require_legal
from planner.plan.mesh.even_stages import even_stages
from planner.plan.plan_file import Alternative, Layout, Plan
from planner.scoring import TriedPlan, over_joint_space, with_score
from planner.specs.base import with_fields
from planner.specs.inputs import Inputs
from planner.strategies.bubbles import POLICIES, GapStream, colocated_layouts, gap_problem, placed
from planner.strategies.static import draft_of_layouts
from planner.units import percent

SUMMARY = "passes of encoders in the gaps of the LLM's: beside its exchanges, on the ranks that they share"

MOST_PASSES = 16  # of an encoder in a step
NAME = "encoder_bubbles"


@dataclass(frozen=True, slots=True)
class Tried:
    """A plan with the seconds of its step by simulation; infinite where it does not fit."""

    plan: Plan
    seconds: float
    policy: str = ""  # by which it places passes


def supports(inputs: Inputs) -> str | None:
    """Needs software that can be told where passes stand, and that computes while it exchanges."""
    if inputs.software.knobs.orders == "named":
        name = inputs.software.name or "the software"
        return f"{name} runs passes in the order of its schedules, and nowhere else | software: any, or one of yours"
    return None


def inputs_for_base(inputs: Inputs) -> Inputs:
    """The job as given to the refined strategy."""
    return inputs


def plan(inputs: Inputs, base: Plan | None) -> Plan:
    """The base with the best placement found, or as it is. Raises Infeasible."""
    if base is None:
        raise Unsupported("encoder_bubbles starts from layouts", where="strategy", fix="solve the job whole")
    reason = without_gaps(inputs, base)
    if reason:
        return with_fields(base, alternatives=(Alternative(strategy=NAME, because=reason), *base.alternatives))
    drafts = [*colocated_drafts(inputs, base)]
    colocated = min(drafts, key=lambda each: each.seconds)
    best = Tried(base, base.prediction.step_seconds)
    tried = 0
    for draft in sorted(drafts, key=lambda each: each.seconds):
        for each in placements(inputs, draft):
            tried += 1
            best = min(best, each, key=lambda one: one.seconds)
    scored = base
    if best.plan is not base:
        require_legal(best.plan, str(inputs.file))
        scored = with_score(best.plan, f"{base.outcome.effort}, {tried} placements simulated, {best.policy}")
        scored = scored if unbounded_jointly(inputs) else over_joint_space(scored)
    return with_fields(scored, alternatives=(colocated_alternative(colocated, scored), *base.alternatives))


def without_gaps(inputs: Inputs, base: Plan) -> str:
    """Why encoders stay where they are; empty where there is something to try."""
    llm, encoders = base.layouts[inputs.module], [name for name in base.layouts if name != inputs.module]
    apart = [name for name in encoders if {*base.layouts[name].ranks}.isdisjoint(llm.ranks)]
    if len(apart) == len(encoders):
        return f"{' and '.join(f'`{name}`' for name in apart)} on ranks of their own have no gaps of `{inputs.module}`"
    problem = gap_problem(base, inputs.module, pricing_of(base))
    if not any(slot.exchanged for slot in problem.slots):
        return f"`{inputs.module}` exchanges nothing within its passes, beside which another could run"
    if not problem.passes:
        return f"`{inputs.module}` reads no pass of an encoder itself"
    return ""


def colocated_drafts(inputs: Inputs, base: Plan) -> Iterator[Tried]:
    """Plans of the base's layouts with all forwards in front of the LLM and all backwards behind it, for each number of
    micro-batches that a pass may serve.
    """
    count, shared = len(base.steps[0].micro_batches), SharedPrices()
    for layouts in encoder_modes(inputs, base.layouts):
        serves = count
        while serves >= 1 and count / serves <= MOST_PASSES:
            draft = draft_of_layouts(inputs, colocated_layouts(layouts, inputs.module, count, serves))
            yield Tried(draft, seconds_of(draft, shared))
            serves //= 2


def encoder_modes(inputs: Inputs, layouts: dict[str, Layout]) -> Iterator[dict[str, Layout]]:
    """The layouts of the base, then those with encoders in pipelines of as many stages as the LLM's, which each rank
    has a stage of: an exchange of gradients is that much smaller.
    """
    yield layouts
    llm, changed = layouts[inputs.module], {**layouts}
    for name, layout in layouts.items():
        module, fixed = inputs.model.modules[name], inputs.fixed_of(name)
        able = llm.pp > layout.pp and layout.dp * layout.pp % llm.pp == 0 and module.layers >= llm.pp
        if name != inputs.module and able and fixed.pp is None and fixed.dp is None and not module.unpipelined_reason:
            stages = even_stages(module.layers, llm.pp)
            changed[name] = with_fields(
                layout, pp=llm.pp, dp=layout.dp * layout.pp // llm.pp, stages=stages, rank_order=llm.rank_order
            )
    if changed != layouts:
        yield changed


def placements(inputs: Inputs, draft: Tried) -> Iterator[Tried]:
    """A colocated plan with its passes placed, by each policy."""
    problem = gap_problem(draft.plan, inputs.module, pricing_of(draft.plan))
    stream, shared = GapStream(problem), SharedPrices()
    for policy in POLICIES:
        found = stream.with_fewest_in_front(policy)
        for after_update in range(min(len(found.behind), 1) + 1):
            plan = placed(draft.plan, inputs.module, found, problem.slots, after_update)
            yield Tried(plan, seconds_of(plan, shared), f"forwards {policy}")


def seconds_of(plan: Plan, shared: SharedPrices) -> float:
    """Seconds of a plan's step by simulation; infinite where it does not fit."""
    tried = TriedPlan(plan, shared)
    try:
        tried.require_memory()
        return round_digits(tried.step_seconds())
    except (Infeasible, InputError):
        return inf


def colocated_alternative(colocated: Tried, chosen: Plan) -> Alternative:
    """The same layouts with all forwards in front and all backwards behind, beside the chosen plan."""
    if colocated.seconds == inf:
        return Alternative(strategy="colocated", because="all forwards in front and all backwards behind do not fit")
    slower = percent(colocated.seconds / chosen.outcome.value - 1.0)
    because = f"all forwards in front of the LLM and all backwards behind it: {slower} slower"
    return Alternative(strategy="colocated", value=colocated.seconds, because=because)
