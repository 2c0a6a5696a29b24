"""The best of joint layouts by simulation: the quickest candidates of each kind, then changes of the best one.

What modules recompute and offload is as little as fits (cheapest_room.py), of candidates and of changes alike: the
closed form does not see what encoders keep beside the LLM. Where nothing fits, encoders run with their readers. Changes
keep the orders of encoders' passes; which others are quicker is asked of the best layouts (`place_passes`).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from math import inf, sqrt
from typing import Any, NamedTuple

from planner.costs import SharedPrices
from planner.errors import Infeasible, InputError
from planner.plan.join_plans import round_digits
from planner.plan.legal.layout_laws import layout_laws
from planner.plan.legal.limit_laws import launch_laws
from planner.plan.plan_file import Layout, Plan
from planner.scoring import TriedPlan
from planner.specs.inputs import Inputs
from planner.strategies.assignment import AssignmentRule, JointItems, micro_batch_count
from planner.strategies.assignment.encoder_orders import Orders, few_orders, other_orders, possible_order
from planner.strategies.modality.cheapest_room import CheapestRoom, ModuleAlone, bare_layouts
from planner.strategies.modality.joint_candidates import JointCandidate
from planner.strategies.modality.joint_changes import neighbours
from planner.strategies.static import EstimatedDraft, estimated_draft
from planner.strategies.static.tried_layouts import TriedLayouts, Tries

SIMULATED = {1: 0.4, 2: 1.0, 3: 3.0, 4: 10.0}  # by effort: how many times FEW to MANY joint layouts at most
FEW, MANY = 8, 12  # of large jobs, and of small ones
LARGE = 2**14  # ranks times samples of a job of which FEW are simulated
BELOW = 0.9995  # times the share of memory that layouts are to take which did not fit by simulation
FITS = 3  # times that layouts are looked for which fit by simulation, too
KINDS_SHARE = 4  # of all simulations, the part that goes to the first of each kind
CHEAPER = 3  # joint layouts that do not fit, are estimated to be slower, or have few passes, count as one simulation
FEW_PASSES = 256  # of the LLM's replicas through their stages
CLEARLY_SLOWER = (
    1.03  # times the estimate of what is changed: estimates of plans alike are off by up to 2 % of each other
)
NEAR = 1.03  # times the best one's seconds: up to there, others are changed as well
GAIN = 0.999  # times the best one's seconds: what is quicker is changed at once
FAR_SLOWER = 1.25  # times the best one's estimate: of candidates, most take 0.9 to 1.1 of theirs
HOPELESS = 1.2  # joint layouts that take that many times the best one's seconds are not simulated or changed
Kind = tuple[str, bool, bool]  # of candidates
Layouts = dict[str, Layout]


class Limits(NamedTuple):
    """Seconds of a step above which no plan is simulated."""

    estimate: float = inf  # by its assignment alone
    least: float = inf  # at least, by what a rank computes


NO_LIMITS = Limits()


@dataclass(frozen=True)
class JointTrials:
    """Joint layouts that were simulated for a batch, by what they are and the orders of encoders' passes, each once;
    what prices their modules, once for each layout.
    """

    inputs: Inputs
    prices: SharedPrices = field(default_factory=SharedPrices)
    known: dict[str, TriedLayouts] = field(default_factory=dict)
    drafts: dict[str, EstimatedDraft] = field(default_factory=dict)  # those that were asked for an estimate
    alone: dict[tuple[str, str], ModuleAlone] = field(default_factory=dict)  # by module and layout
    looked_at: dict[str, TriedPlan] = field(default_factory=dict)  # before they are simulated

    def at_hand(self, found: TriedPlan, orders: Orders, seconds: float, rule: AssignmentRule | None) -> Layouts:
        """The layouts of a plan that is to be simulated, of which this much is known."""
        key = str((found.plan.layouts, orders))
        self.drafts.setdefault(key, EstimatedDraft(found.plan, seconds, rule))
        self.looked_at[key] = found
        return found.plan.layouts

    def draft(self, layouts: Layouts, orders: Orders, rule: AssignmentRule | None = None) -> EstimatedDraft:
        """Joint layouts as a plan before its check, assigned by a rule, or by the best. Raises Infeasible and
        InputError.
        """
        choose, known = partial(JointItems.by_rule, rule=rule) if rule else JointItems.best, str((layouts, orders))
        return self.drafts.get(known) or estimated_draft(self.inputs, layouts, orders, self.prices, choose)

    def estimate(self, layouts: Layouts, orders: Orders, rule: AssignmentRule | None = None) -> float:
        """About the seconds of joint layouts, by the assignment of their samples; infinite where there is none."""
        try:
            return self.drafts.setdefault(str((layouts, orders)), self.draft(layouts, orders, rule)).seconds
        except (Infeasible, InputError):
            return inf

    def simulate(
        self,
        layouts: Layouts,
        orders: Orders,
        kind: str,
        limits: Limits = NO_LIMITS,
        rule: AssignmentRule | None = None,
    ) -> TriedLayouts:
        """Joint layouts as a simulated plan, or why there is none; what is beyond a limit is not remembered. `rule`: by
        which they are assigned, where they are not known yet; else the best is looked for.
        """
        key = str((layouts, orders))
        if key not in self.known:
            found = simulated_joint(self, layouts, orders, kind, limits, rule)
            if found.left_out:
                return found
            self.known[key] = found
        return replace(self.known[key], kind=kind)


@dataclass(kw_only=True)
class JointSearch(Tries):
    """What was simulated so far, within a number of simulations."""

    trials: JointTrials
    most: int
    priced: int  # candidates, by the closed form
    starts: Sequence[TriedLayouts] = ()  # simulated besides, and not counted: baselines, by their names as kinds
    fitted: dict[str, TriedLayouts] = field(default_factory=dict)  # by the layouts that recompute nothing

    @property
    def inputs(self) -> Inputs:
        """The job with its batch."""
        return self.trials.inputs

    def fit(self, one: TriedLayouts, estimate: float = inf) -> TriedLayouts:
        """Joint layouts in their orders, each once, with as little recomputed and offloaded as fits, as a simulated
        plan within an estimate; which layouts recompute and offload what, those that are given do not say.
        """
        bare = replace(one, layouts=bare_layouts(self.inputs, one.layouts))
        key = str((bare.layouts, bare.orders))
        if key not in self.fitted:
            self.fitted[key] = self.found_fit(bare, estimate)
        return self.fitted[key]

    def found_fit(self, bare: TriedLayouts, estimate: float, alike: bool = False) -> TriedLayouts:
        """What `fit` remembers; `alike`: all layers of a module recompute alike, and nothing is offloaded."""
        least, full, orders = self.trials.estimate(bare.layouts, bare.orders, bare.rule), 1.0, bare.orders
        if least > estimate:
            return self.simulate(bare, estimate)
        draft = self.trials.draft(bare.layouts, orders, bare.rule)
        room = CheapestRoom(self.inputs, draft.plan, self.trials.prices, self.trials.alone, alike)
        for _ in range(FITS):
            found, more = room.fitting(full, estimate - least)
            layouts = self.trials.at_hand(found, orders, least + more, draft.rule)
            tried = self.simulate(replace(bare, layouts=layouts, rule=draft.rule), estimate)
            if tried.plan or tried.left_out or tried.memory_share in (0.0, inf):
                break
            full *= BELOW / tried.memory_share
            room = room if room.everywhere else replace(room, everywhere=True, seen={0: room.tried(0)})
        return tried

    def change(self, one: TriedLayouts, estimate: float = inf, **changes: Any) -> TriedLayouts:
        """Joint layouts, or orders, that are others with `changes`, fitted, and assigned by the same rule: of what
        differs in a field the best rule is the same, or within 0.3 % of it.
        """
        return self.fit(self.changed(one, **changes), estimate)

    def fit_alike(self, one: TriedLayouts, layouts: Layouts, estimate: float) -> TriedLayouts:
        """As `change`, with all layers of a module recomputing alike, and nothing offloaded."""
        return self.found_fit(self.changed(one, layouts=layouts), estimate, alike=True)

    def changed(self, one: TriedLayouts, **changes: Any) -> TriedLayouts:
        """Joint layouts to be simulated, with changes: a baseline's kind is no longer its name."""
        kind = f"{one.kind} changed" if one.kind in {each.kind for each in self.starts} else one.kind
        return replace(TriedLayouts(one.layouts, kind, rule=one.rule, orders=one.orders), **changes)

    def simulate(self, one: TriedLayouts, estimate: float = inf) -> TriedLayouts:
        """Joint layouts as a simulated plan, within an estimate, its samples assigned by their rule, or the best; what
        was tried before counts once.
        """
        key = str((one.layouts, one.orders))
        if key not in self.tried:
            limits = Limits(estimate, self.hopeless)
            self.tried[key] = self.trials.simulate(one.layouts, one.orders, one.kind, limits, one.rule)
        return self.tried[key]

    @property
    def hopeless(self) -> float:
        """Seconds of joint layouts that are not worth more than to know that they take as many."""
        return HOPELESS * self.best.seconds if self.best else inf

    @property
    def far_slower(self) -> float:
        """The estimate above which candidates are not simulated."""
        return FAR_SLOWER * self.best.estimate if self.best else inf

    def refuse(self, one: TriedLayouts, error: Infeasible) -> None:
        """One that was taken to fit does not; where nothing else does, what was left out beside it is simulated."""
        super().refuse(one, error)
        if not self.best:
            again = self.trials.simulate
            self.replace_each(lambda each: again(each.layouts, each.orders, each.kind) if each.left_out else each)

    def replace_each(self, new: Callable[[TriedLayouts], TriedLayouts], one: TriedLayouts | None = None) -> None:
        """Take others in place of all, or of one."""
        super().replace_each(new, one)
        self.starts = [new(each) if one is None or one is each else each for each in self.starts]

    @property
    def every(self) -> Iterable[TriedLayouts]:
        """All that was simulated."""
        return (*self.tried.values(), *self.starts)

    @property
    def spent(self) -> bool:
        """Whether as many were simulated as may be."""
        return sum(map(self.counted, self.tried.values())) >= self.most

    def counted(self, one: TriedLayouts) -> float:
        """As how much of a simulation joint layouts count."""
        layout, steps = one.layouts[self.inputs.module], one.plan.steps if one.plan else ()
        passes = sum(len(step.micro_batches) for step in steps) * layout.pp * layout.vpp * layout.dp * layout.replica
        return 1.0 if passes > FEW_PASSES else 1.0 / CHEAPER


