"""Joint layouts at one mix of the data: the quickest that the search finds there, and any others on the same batches.

Layouts are searched for on the first batch, as the strategy does it; what others take is the mean over all batches,
samples and what they read being assigned anew in each.
"""

from dataclasses import dataclass, field, replace
from statistics import fmean

from planner.costs import SharedPrices
from planner.costs.memory import OFFLOAD_STEPS
from planner.errors import Infeasible
from planner.layouts import unbounded_jointly
from planner.plan.join_plans import join_plans, round_digits
from planner.plan.plan_file import Alternative, Layout, Plan
from planner.scoring import TriedPlan, over_joint_space, plan_doubt, with_score
from planner.specs.base import with_fields
from planner.specs.inputs import Inputs
from planner.strategies.assignment.encoder_orders import Orders, few_orders, orders_of
from planner.strategies.modality.job_search import search_job
from planner.strategies.modality.joint_errors import nearest_error, require_possible_fields
from planner.strategies.modality.joint_search import JointSearch, JointTrials, simulated_joint
from planner.strategies.static import draft_of_layouts, quicker_assignment
from planner.strategies.static.tried_layouts import TriedLayouts

Layouts = dict[str, Layout]
QUICKEST = {1: 2, 2: 4, 3: 8, 4: 16}  # joint layouts of a mix that others are given, by effort


@dataclass(frozen=True, slots=True)
class LayoutsOnBatches:
    """What one set of layouts takes on every batch of a mix."""

    of_batches: tuple[float, ...]  # seconds; of those before the first that does not fit
    because: str = ""  # why that one does not fit; empty where all do
    doubt: float = 1.0  # expected over predicted seconds (scoring/expected_seconds.py)

    @property
    def seconds(self) -> float | None:
        """Seconds of the mean step; None where a batch does not fit."""
        return None if self.because else round_digits(fmean(self.of_batches))

    @property
    def total_seconds(self) -> float | None:
        """Seconds of all batches; None where one does not fit."""
        return None if self.because else round_digits(sum(self.of_batches))


@dataclass(frozen=True)
class LayoutsAtMix:
    """What is known of joint layouts at a mix."""

    mix: str
    inputs: Inputs  # with the batches of the mix
    prices: SharedPrices = field(default_factory=SharedPrices)
    known: dict[str, LayoutsOnBatches] = field(default_factory=dict)

    def quickest(self) -> list[tuple[Layouts, str]]:
        """The quickest joint layouts that the search simulated on the first batch, and their kinds, without those that
        take as long as one before: the first is the strategy's. Raises Infeasible where none fits.
        """
        done, found = self.searched(), dict[float, TriedLayouts]()
        for each in (*filter(None, [done.chosen]), *done.rising):
            if each.layouts not in [other.layouts for other in found.values()]:
                found.setdefault(each.seconds, each)
        chosen = [*found.values()][: QUICKEST[self.inputs.effort]]
        for each in chosen:
            self.known[str(each.layouts)] = self.on_batches(each.layouts, each.kind, (each,))
        return [(each.layouts, each.kind) for each in chosen]

    def searched(self) -> JointSearch:
        """What the strategy simulates on the first batch. Raises Infeasible, naming the mix, where nothing fits."""
        first = replace(self.inputs, batches=self.inputs.batches[:1])
        require_possible_fields(first)
        try:
            done = search_job(first)
            if done.best is None:
                raise nearest_error(done)
        except Infeasible as error:
            raise Infeasible(f"at the mix {self.mix}, {error.message}", where=error.where, fix=error.fix) from error
        return done

    def hiding(self, layouts: Layouts) -> Layouts:
        """The layouts with no more offloaded of any module than hides in every batch here, unless the job says it."""
        asked = self.inputs.job.fix.layouts
        shares = [name for name, each in layouts.items() if each.offload_share and not each.offloaded_parts]
        for name in (name for name in shares if name not in asked or asked[name].offload is None):
            for batch in self.inputs.batches:
                draft = draft_of_layouts(replace(self.inputs, batches=(batch,)), layouts)
                most = int(TriedPlan(draft, self.prices).hidden_offload(name) * OFFLOAD_STEPS) / OFFLOAD_STEPS
                if most < layouts[name].offload_share:
                    layouts = {**layouts, name: with_fields(layouts[name], offload=most)}
        return layouts

    def steps(self, layouts: Layouts, kind: str) -> LayoutsOnBatches:
        """Layouts on the batches of the mix; what was simulated before is not simulated again."""
        key = str(layouts)
        if key not in self.known:
            self.known[key] = self.on_batches(layouts, kind)
        return self.known[key]

    def on_batches(self, layouts: Layouts, kind: str, first: tuple[TriedLayouts, ...] = ()) -> LayoutsOnBatches:
        """Layouts on all batches; `first`: what was simulated of the first ones."""
        seconds, doubt, orders = list[float](), 1.0, [each.orders for each in first]
        for number, batch in enumerate(self.inputs.batches):
            alone = replace(self.inputs, batches=(batch,))
            known = first[number : number + 1]
            (found,) = known or (self.simulated(alone, layouts, kind, orders),)
            if not found.plan:
                return LayoutsOnBatches(tuple(seconds), found.because, doubt)
            seconds.append(quicker_seconds(alone, found, found.plan))
            doubt = max(doubt, plan_doubt(found.plan))
        return LayoutsOnBatches(tuple(seconds), doubt=doubt)

    def simulated(self, inputs: Inputs, layouts: Layouts, kind: str, known: list[Orders]) -> TriedLayouts:
        """Layouts on one batch, with passes of encoders in an order that is `known` to be good, or a usual one."""
        draft = draft_of_layouts(inputs, layouts, orders=[*known, *few_orders(inputs, layouts)])
        return simulated_joint(JointTrials(inputs, self.prices), layouts, orders_of(draft), kind)

    def plan(self, layouts: Layouts, effort: str, alternatives: tuple[Alternative, ...]) -> Plan:
        """The plan of layouts for all batches, which they fit, with these alternatives."""
        plans = []
        for batch in self.inputs.batches:
            alone = replace(self.inputs, batches=(batch,))
            found = with_score(quicker_assignment(alone, draft_of_layouts(alone, layouts)), effort)
            plan = with_fields(found, alternatives=alternatives)
            plans.append(plan if unbounded_jointly(alone) else over_joint_space(plan))
        return join_plans(plans)


def quicker_seconds(inputs: Inputs, found: TriedLayouts, plan: Plan) -> float:
    """Seconds of the quicker of a simulated plan's two assignments."""
    chosen = quicker_assignment(inputs, plan, found.seconds)
    return found.seconds if chosen is plan else round_digits(TriedPlan(chosen).step_seconds())
