"""How many ranks each sequence spans, and how many micro-batches each rank runs (ByteScale, arXiv 2502.21231).

Decision: each sequence k on a group of d ranks, any number of them, with a share of its activations offloaded where the
transfer hides behind its own compute and lets fewer ranks hold it (costs/memory/offload.py); each rank its own list of
micro-batches. Below ZeRO-3 ranks synchronise only in the step's one reduction, so a rank takes

    T_r = Σ_{micro-batches of r} β_d + Σ_k q_d s_k² + l_d s_k,      the step  max_r T_r + its constants,

and gradients, summed over tokens, are those of equal counts. Construct the best packing for ranks that synchronise in
every micro-batch (packing/makespan_search.py), improve it by longest-first fills over the seconds of the step
(packing/stream_search.py), and bound it by the number of micro-batches that ranks can run
(scoring/bounds/stream_bound.py).
"""

from dataclasses import replace

from planner.costs import PackingProblem, Pricing, allowed_degrees, packing_problem, rank_pools
from planner.packing import (
    Packing,
    best_balanced,
    longest_work_last,
    one_item_per_micro_batch,
    search_makespans,
    stream_search,
)
from planner.plan.plan_file import Group, Plan
from planner.scoring import with_score
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

SUMMARY = "how many ranks each sequence spans, offload, and unequal numbers of micro-batches per rank"


def supports(inputs: Inputs) -> str | None:
    """Needs ranks that synchronise once per step, and no layout fixed for all micro-batches."""
    if inputs.job.sync != "step" or zero_of_groups(inputs) == 3:
        return "data_ranks synchronises ranks once per step: it needs sync: step, and zero: 0, 1 or 2"
    if len(inputs.model.modules) > 1:
        return unsupported_beside_encoders(inputs, "data_ranks")
    return unsupported_by_groups(inputs, "data_ranks")


def plan(inputs: Inputs, base: Plan | None) -> Plan:
    """The best assignment found for one batch; `base`: of an earlier one, whose layouts it keeps. Raises Infeasible,
    naming the binding limit.
    """
    if len(inputs.model.modules) > 1:
        return plan_beside_encoders(inputs, base, Grouping(candidate_degrees(inputs), "step", pack))
    layouts = data_parallel_layouts(inputs)
    used = plan_uses(inputs, layouts, candidate_degrees(inputs))
    pricing = Pricing(used.models, layouts, inputs.cluster, used.prices, used.devices)
    (batch,) = inputs.batches
    problem = packing_problem(pricing, inputs.module, used, batch.items, "step")
    warm, fills = warm_start(problem, inputs.effort)
    packed, more = improve_packing(problem, warm, inputs.effort)
    tried = []
    for packing in dict.fromkeys((packed, warm)):  # packing counts only exposed exchange, so the simulation decides
        groups: dict[str, Group] = {}
        micro_batches = tuple(plan_micro_batch(each, problem, inputs.spec, groups) for each in packing)
        tried.append(with_score(draft_plan(inputs, used, layouts, groups, micro_batches), f"{fills + more} fills"))
    return min(tried, key=lambda plan: plan.outcome.value)


def candidate_degrees(inputs: Inputs) -> tuple[int, ...]:
    """The job's degrees; else any number of ranks within a node, and of nodes; or 1 for unsharded sequences."""
    if inputs.job.degrees or inputs.spec.unshardable_reason:
        return allowed_degrees(inputs.spec, inputs.cluster.size, inputs.job.degrees)
    found: set[int] = set()
    for pool in rank_pools(inputs.cluster, data_parallel_layouts(inputs)[inputs.module].ranks):
        found |= {*range(1, min(pool.per_node, pool.ranks) + 1), *range(pool.per_node, pool.ranks + 1, pool.per_node)}
    return tuple(sorted(found))


def pack(problem: PackingProblem, effort: int) -> tuple[Packing, str]:
    """One step's packing, constructed and improved; and a text about the work spent."""
    warm, fills = warm_start(problem, effort)
    packed, more = improve_packing(problem, warm, effort)
    return packed, f"{fills + more} fills"


def improve_packing(problem: PackingProblem, warm: Packing, effort: int) -> tuple[Packing, int]:
    """The improved packing, in the direction that hides more of the exchange; and the number of fills spent."""
    packed, fills = stream_search(problem, warm, effort)
    return longest_work_last(problem, packed), fills


def warm_start(problem: PackingProblem, effort: int) -> tuple[Packing, int]:
    """The best packing for ranks that synchronise in each micro-batch, as the warm start; and the fills spent."""
    synchronous = replace(problem, sync="micro_batch")
    return search_makespans(
        synchronous, best_balanced(synchronous) or one_item_per_micro_batch(synchronous), min(effort, 1)
    )