def simulated_joint(
    trials: JointTrials,
    layouts: Layouts,
    orders: Orders,
    kind: str,
    limits: Limits = NO_LIMITS,
    rule: AssignmentRule | None = None,
) -> TriedLayouts:
    """Joint layouts as a plan with the seconds of its step, or why they are none. What does not fit in the order of its
    tasks is not simulated, nor is what is beyond a limit.
    """
    try:
        plan, estimate, rule = trials.draft(layouts, orders, rule)
        require_lawful_layouts(plan)
    except (Infeasible, InputError) as error:
        return TriedLayouts(layouts, kind, because=error.message, orders=orders)
    found = partial(TriedLayouts, layouts, kind, estimate=estimate, rule=rule, orders=orders)
    if estimate > limits.estimate:
        because = f"its assignment is estimated at {estimate:.3g} s, and at most {limits.estimate:.3g} s are looked at"
        return found(because=because, far=True)
    known = trials.looked_at.pop(str((layouts, orders)), None)
    tried = known if known and known.plan is plan else TriedPlan(plan, trials.prices)
    if estimate > limits.least and tried.least_seconds > limits.least:  # which takes longer to know
        because = f"takes at least {tried.least_seconds:.3g} s, as a rank computes so long: not simulated"
        return found(because=because, least=tried.least_seconds)
    try:
        tried.require_memory()
        return found(plan, round_digits(tried.step_seconds()))
    except (Infeasible, InputError) as error:
        return found(because=error.message, memory_share=tried.known_share)


