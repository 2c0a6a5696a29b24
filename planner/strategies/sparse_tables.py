"""Where embedding tables are, and how many groups of ranks have each (2D sparse parallelism, arXiv 2508.03854).

Decision: T ranks are M groups of N = T / M; in each group every table t once, cut in a way o whose shards are on ranks
r. The dense part is data-parallel over all ranks; its plan is given, and the tables are beside it:

    step = dense + min over M, x of max_r Σ_t x_tor · s_to,      Σ_t x_tor · b_to ≤ memory that the dense part leaves,

s_to and b_to: seconds of lookup, exchange and averaging, and bytes, of a shard (costs/tables/shard_options.py). Each M
is searched (strategies/sharded_tables/search.py) and bounded (costs/tables/table_bound.py); small ones are judged by
the exact program (strategies/sharded_tables/exact_placement.py).
"""

from dataclasses import replace

from planner.costs import pricing_of
from planner.plan.node_storage import host_bytes
from planner.plan.plan_file import Plan
from planner.scoring import PlanMemory, score, with_score
from planner.specs.base import with_fields
from planner.specs.inputs import Inputs
from planner.strategies.sharded_tables import TableProblem, choose_groups, placement_error

SUMMARY = "embedding tables: in how many groups of ranks, how each is cut, and where its shards are"


def supports(inputs: Inputs) -> str | None:
    """Needs tables."""
    if not inputs.tables:
        return "the job has no embedding tables | tables: {from: FILE}"
    return None


def inputs_for_base(inputs: Inputs) -> Inputs:
    """The dense part alone."""
    return replace(inputs, tables={}, job=with_fields(inputs.job, tables=None))


def plan(inputs: Inputs, base: Plan | None) -> Plan:
    """The dense part's plan with the tables placed beside it. Raises Infeasible."""
    assert base and inputs.job.tables, "what refines a plan is handed one"
    problem = table_problem(inputs, base)
    found = choose_groups(problem, inputs.effort)
    if found is None:
        raise placement_error(problem, str(inputs.file))
    asked = with_fields(base.uses.asked, tables=inputs.job.tables)
    uses = with_fields(base.uses, tables=inputs.tables, asked=asked)
    tried = f"{len(found.tried)} numbers of groups"
    return with_score(with_fields(base, embeddings=found.embeddings, uses=uses), f"{base.outcome.effort} + {tried}")


def table_problem(inputs: Inputs, base: Plan) -> TableProblem:
    """What is to be placed beside a dense part: a rank has for tables what its fullest leaves."""
    scored, memory = score(base), PlanMemory(base, pricing_of(base))
    fullest = scored.fullest_rank
    left = memory.allowed_bytes(fullest) - scored.peak_bytes
    per_node = min(inputs.cluster.size, inputs.cluster.ranks[0].per_node)
    assert inputs.job.tables, "only jobs with tables are planned"
    return TableProblem(
        tables=inputs.tables,
        cluster=inputs.cluster,
        device=inputs.device,
        asked=inputs.job.tables,
        samples=len(inputs.batches[0].items) / inputs.cluster.size,
        room=max(0.0, left / (1.0 + memory.accounting(fullest).fragmentation)),
        host_room=host_bytes(inputs.cluster, inputs.devices, 0) / per_node,
    )
