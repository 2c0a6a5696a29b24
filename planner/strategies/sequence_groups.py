"""Which sequences share a micro-batch, on sequence-parallel groups of which degree (FlexSP, arXiv 2412.01523).

Decision: micro-batches m, in each a multiset of groups p of degrees d_p with Σ_p d_p ≤ N; each sequence k in one group.
A group takes β_d + q_d·Σs² + l_d·Σs (costs/cost_lines.py) and holds at most cap·d tokens. A micro-batch lasts as long
as its slowest group, because ZeRO-3's gathers synchronise all ranks; the step is the sum over micro-batches.

Unlike the paper's sort-and-chunk, all micro-batches are decided together: construct the best balanced homogeneous plan
(packing/balanced.py), improve it by longest-first fills over makespans (packing/makespan_search.py), bound it
(scoring/bounds/step_bounds.py) and solve problems that are small enough exactly (scoring/bounds/exact_grouping.py).
Where ranks are of several kinds, a group has ranks of one kind, and packings on each kind alone are candidates too.
"""

from planner.costs import PackingProblem, Pricing, allowed_degrees, packing_problem, rank_pools
from planner.packing import (
    Packing,
    best_balanced,
    best_of_each_pool,
    canonical_order,
    one_item_per_micro_batch,
    packing_seconds,
    place_packing,
    search_makespans,
)
from planner.plan.plan_file import Group, Plan
from planner.scoring import small_enough, solve_grouping, with_score
from planner.specs.inputs import Inputs
from planner.strategies.colocated import Grouping, plan_beside_encoders, unsupported_beside_encoders
from planner.strategies.plan_drafts import (
    data_parallel_layouts,
    draft_plan,
    plan_micro_batch,
    plan_uses,
    unsupported_by_groups,
    zero_of_groups,
)

SUMMARY = "sequence-parallel groups of mixed degree per micro-batch, and which sequence goes where"


def supports(inputs: Inputs) -> str | None:
    """Needs ranks that synchronise in every micro-batch, and no layout fixed for all of them."""
    if inputs.job.sync != "micro_batch" or zero_of_groups(inputs) != 3:
        return "sequence_groups synchronises all ranks in every micro-batch: it needs sync: micro_batch and zero: 3"
    if len(inputs.model.modules) > 1:
        return unsupported_beside_encoders(inputs, "sequence_groups")
    return unsupported_by_groups(inputs, "sequence_groups")


def plan(inputs: Inputs, base: Plan | None) -> Plan:
    """The best mixed groups found for one batch; `base`: of an earlier one, whose layouts it keeps. Raises Infeasible,
    naming the binding limit.
    """
    layouts = data_parallel_layouts(inputs)
    widest = max(pool.ranks for pool in rank_pools(inputs.cluster, layouts[inputs.module].ranks))
    degrees = allowed_degrees(inputs.spec, widest, inputs.job.degrees)
    if len(inputs.model.modules) > 1:
        return plan_beside_encoders(inputs, base, Grouping(degrees, "micro_batch", pack))
    used = plan_uses(inputs, layouts, degrees)
    pricing = Pricing(used.models, layouts, inputs.cluster, used.prices, used.devices)
    (batch,) = inputs.batches
    problem = packing_problem(pricing, inputs.module, used, batch.items)
    packed, effort = pack(problem, inputs.effort)
    groups: dict[str, Group] = {}
    micro_batches = tuple(plan_micro_batch(each, problem, inputs.spec, groups) for each in packed)
    return with_score(draft_plan(inputs, used, layouts, groups, micro_batches), effort)


def pack(problem: PackingProblem, effort: int) -> tuple[Packing, str]:
    """One step's packing, constructed, improved and solved exactly if small; and a text about the work spent."""
    problem = problem.with_full_micro_batches
    packed, fills = search_makespans(problem, best_balanced(problem) or one_item_per_micro_batch(problem), effort)
    packed, more = best_of_each_pool(problem, packed, effort)
    work = f"{fills + more} fills"
    if small_enough(problem, packing_seconds(problem, packed)):
        exact = place_packing(problem, solve_grouping(problem, packing_seconds(problem, packed)).micro_batches)
        if exact and packing_seconds(problem, exact) < packing_seconds(problem, packed):
            packed = canonical_order(exact, problem)
        work += " + exact program"
    return packed, work
