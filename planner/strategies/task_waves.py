"""Rows of several tasks on one cluster: which tower works on how many of them, on which ranks, in which wave.

Decision: each tower m is split by rows into pieces of x rows on n replicas; pieces stand on ranks of their own at a
time, and a wave is a micro-batch:

    T ≈ max over replicas r of Σ over pieces on r of t_m(⌈x / n⌉)     t_m: both passes     TowerSeconds (costs)
    Σ over pieces of m of x = rows of all tasks that read m            allocate (placer/allocate.py)
    T simulated, with losses, reductions and updates                   scored, here
    Σ over towers of a rank of their bytes ≤ what it may hold          more recomputation, then wider replicas
    T ≥ the least seconds in which the work of all towers has room     wave_seconds (scoring/bounds/wave_bound.py)

Spindle (arXiv 2409.03365) splits the layers of a tower between two widths, and sends activations from wave to wave;
here rows are split, and what a rank computes stays there until its backward. Towers that share ranks reduce gradients
over the ranks that each has, once a step.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from planner.costs import TowerSeconds
from planner.errors import Infeasible, InputError
from planner.plan.join_plans import round_digits
from planner.plan.legal.plan_laws import require_legal
from planner.plan.plan_file import Alternative, Layout, Plan
from planner.scoring import with_score
from planner.specs.base import with_fields
from planner.specs.inputs import Inputs
from planner.strategies.waves.towers import layouts_on_all_ranks, towers_of
from planner.strategies.waves.wave_baselines import marginal_gain, sequential
from planner.strategies.waves.wave_passes import malleable_optimum, wave_passes
from planner.strategies.waves.wave_plan import TowerPass, wave_plan
from planner.units import percent

SUMMARY = "several tasks: each tower's rows over just as many ranks as they scale to, side by side in waves"

MEMORY_LADDER = ("none", "selective", "full")  # recomputation, as little as fits
WIDEST = 8  # ranks of a replica at most
Scored = tuple[Plan, Mapping[str, Layout], Mapping[str, TowerSeconds]]


def supports(inputs: Inputs) -> str | None:
    """Needs layouts in one stage, without ZeRO-3."""
    for name in inputs.model.modules:
        fixed = inputs.fixed_of(name)
        if (fixed.pp or 1) > 1 or (fixed.cp or 1) > 1:
            return f"task_waves has `{name}` in replicas of tensor ranks alone | leave out pp and cp"
        if fixed.zero == 3:
            return "ZeRO-3 gathers in every micro-batch, and waves of a tower are on other ranks each | zero: 2 at most"
    return None


def plan(inputs: Inputs, base: Plan | None) -> Plan:
    """The best plan found. Raises Infeasible where no recomputation and no replica makes it fit."""
    refused = list[Infeasible]()
    for layouts in layouts_by_memory(inputs):
        towers = towers_of(inputs, layouts)
        try:
            found = quickest(inputs, layouts, towers)
        except Infeasible as error:
            refused.append(error)
            continue
        require_legal(found, str(inputs.file))
        return with_fields(found, alternatives=tuple(alternatives(inputs, layouts, towers, found)))
    raise refused[0]


def layouts_by_memory(inputs: Inputs) -> Iterator[dict[str, Layout]]:
    """Layouts of all towers that hold ever less on a rank: more recomputed, then in replicas of more ranks. Raises
    InputError where the job fixes what none has.
    """
    able, per_node = 0, min(WIDEST, inputs.cluster.size, inputs.cluster.ranks[0].per_node)
    for tp in (tp for tp in (1, 2, 4, 8) if tp <= per_node and inputs.cluster.size % tp == 0):
        for recompute in MEMORY_LADDER:
            try:
                yield layouts_on_all_ranks(inputs, tp, recompute)
            except InputError:
                if tp > 1:
                    continue
                raise
            able += 1


def quickest(inputs: Inputs, layouts: Mapping[str, Layout], towers: Mapping[str, TowerSeconds]) -> Plan:
    """The plan of the waves that take least by simulation. Raises Infeasible where none fits."""
    tried, refused = list[Plan](), list[Infeasible]()
    for passes in wave_passes(inputs, towers, replica_count(inputs, layouts)):
        try:
            tried.append(scored(inputs, layouts, towers, passes))
        except Infeasible as error:
            refused.append(error)
    if not tried:
        raise refused[0]
    best = min(tried, key=lambda each: each.outcome.value)
    return with_fields(best, outcome=with_fields(best.outcome, effort=f"{len(tried) + len(refused)} placements"))


def replica_count(inputs: Inputs, layouts: Mapping[str, Layout]) -> int:
    """How many replicas there are of as many ranks as the smallest has."""
    return inputs.cluster.size // min(layout.tp for layout in layouts.values())


def scored(
    inputs: Inputs, layouts: Mapping[str, Layout], towers: Mapping[str, TowerSeconds], passes: Sequence[TowerPass]
) -> Plan:
    """Passes as a plan with its score. Raises Infeasible."""
    return with_score(wave_plan(inputs, layouts, towers, passes), "")


def alternatives(
    inputs: Inputs, layouts: Mapping[str, Layout], towers: Mapping[str, TowerSeconds], chosen: Plan
) -> Iterator[Alternative]:
    """Baselines with the same prices, and the malleable optimum."""
    count = replica_count(inputs, layouts)
    tried = {
        "sequential": partial(sequential, towers, count),
        "marginal_gain": partial(marginal_gain, inputs, towers, count),
    }
    for name, passes in tried.items():
        try:
            other = scored(inputs, layouts, towers, passes())
        except Infeasible as error:
            yield Alternative(strategy=name, because=error.message)
            continue
        slower = percent(other.outcome.value / chosen.outcome.value - 1.0)
        because = f"{slower} slower: ranks compute {percent(utilisation(other))} of the step, here {percent(utilisation(chosen))}"
        yield Alternative(strategy=name, value=other.outcome.value, because=because)
    least = round_digits(malleable_optimum(towers, count))
    why = "no plan: towers on as many ranks as they like, and nothing exchanged; waves have whole ranks and rows"
    yield Alternative(strategy="malleable_seconds", value=least, because=why)


def utilisation(plan: Plan) -> float:
    """The share of a step in which the mean rank computes."""
    return plan.prediction.breakdown.compute / plan.prediction.step_seconds
