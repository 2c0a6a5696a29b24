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

from collections.abc import Iterator, Mapping, Sequence

from planner.costs import Pricing, TowerExchange, TowerSeconds
from planner.errors import Infeasible, InputError
from planner.placer import Lanes
from planner.plan.join_plans import round_digits
from planner.plan.legal.plan_laws import require_legal
from planner.plan.plan_file import Alternative, Layout, Plan
from planner.scoring import with_score
from planner.specs.base import with_fields
from planner.specs.inputs import Inputs
from planner.strategies.static.layouts_plan import fitting_seconds, pricing_for
from planner.strategies.waves.exchange_search import ExchangeSearch, samples_of
from planner.strategies.waves.towers import layouts_on_all_ranks, towers_of
from planner.strategies.waves.wave_baselines import marginal_gain, sequential
from planner.strategies.waves.wave_passes import malleable_optimum, wave_passes
from planner.strategies.waves.wave_plan import wave_plan
from planner.units import percent

SUMMARY = "several tasks: each tower's samples over just as many ranks as they scale to, side by side in waves"

MEMORY_LADDER = ("none", "selective", "full")  # recomputation, as little as fits
BASELINES = {
    "sequential": "each tower on all ranks that it scales to, one after another",
    "marginal_gain": "each task on ranks of its own",
}
PLACED = {1: 10_000, 2: 40_000, 3: 200_000, 4: 800_000}  # pieces that the placer may place, by effort
MOVES = {1: 500, 2: 2000, 3: 8000, 4: 30000}  # from each start, by effort


def supports(inputs: Inputs) -> str | None:
    """Needs several tasks, and layouts in one stage, without ZeRO-3."""
    if not inputs.model.tasks:
        return f"task_waves plans several tasks, each with a loss, and {inputs.model.name} has one"
    for name in inputs.model.modules:
        fixed = inputs.fixed_of(name)
        if (fixed.pp or 1) > 1 or (fixed.cp or 1) > 1 or fixed.dp or fixed.ranks:
            return (
                f"task_waves has `{name}` in replicas of tensor ranks, and decides how many | fix tp, zero, recompute"
            )
        if fixed.zero == 3:
            return "ZeRO-3 gathers in every micro-batch, and waves of a tower are on other ranks each | zero: 2 at most"
    return None


def plan(inputs: Inputs, base: Plan | None) -> Plan:
    """The best plan found. Raises Infeasible where no recomputation and no replica makes it fit."""
    refused = list[Infeasible]()
    for layouts in layouts_by_memory(inputs):
        try:
            found = quickest(inputs, layouts)
        except Infeasible as error:
            refused.append(error)
            continue
        require_legal(found, str(inputs.file))
        return found
    raise refused[-1]  # of the layouts that hold least


def layouts_by_memory(inputs: Inputs) -> Iterator[dict[str, Layout]]:
    """Layouts of all towers that hold ever less on a rank: more recomputed, then in replicas of more ranks. Raises
    InputError where the job fixes what none has.
    """
    sizes = (inputs.cluster.size, *(module.heads for module in inputs.model.modules.values()))
    able = (tp for tp in (1, 2, 4, 8) if tp <= inputs.cluster.ranks[0].per_node)
    for tp in (tp for tp in able if not any(size % tp for size in sizes)):
        for recompute in MEMORY_LADDER:
            try:
                yield layouts_on_all_ranks(inputs, tp, recompute)
            except InputError:
                if tp == 1:
                    raise


def quickest(inputs: Inputs, layouts: Mapping[str, Layout]) -> Plan:
    """The plan of the samples on replicas that take least by simulation, with baselines as alternatives. Raises
    Infeasible where nothing fits.
    """
    lanes, towers = replica_lanes(inputs, layouts), towers_of(inputs, layouts)
    exchange = longest_exchange_first(inputs, layouts, [*towers.values()], lanes)
    search = ExchangeSearch(exchange)
    baselines = {
        "sequential": sequential(towers, lanes.count),
        "marginal_gain": marginal_gain(inputs, towers, lanes.count),
    }
    placed = [*wave_passes(exchange, lanes, PLACED[inputs.effort])]
    starts = [samples_of(exchange.towers, passes, lanes.count) for passes in (*baselines.values(), *placed)]
    found = [search.passes(samples) for samples in search.race(starts, MOVES[inputs.effort])]
    drafts = [wave_plan(inputs, exchange.layouts, towers, passes) for passes in (*found, *placed)]
    given = {name: wave_plan(inputs, layouts, towers, passes) for name, passes in baselines.items()}
    best = min((*drafts, *given.values()), key=fitting_seconds)
    plan = with_score(best, f"{len(starts)} placements, {len(drafts)} simulated")
    others = [alternative(name, draft, plan) for name, draft in given.items() if draft is not best]
    return with_fields(plan, alternatives=(*others, malleable(exchange, lanes)))


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
    slower, busy = percent(other.outcome.value / chosen.outcome.value - 1.0), percent(utilisation(other))
    why = (
        f"{BASELINES[name]}: {slower} slower, and ranks compute {busy} of the step, here {percent(utilisation(chosen))}"
    )
    return Alternative(strategy=name, value=other.outcome.value, because=why)


def malleable(exchange: TowerExchange, lanes: Lanes) -> Alternative:
    """The malleable optimum beside plans: none, as a rank has whole samples."""
    why = "no plan: towers side by side on any real numbers of ranks, and nothing exchanged or updated"
    least = round_digits(malleable_optimum(exchange, lanes))
    return Alternative(strategy="malleable_seconds", because=why, too_slow=True, about=least)


def utilisation(plan: Plan) -> float:
    """The share of a step in which the mean rank computes."""
    return plan.prediction.breakdown.compute / plan.prediction.step_seconds
