"""Which sequences share a micro-batch, on sequence-parallel groups of which degree (FlexSP, arXiv 2412.01523).

Decision: micro-batches m, in each a multiset of groups p of degrees d_p with Σ_p d_p ≤ N; each sequence k in one group.
A group takes β_d + q_d·Σs² + l_d·Σs (costs/lines.py) and holds at most cap·d tokens. A micro-batch lasts as long as its
slowest group, because ZeRO-3's gathers make all ranks meet; the step is the sum over micro-batches.

Unlike the paper's sort-and-chunk, all micro-batches are decided together: construct the best balanced homogeneous plan
(packing/balanced.py), improve it by longest-first fills over makespans (packing/search.py), bound it (verify/bounds.py)
and let the exact program (verify/exact.py) settle problems that are small enough for it.
"""

from planner.costs.pricing import Pricing
from planner.costs.sequences import Sequences, allowed_degrees, sequences, split
from planner.packing.balanced import best_balanced, one_by_one
from planner.packing.packed import Packed, PackedGroup, ordered, worth
from planner.packing.search import search
from planner.plan.model import Group, Plan, Row, group_name
from planner.specs.base import Ranks
from planner.specs.inputs import Inputs
from planner.specs.model import Module
from planner.strategies.base import data_parallel, draft, uses
from planner.verify.exact import prove, small_enough
from planner.verify.score import scored

SUMMARY = "sequence-parallel groups of mixed degree per micro-batch, and which sequence goes where"


def supports(inputs: Inputs) -> str | None:
    """Ranks of one kind that meet in every micro-batch."""
    if inputs.job.sync != "micro_batch" or inputs.job.layout.zero != 3:
        return "sequence_groups lets all ranks meet in every micro-batch: it needs sync: micro_batch and zero: 3"
    if len({kind.kind for kind in inputs.cluster.ranks}) > 1:
        return "sequence_groups needs ranks of one kind"
    return None


def plan(inputs: Inputs, base: Plan | None) -> Plan:
    """The best mixed groups found for one batch. Raises Infeasible, naming what binds."""
    layouts = data_parallel(inputs)
    degrees = allowed_degrees(inputs.spec, inputs.cluster.size, inputs.job.degrees)
    used = uses(inputs, layouts, degrees)
    pricing = Pricing(used.models, layouts, inputs.cluster, used.prices)
    (batch,) = inputs.batches
    problem = sequences(pricing, inputs.module, used, batch.items)
    packed, effort = pack(problem, inputs.effort)
    balanced = best_balanced(problem) if straddling(inputs, degrees) else None
    plans = []
    for candidate in [packed, balanced] if balanced else [packed]:
        groups: dict[str, Group] = {}
        rows = tuple(place(row, inputs.spec, groups) for row in candidate)
        plans.append(scored(draft(inputs, used, layouts, groups, rows), effort))
    return min(plans, key=lambda made: made.outcome.value)


def straddling(inputs: Inputs, degrees: tuple[int, ...]) -> bool:
    """Whether a group can come to lie across a border of nodes, where it takes longer than the aligned one priced here.

    Then only the placed plans say which is better, and the balanced one is placed as well.
    """
    return any(size % degree and degree % size for size in [inputs.cluster.levels[0].ranks] for degree in degrees)


def pack(problem: Sequences, effort: int) -> tuple[Packed, str]:
    """Construct, improve, prove: one step's packing, and the work it took."""
    packed, fills = search(problem, best_balanced(problem) or one_by_one(problem), effort)
    work = f"{fills} fills"
    if small_enough(problem, worth(problem, packed)):
        rows = prove(problem, worth(problem, packed)).rows
        exact: Packed = tuple(tuple(PackedGroup(degree, items) for degree, items in row) for row in rows)
        if exact and worth(problem, exact) < worth(problem, packed):
            packed = ordered(exact, problem)
        work += " + exact program"
    return packed, work


def place(row: tuple[PackedGroup, ...], module: Module, groups: dict[str, Group]) -> Row:
    """Groups on consecutive ranks, widest first: powers of two then start at multiples of their own size."""
    placed: Row = {}
    start = 0
    for group in row:
        ranks = Ranks(range(start, start + group.degree))
        name = group_name(ranks)
        groups[name] = Group(ranks=ranks, split=split(module, group.degree))  # type: ignore[arg-type]
        placed[name] = group.items
        start += group.degree
    return placed
