"""How many ranks each sequence spans, and how many micro-batches each rank runs (ByteScale, arXiv 2502.21231).

Decision: each sequence k on a group of d ranks, any number of them, with a share of its activations offloaded where the
transfer hides behind its own computing and fewer ranks hold it so (costs/offload.py); each rank its own list of
micro-batches. Below ZeRO-3 nothing makes ranks meet before the step's one reduction, so a rank takes

    T_r = Σ_{micro-batches of r} β_d + Σ_k q_d s_k² + l_d s_k,      the step  max_r T_r + what it costs once,

and gradients, summed over tokens, are those of equal counts. Construct what would be best if ranks met in every
micro-batch (packing/search.py), improve it by longest-first fills over the time of the step (packing/stream_search.py),
bound it by how many micro-batches ranks can run (verify/streams.py).
"""

from dataclasses import replace

from planner.costs.pricing import Pricing
from planner.costs.step.sequences import Sequences, allowed_degrees, pools, sequences
from planner.packing.balanced import best_balanced, one_by_one
from planner.packing.packed import Packed, longest_last
from planner.packing.search import search
from planner.packing.stream_search import stream_search
from planner.plan.model import Group, Plan
from planner.specs.inputs import Inputs
from planner.strategies.base import data_parallel, draft, row_of, unplannable, uses
from planner.verify.score import scored

SUMMARY = "how many ranks each sequence spans, offload, and unequal numbers of micro-batches per rank"


def supports(inputs: Inputs) -> str | None:
    """Ranks that meet once a step, and no layout that is fixed for all micro-batches."""
    if len(inputs.model.modules) == 1 and (inputs.job.sync != "step" or inputs.job.zero == 3):
        return "data_ranks lets ranks meet once a step: it needs sync: step, and zero: 0, 1 or 2"
    return unplannable(inputs, "data_ranks")


def plan(inputs: Inputs, base: Plan | None) -> Plan:
    """The best assignment found for one batch. Raises Infeasible, naming what binds."""
    layouts = data_parallel(inputs)
    used = uses(inputs, layouts, degrees(inputs))
    pricing = Pricing(used.models, layouts, inputs.cluster, used.prices, used.devices)
    (batch,) = inputs.batches
    problem = sequences(pricing, inputs.module, used, batch.items, "step")
    warm, fills = begun(problem, inputs.effort)
    packed, more = improved(problem, warm, inputs.effort)
    tried = []
    for each in dict.fromkeys((packed, warm)):  # packing counts of an exchange what nothing hides: the clock has more
        groups: dict[str, Group] = {}
        rows = tuple(row_of(row, problem, inputs.spec, groups) for row in each)
        tried.append(scored(draft(inputs, used, layouts, groups, rows), f"{fills + more} fills"))
    return min(tried, key=lambda plan: plan.outcome.value)


def degrees(inputs: Inputs) -> tuple[int, ...]:
    """The job's; else any number of ranks within a node, and of nodes; or one, where no sequence is parted."""
    if inputs.job.degrees or inputs.spec.unparted:
        return allowed_degrees(inputs.spec, inputs.cluster.size, inputs.job.degrees)
    found: set[int] = set()
    for pool in pools(inputs.cluster, data_parallel(inputs)[inputs.module].ranks):
        found |= {*range(1, min(pool.per_node, pool.ranks) + 1), *range(pool.per_node, pool.ranks + 1, pool.per_node)}
    return tuple(sorted(found))


def pack(problem: Sequences, effort: int) -> tuple[Packed, int]:
    """Construct and improve one step's packing; and the fills it took."""
    warm, fills = begun(problem, effort)
    packed, more = improved(problem, warm, effort)
    return packed, fills + more


def improved(problem: Sequences, warm: Packed, effort: int) -> tuple[Packed, int]:
    """By what it takes, and of its two directions by what hides the exchange."""
    packed, fills = stream_search(problem, warm, effort)
    return longest_last(problem, packed), fills


def begun(problem: Sequences, effort: int) -> tuple[Packed, int]:
    """As if ranks met in each micro-batch."""
    meeting = replace(problem, sync="micro_batch")
    return search(meeting, best_balanced(meeting) or one_by_one(meeting), min(effort, 1))
