"""One static layout of a module over equal ranks, for all micro-batches: the layout that other strategies start from.

Decision: tp, cp of any size (by heads, around a ring, or both), pp with vpp chunks per rank or zero bubble, how many
layers each stage has, what is exchanged beside compute, ep and etp of experts on a mesh of their own, ZeRO stage and
copies of its shards, sequences per micro-batch; the quickest dispatch of tokens to experts, the quickest order of
ranks, the parts that layers recompute, as few whole layers and as little offload as fit are solved for; dp is the rest.
Every layout is priced by the closed form

    T = m·t_slowest + (Σ_stages t − t_slowest)/vpp + sends + exposed exchange + update + overhead

(costs/step/static_step.py) and kept if its probability of running out of memory is one that the job allows
(costs/memory/footprint.py). The quickest few are simulated with the real sequences, longest first to the replica and
micro-batch with the least load, as long as their own bounds leave room below the best one, and that of least expected
seconds is chosen (scoring/expected_seconds.py). The bound is over the whole space (layouts/bounds/space_bound.py), with
layers divided in any way (layouts/bounds/split_bound.py).

Over ranks of several kinds stages have layers and replicas have sequences as they are quick (strategies/mixed_kinds/).

Where all ranks divide badly, it is also done on fewer that divide better (layouts/space/rank_counts.py), as far as the
work alone leaves room below the best so far; the others are without the module then.

The space is Megatron-LM's (arXiv 2104.04473, 2205.05198, 2504.14960) with ZeRO's stages (arXiv 1910.02054).
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from planner.errors import Infeasible
from planner.layouts import (
    LayoutProblem,
    divided_layouts,
    divisions_near,
    fixed_fields,
    layout_bounds,
    layout_problem,
    layouts_of,
    least_divided,
    rank_counts,
    screen,
    space_bound,
    with_joint_fields,
    with_searched_parts,
)
from planner.plan.descriptions import placed_layout
from planner.plan.plan_file import Alternative, Plan
from planner.scoring import (
    SPACE,
    bounded_value,
    least_expected,
    least_work,
    over_space,
    passed_over,
    plan_doubt,
    plan_space_seconds,
    with_bound,
    with_score,
)
from planner.specs.base import with_fields
from planner.specs.hardware.cluster import rank_kinds
from planner.specs.inputs import Inputs
from planner.strategies.assignment.module_items import require_token_limit
from planner.strategies.mixed_kinds.subsets import mixed_kinds_plan
from planner.strategies.one_module.numeric_alternatives import numeric_alternatives
from planner.strategies.one_module.plain_choice import PlainChoice
from planner.strategies.one_module.simulated_layouts import layout_alternatives, simulate_best
from planner.strategies.static.infeasible_layout import infeasible_error
from planner.strategies.static.tried_layouts import TriedLayouts, Tries, chosen_plan
from planner.units import percent

FARTHEST = 1.05  # times the quickest by the closed form: layouts of which a mean rank takes longer are no rivals
SUMMARY = "one static layout: tensor, context, pipeline, expert and data parallelism, ZeRO, recomputation, micro-batch"


def supports(inputs: Inputs) -> str | None:
    """Needs sequences that are all alike to it."""
    if inputs.job.fix.items:
        return "parallel_search treats all sequences alike: it does not take fix.items"
    return None


def plan(inputs: Inputs, base: Plan | None) -> Plan:
    """The best layout found. Raises Infeasible, naming the binding limit."""
    inputs, refused = with_joint_fields(inputs), list[Infeasible]()
    if len(rank_kinds(inputs.cluster)) > 1:
        return mixed_kinds_plan(inputs, lambda on_kind: plan(on_kind, None))
    whole, found = layout_problem(inputs), list[Plan]()
    for count in rank_counts(inputs.cluster.size, inputs.fixed_parallelism):
        if found and least_work(found[0]) / count >= min(bounded_value(each.outcome) for each in found):
            break  # no plan on so few ranks is as quick, nor a bound less
        try:
            found.append(plan_on(inputs, replace(whole, trained=replace(whole.trained, ranks=count))))
        except Infeasible as error:
            refused.append(error)
    chosen = least_expected(found, lambda each: bounded_value(each.outcome), plan_doubt)
    if chosen is None:
        raise refused[0]
    some = plan_space_seconds(chosen) if refused else min(each.outcome.bound for each in found)
    bounded = over_space(chosen, some) if whole.by_rates else chosen
    return with_other_counts(bounded, [each for each in found if each is not chosen])


def plan_on(inputs: Inputs, problem: LayoutProblem) -> Plan:
    """The best layout on so many ranks, with the bound over all of these. Raises Infeasible."""
    fixed = fixed_fields(inputs)
    layouts = layouts_of(problem, fixed)
    if not len(layouts["tp"]):
        raise infeasible_error(problem, None, fixed)
    screened = with_searched_parts(problem, screen(problem, layouts))
    least = float(screened.seconds[screened.fits(problem)].min(initial=np.inf))
    bounds = layout_bounds(problem, screened.layouts, least * FARTHEST)
    bound = space_bound(problem, bounds)
    division = least_divided(problem, layouts, bound.seconds)
    divided = divided_layouts(problem, divisions_near(problem, layouts, division, bound.seconds), screened)
    simulated = simulate_best(inputs, problem, screened, bounds, divided)
    if not simulated:
        raise infeasible_error(problem, screened, fixed)

    done = Tries({str(each.layout): each for each in simulated})
    quickest = done.quickest_scored(scored_within_limit)
    if quickest is None:
        raise done.refused[0]
    fitting, choice = done.rising, PlainChoice(inputs, problem, screened, divided, done.tried)
    chosen, usual = choice.plainest(quickest, scored_within_limit), choice.conventional()
    others = [each for each in fitting if each.layout != chosen.layout]
    alternatives = (
        *layout_alternatives(inputs.module, problem, chosen, others, screened),
        *numeric_alternatives(inputs, problem, chosen, screened),
    )
    work = f"{bound.layouts} layouts priced, {bound.excluded} excluded by memory, {len(choice.known)} simulated"
    plan = with_fields(chosen_plan(chosen, quickest, usual, work), alternatives=alternatives)
    seconds, by = (division.seconds, SPACE) if problem.by_rates else (plan.outcome.bound, plan.outcome.bound_by)
    return with_fields(plan, outcome=with_bound(plan.outcome, seconds, by))


def scored_within_limit(tried: TriedLayouts) -> Plan:
    """The plan of a layout with its score. Raises Infeasible where micro-batches have more tokens than the job allows,
    or hold more than in the closed form.
    """
    assert tried.plan, "a plan is scored"
    require_token_limit(tried.plan)
    return with_score(tried.plan, "")


def with_other_counts(chosen: Plan, others: Sequence[Plan]) -> Plan:
    """The plan with the best one on each other number of ranks among its alternatives."""
    (layout,) = chosen.layouts.values()
    ranks = layout.ranks if len(layout.ranks) < chosen.size else None
    own = [
        with_fields(each, layouts={module: with_fields(own, ranks=ranks) for module, own in each.layouts.items()})
        for each in chosen.alternatives
    ]
    return with_fields(chosen, alternatives=(*(on_other_ranks(each, chosen) for each in others), *own))


def on_other_ranks(tried: Plan, chosen: Plan) -> Alternative:
    """The best plan on another number of ranks, as an alternative."""
    ((name, layout),), ratio = tried.layouts.items(), tried.outcome.value / chosen.outcome.value
    slower = f"{percent(ratio - 1.0)} slower: on {len(layout.ranks)} of {tried.size} ranks"
    return Alternative(
        strategy="parallel_search",
        zero=layout.zero,
        sync=tried.steps[0].sync,
        value=tried.outcome.value,
        because=passed_over(chosen, tried, ratio) or slower,
        layouts={name: placed_layout(layout, tried.size)},
    )
