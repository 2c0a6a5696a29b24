"""Passes of encoders beside the passes and exchanges of an LLM on the same ranks (Optimus, arXiv 2408.03505).

Decision: where each pass of an encoder stands among those of the LLM, whose layouts, order and samples are those of
the refined strategy. Colocated, all forwards are in front of the LLM and all backwards behind it. Instead, a pass may
have a stream of its own beside the LLM's passes, whose exchanges leave the device idle:

    seconds hidden = (1 − w) · (min(S, c) + min(s, C))     w: of the shorter, what is waited for     SideBySide (costs)
    a pass begins in front of a slot, and takes the slots behind it until Σ S ≥ c            GapStream (gap_schedule.py)
    forwards end before the LLM reads (EF ≤ F), backwards begin when gradients are there (EB ≥ B)           the same
    backwards behind the LLM's last: beside its reduction, or beside its gather of updated weights     placed_plan
    as many micro-batches to a pass as is quickest, the fewer the more find a gap    numbers_of_passes (encoder_modes)
    T simulated                                                                                         plan, here

c and s are seconds of compute and exchange of the pass, C and S of the slots. Optimus cuts layers into kernels, as a
layer takes longer than an exchange; here passes are whole, and go on from one exchange to the next at the rate at which
these leave room. It keeps what it starts from where nothing is quicker.
"""

from collections.abc import Iterator
from math import inf
from typing import NamedTuple

from planner.costs import SharedPrices, pricing_of
from planner.errors import Infeasible, Unsupported
from planner.layouts import unbounded_jointly, with_joint_fields
from planner.plan.join_plans import round_digits
from planner.plan.legal.plan_laws import require_legal
from planner.plan.plan_file import Alternative, Plan
from planner.scoring import over_joint_space, with_score
from planner.specs.base import with_fields
from planner.specs.inputs import Inputs
from planner.strategies.assignment.encoder_orders import EncoderOrder
from planner.strategies.bubbles import (
    POLICIES,
    GapProblem,
    GapSchedule,
    GapStream,
    baseline_alternatives,
    encoder_modes,
    gap_problem,
    numbers_of_passes,
    placed,
)
from planner.strategies.static import draft_of_layouts, fitting_seconds
from planner.units import percent

SUMMARY = "passes of encoders in the gaps of the LLM's: beside its exchanges, on the ranks that they share"

NAME = "encoder_bubbles"
MOST_PLACED = 60  # passes of a step, each on a line of its own: more can hardly be read


class Tried(NamedTuple):
    """A plan with the seconds of its step by simulation; infinite where it does not fit."""

    plan: Plan
    seconds: float
    order: str = ""  # of the encoders' passes


class Colocated(NamedTuple):
    """A plan with all forwards of encoders in front of the LLM and all backwards behind it, and what gaps it has."""

    tried: Tried
    problem: GapProblem
    hidden_at_most: float  # seconds


def supports(inputs: Inputs) -> str | None:
    """Needs software that can be told where passes stand."""
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
    inputs = with_joint_fields(inputs)
    reason = without_gaps(inputs, base)
    if reason:
        return as_before(base, reason)
    drafts = sorted(colocated_plans(inputs, base), key=lambda each: each.tried.seconds)
    if not drafts:
        return as_before(base, "some sample is more than a rank may hold where all forwards are in front")
    best, of, tried = Tried(base, base.prediction.step_seconds), drafts[0], 0
    for draft in drafts:
        if draft.tried.seconds - draft.hidden_at_most < best.seconds:
            found = [*placements(draft)]
            tried += len(found)
            quickest = min(found, key=lambda one: one.seconds, default=best)
            best, of = (quickest, draft) if quickest.seconds < best.seconds else (best, of)
    more = [*varied(of)]
    best, tried = min((best, *more), key=lambda one: one.seconds), tried + len(more)
    effort = f"{base.outcome.effort}; {len(drafts)} colocated, {tried} placements simulated: {best.order}"
    chosen = as_before(base, f"of {tried} placements in gaps, none is quicker than encoders where they are")
    if best.plan is not base:
        chosen = with_fields(scored(inputs, best.plan, effort), alternatives=base.alternatives)
    baselines = baseline_alternatives(inputs, chosen)
    names = {each.strategy for each in baselines}
    others = (each for each in chosen.alternatives if each.strategy not in names)
    return with_fields(chosen, alternatives=(*colocated_alternatives((drafts[0], of), chosen), *baselines, *others))