def require_lawful_layouts(plan: Plan) -> None:
    """Raises InputError with the first law of layouts, or of the software, that a plan breaks: of the others only those
    of the chosen plan are looked at, as it takes as long as to simulate it.
    """
    for broken in chain(layout_laws(plan), launch_laws(plan)):
        raise InputError(f"illegal plan: {broken.message}", where=broken.where, fix=broken.fix)


def simulate_quickest(done: JointSearch, candidates: Sequence[JointCandidate]) -> None:
    """Simulate the quickest candidate of each kind, with a pipeline and without, then the quickest of all."""
    first, others = quickest_of_kinds(done.inputs, bare_candidates(done.inputs, candidates), done.most)
    slower: dict[Kind, float] = {}  # by kind, what the closed form has to be multiplied by, at least
    for each in sorted(first, key=lambda each: done.trials.estimate(each.layouts, each.orders)):
        found, kind = simulate_fitting(done, each) / each.seconds, kind_of(done.inputs, each)
        slower[kind] = min(found, slower.get(kind, found))
    likely = sorted((slower[kind_of(done.inputs, each)] * each.seconds, number) for number, each in enumerate(others))
    chosen = [others[number] for _, number in likely[: max(0, (done.most - len(done.tried)) // 2)]]
    for each in sorted(chosen, key=lambda each: done.trials.estimate(each.layouts, each.orders)):
        if done.spent:
            break
        simulate_fitting(done, each)


def bare_candidates(inputs: Inputs, candidates: Sequence[JointCandidate]) -> list[JointCandidate]:
    """The candidates without what they recompute and offload, each once, with the least seconds."""
    found: dict[str, JointCandidate] = {}
    for each in candidates:  # the quickest first
        bare = bare_layouts(inputs, each.layouts)
        found.setdefault(str((bare, each.orders)), replace(each, layouts=bare))
    return [*found.values()]


def kind_of(inputs: Inputs, candidate: JointCandidate) -> Kind:
    """Where encoders are, and whether the LLM has a pipeline and all have room: the closed form is off by as much for
    all alike.
    """
    return candidate.kind, candidate.layouts[inputs.module].pp > 1, candidate.crowded


def most_simulated(inputs: Inputs) -> int:
    """How many joint layouts are simulated: the fewer, the longer it takes."""
    size = inputs.cluster.size * len(inputs.batches[0].items)
    return round(min(MANY, max(FEW, FEW * sqrt(LARGE / size))) * SIMULATED[inputs.effort])


def quickest_of_kinds(
    inputs: Inputs, candidates: Sequence[JointCandidate], most: int
) -> tuple[list[JointCandidate], list[JointCandidate]]:
    """The quickest candidates of each kind, several where many may be simulated, and all others."""
    kinds: dict[Kind, list[JointCandidate]] = {}
    for each in candidates:
        kinds.setdefault(kind_of(inputs, each), []).append(each)
    few = max(1, most // (KINDS_SHARE * max(1, len(kinds))))
    first = [each for of_kind in kinds.values() for each in of_kind[:few]]
    return first, [each for of_kind in kinds.values() for each in of_kind[few:]]


def simulate_fitting(done: JointSearch, candidate: JointCandidate) -> float:
    """Seconds of a candidate by simulation, or that it takes at least; where it does not fit, with encoders that run
    with their readers; infinite where it is estimated to be far slower than the best.
    """
    for orders in (candidate.orders, few_orders(done.inputs, candidate.layouts)[-1]):
        tried = done.fit(TriedLayouts(candidate.layouts, candidate.kind, orders=orders), done.far_slower)
        if tried.plan or tried.left_out:
            break
    return tried.least or tried.seconds


def improve(done: JointSearch) -> None:
    """Change one field at a time of the best joint layouts as long as a change is quicker, then of the next best, as
    long as simulations are left. A change by which the estimate is clearly slower is not simulated; one that changes no
    second is not changed further.
    """
    expanded: set[float] = set()  # by the seconds of a step
    while not done.spent:
        start = next((each for each in done.rising if each.seconds not in expanded), None)
        least = done.rising[0].seconds if start else inf
        if start is None or start.seconds > NEAR * least:
            return
        expanded.add(start.seconds)
        for layouts in neighbours(done.inputs, start.layouts):
            most = CLEARLY_SLOWER * start.estimate
            if done.spent or done.change(start, most, layouts=layouts).seconds < GAIN * least:
                break


def place_passes(done: JointSearch) -> None:
    """Simulate the best joint layouts with the passes of each encoder in other orders, one encoder after another as
    long as that is quicker, whatever the search has spent by then: one pass for all micro-batches repeats no constants,
    and passes that keep up with their readers hold less.
    """
    inputs, begun = done.inputs, None
    while (start := done.best) and start is not begun:
        begun, count = start, micro_batch_count(start.layouts[inputs.module], len(inputs.batches[0].items))
        for name in start.orders:
            start = done.best or start
            for other in other_orders(start.orders[name], count):
                order = possible_order(inputs, start.layouts, name, other)
                if order != start.orders[name]:
                    done.change(start, CLEARLY_SLOWER * start.estimate, orders={**start.orders, name: order})
