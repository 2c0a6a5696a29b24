"""Samples of several tasks on one cluster: which tower works on how many of them, on which ranks, in which wave.

Decision: each tower m is split by samples into pieces of x samples on n replicas; pieces stand on ranks of their own at
a time, and a wave is a micro-batch:

    T ≈ max over replicas r of Σ over pieces on r of t_m(⌈x / n⌉)     t_m: both passes     TowerSeconds (costs)
    Σ over pieces of m of x = samples of all tasks that read m            allocate (placer/allocate.py)
        + reductions and gathers of each tower on all that have it     ExchangeSearch (waves/exchange_search.py)
    T simulated, with losses, reductions and updates                   quickest, here
    Σ over towers of a rank of their bytes ≤ what it may hold          more recomputation, then wider replicas
    T ≥ the least seconds in which the work of all towers has room     wave_seconds (scoring/bounds/wave_bound.py)

Spindle (arXiv 2409.03365) splits the layers of a tower between two widths, and sends activations from wave to wave;
here samples are split, and what a rank computes stays there until its backward. Towers that share ranks reduce
gradients over the ranks that each has, once a step.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from planner.costs import Pricing, TowerExchange, TowerSeconds, on_replicas
from planner.errors import Infeasible
from planner.placer import Lanes
from planner.plan.join_plans import round_digits
from planner.plan.legal.plan_laws import require_legal
from planner.plan.plan_file import Alternative, Layout, Plan, assignments
from planner.scoring import with_score
from planner.specs.base import Ranks, with_fields
from planner.specs.inputs import Inputs
from planner.specs.parallelism import decided_fields
from planner.strategies.static.layouts_plan import fitting_seconds, pricing_for
from planner.strategies.waves.exchange_search import ExchangeSearch, samples_of
from planner.strategies.waves.towers import layouts_by_memory, replica_sizes, require_states, towers_of
from planner.strategies.waves.wave_baselines import longest_first, marginal_gain, sequential
from planner.strategies.waves.wave_passes import malleable_optimum, wave_passes
from planner.strategies.waves.wave_plan import TowerPass, wave_plan
from planner.units import percent

SUMMARY = "several tasks: each tower's samples over just as many ranks as they scale to, side by side in waves"

FIXABLE = ("tp", "sequence_parallel", "zero", "recompute", "dtype", "gradients", "overlap")
SAME = Layout(ranks=Ranks((0,)), schedule="gpipe")  # what all towers have of other fields
BASELINES = {
    "sequential": "each tower on all ranks that it scales to, one after another",
    "marginal_gain": "each task on ranks of its own",
    "task_by_task": "one task after another on all ranks",
}
PLACED = {1: 10_000, 2: 40_000, 3: 200_000, 4: 800_000}  # pieces that the placer may place, by effort
MOVES = {1: 500, 2: 2000, 3: 8000, 4: 30000}  # from each start, by effort


def supports(inputs: Inputs) -> str | None:
    """Needs several tasks, and layouts in one stage, without ZeRO-3, in replicas of equally many ranks."""
    if not inputs.model.tasks:
        return f"task_waves plans several tasks, each with a loss, and {inputs.model.name} has one"
    limits = inputs.job.limits
    if limits.tokens_per_rank is not None or limits.inputs_per_rank:
        limited = "limits.tokens_per_rank, and inputs_per_rank"
        return f"samples of all waves stay until the losses, and memory limits them | leave out {limited}"
    for name in inputs.model.modules:
        for field, value in decided_fields(inputs.fixed_of(name)).items():
            if (field, value) == ("zero", 3):
                return "ZeRO-3 gathers in every micro-batch, and waves of a tower are on others each | zero: 2 at most"
            if field not in FIXABLE and (field in ("dp", "ranks") or value != getattr(SAME, field)):
                what = f"task_waves has `{name}` in replicas of tensor ranks, decides how many, and plans no {field}"
                return f"{what} of its own | say {', '.join(FIXABLE)} at most"
    if not replica_sizes(inputs):
        what = "towers are in replicas of equally many ranks, which divide their heads and the ranks of a node"
        return f"{what} | the same tp for all, or leave it out"
    return None


def plan(inputs: Inputs, base: Plan | None) -> Plan:
    """The best plan found. `base`: of an earlier batch, whose layouts it keeps. Raises Infeasible where no
    recomputation and no replica makes it fit.
    """
    refused = list[Infeasible]()
    for layouts in [base.layouts] if base else layouts_by_memory(inputs):
        try:
            found = on_same_ranks(inputs, base) if base else quickest(inputs, layouts)
        except Infeasible as error:
            refused.append(error)
            continue
        require_legal(found, str(inputs.file))
        return found
    raise refused[-1]  # of the layouts that hold least


def quickest(inputs: Inputs, layouts: Mapping[str, Layout]) -> Plan:
    """The plan of the samples on replicas that take least by simulation, with baselines as alternatives. Raises
    Infeasible where nothing fits.
    """
    require_states(inputs, layouts)
    lanes, towers = replica_lanes(inputs, layouts), towers_of(inputs, layouts)
    exchange = longest_exchange_first(inputs, layouts, [*towers.values()], lanes)
    search = ExchangeSearch(exchange)
    baselines = {
        "sequential": sequential(towers, lanes.count),
        "marginal_gain": marginal_gain(inputs, towers, lanes.count),
        "task_by_task": longest_first(inputs, towers, [range(lanes.count)]),
    }
    placed = [*wave_passes(exchange, lanes, PLACED[inputs.effort])]
    begun = (baselines["sequential"], baselines["marginal_gain"], *placed)
    starts = [samples_of(exchange.towers, passes, lanes.count) for passes in begun]
    found = [search.passes(samples) for samples in search.race(starts, MOVES[inputs.effort])]
    drafts = [wave_plan(inputs, exchange.layouts, towers, passes) for passes in (*found, *placed)]
    given = {name: wave_plan(inputs, layouts, towers, passes) for name, passes in baselines.items()}
    best = min((*drafts, *given.values()), key=fitting_seconds)
    plan = with_score(best, f"{len(starts)} placements, {len(drafts)} simulated")
    others = [alternative(name, draft, plan) for name, draft in given.items() if draft is not best]
    return with_fields(plan, alternatives=(*others, malleable(exchange, lanes)))


def on_same_ranks(inputs: Inputs, base: Plan) -> Plan:
    """The plan of a later batch, whose towers keep the ranks of an earlier one's, and begin with as many samples on
    each. Raises Infeasible where it does not fit.
    """
    layouts = {name: on_replicas(layout, range(base.size // layout.tp)) for name, layout in base.layouts.items()}
    lanes, towers = replica_lanes(inputs, layouts), towers_of(inputs, layouts)
    exchange, tp = longest_exchange_first(inputs, layouts, [*towers.values()], lanes), base.size // lanes.count
    kept = [np.array(base.layouts[tower.name].ranks[::tp]) // tp for tower in exchange.towers]
    search, before = ExchangeSearch(exchange, kept), list[TowerPass]()
    for a in (a for micro_batch in base.steps[0].micro_batches for a in assignments(base, micro_batch)):
        before.append(TowerPass(a.module, a.items, (base.groups[a.group].ranks[0] // tp,), 0.0))
    start = samples_of(exchange.towers, before, lanes.count)
    able = (start, search.improved(start, MOVES[inputs.effort]))
    drafts = [wave_plan(inputs, layouts, towers, search.passes(samples)) for samples in able]
    return with_score(min(drafts, key=fitting_seconds), f"{len(drafts)} simulated")


def longest_exchange_first(
    inputs: Inputs, layouts: Mapping[str, Layout], towers: Sequence[TowerSeconds], lanes: Lanes
) -> TowerExchange:
    """The exchanges of towers, that with the longest one first: behind its reduction the backwards of others run."""

    def pricing(changed: dict[str, Layout]) -> Pricing:
        return pricing_for(inputs, {**layouts, **changed})

    given = TowerExchange(towers, layouts, lanes.per_node or lanes.count, pricing)
    order = sorted(range(len(towers)), key=lambda at: -given.on_first(at, lanes.count))
    own = [towers[at] for at in order]
    return TowerExchange(own, {tower.name: layouts[tower.name] for tower in own}, given.per_node, pricing)


def replica_lanes(inputs: Inputs, layouts: Mapping[str, Layout]) -> Lanes:
    """Replicas of as many ranks as the smallest has, as the placer's lanes."""
    tp, per_node = min(layout.tp for layout in layouts.values()), inputs.cluster.ranks[0].per_node
    return Lanes(inputs.cluster.size // tp, per_node=max(1, per_node // tp))


def alternative(name: str, draft: Plan, chosen: Plan) -> Alternative:
    """A baseline beside the chosen plan: what it takes, and how busy ranks are, or why it is none."""
    try:
        other = with_score(draft, "")
    except Infeasible as error:
        return Alternative(strategy=name, because=f"{BASELINES[name]}: {error.message}")
    busy, here = (percent(utilisation(each)) for each in (other, chosen))
    why = f"{BASELINES[name]}: ranks compute {busy} of the step, here {here}"
    return Alternative(strategy=name, value=other.outcome.value, because=why)


def malleable(exchange: TowerExchange, lanes: Lanes) -> Alternative:
    """The malleable optimum beside plans: none, as a rank has whole samples."""
    why = "no plan: towers side by side on any real numbers of ranks, and nothing exchanged or updated"
    least = round_digits(malleable_optimum(exchange, lanes))
    return Alternative(strategy="malleable_seconds", because=why, about=least)


def utilisation(plan: Plan) -> float:
    """The share of a step in which the mean rank computes."""
    return plan.prediction.breakdown.compute / plan.prediction.step_seconds