def as_before(base: Plan, reason: str) -> Plan:
    """The plan as it is, with the reason why its encoders stay where they are."""
    return with_fields(base, alternatives=(Alternative(strategy=NAME, because=reason), *base.alternatives))


def without_gaps(inputs: Inputs, base: Plan) -> str:
    """Why encoders stay where they are; empty where there is something to try."""
    llm = base.layouts[inputs.module]
    if all({*layout.ranks}.isdisjoint(llm.ranks) for name, layout in base.layouts.items() if name != inputs.module):
        return f"encoders are on ranks of their own, where `{inputs.module}` leaves no gaps"
    problem = gap_problem(base, inputs.module, pricing_of(base))
    if not problem.once and not any(slot.exchanged for slot in problem.slots):
        return f"`{inputs.module}` exchanges nothing beside which a pass could run"
    return "" if problem.passes else f"`{inputs.module}` reads no pass of an encoder itself"


def colocated_plans(inputs: Inputs, base: Plan) -> Iterator[Colocated]:
    """Plans of the base's layouts with all forwards in front of the LLM and all backwards behind it, for each mode of
    the encoders and number of micro-batches that a pass serves.
    """
    count, shared = len(base.steps[0].micro_batches), SharedPrices()
    for layouts in encoder_modes(inputs, base.layouts):
        for passes in numbers_of_passes(inputs, layouts, count):
            order = EncoderOrder(serves=count // passes, ahead=None)
            try:
                draft = draft_of_layouts(inputs, layouts, orders=[dict.fromkeys(inputs.batches[0].streams, order)])
            except Infeasible:
                continue
            pricing = pricing_of(draft, shared)
            problem, waited = gap_problem(draft, inputs.module, pricing), pricing.waited_shares[0]
            yield Colocated(Tried(draft, fitting_seconds(draft, shared)), problem, problem.hidden_at_most(waited))


def placements(draft: Colocated) -> Iterator[Tried]:
    """A colocated plan with backwards beside the LLM's exchanges once a step, and with passes beside its own."""
    stream = GapStream(draft.problem)
    for order, found in {"colocated": stream.colocated, "early": stream.with_fewest_in_front("early")}.items():
        yield from in_order(draft, order, found)


def varied(draft: Colocated) -> Iterator[Tried]:
    """The same with forwards as late as can be, whose outputs are held for as short as can be; and with the last
    backward behind.
    """
    stream = GapStream(draft.problem)
    late, early = (stream.with_fewest_in_front(policy) for policy in POLICIES[::-1])
    for order, found in {"late": late, "early, last behind": early.with_last_behind}.items():
        yield from in_order(draft, order, found)


def in_order(draft: Colocated, order: str, found: GapSchedule) -> Iterator[Tried]:
    """A schedule of gaps as plans: with the last backwards beside the LLM's reduction, or one beside its gather."""
    shared = SharedPrices()
    for after_update in range(min(len(found.behind), 1) + 1):
        plan = placed(draft.tried.plan, found, draft.problem, after_update)
        if len(plan.steps[0].placements) <= MOST_PLACED:
            yield Tried(plan, fitting_seconds(plan, shared), order)


def scored(inputs: Inputs, plan: Plan, effort: str) -> Plan:
    """A placed plan with its score, and the bound over all plans of the job where there is one."""
    require_legal(plan, str(inputs.file))
    found = with_score(plan, effort)
    return found if unbounded_jointly(inputs) else over_joint_space(found)


def colocated_alternatives(drafts: tuple[Colocated, Colocated], chosen: Plan) -> Iterator[Alternative]:
    """All forwards in front and all backwards behind, the quickest way, `drafts`' first; and of the second, that with
    the chosen layouts, how much of what gaps could hide is hidden, which is no plan.
    """
    (quickest, of), value = drafts, chosen.outcome.value
    if quickest.tried.seconds == inf:
        yield Alternative(strategy="colocated", because="all forwards in front and all backwards behind do not fit")
        return
    slower = percent(quickest.tried.seconds / value - 1.0)
    because = f"all forwards in front of the LLM, all backwards behind: {slower} slower"
    yield Alternative(strategy="colocated", value=quickest.tried.seconds, because=because)
    if of.hidden_at_most and of.tried.seconds < inf:
        share = percent((of.tried.seconds - value) / of.hidden_at_most)
        because = f"no plan: every gap filled at its rate, and nothing waited for; {share} of that is hidden"
        about = round_digits(of.tried.seconds - of.hidden_at_most)
        yield Alternative(strategy="relaxed_fill", because=because, about=about)
