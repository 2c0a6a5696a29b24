"""Layouts of the modules of a job that a search simulated, which of them it chooses, and what stands beside that.

One record serves a module that is alone and several. Of all that fit the one expected to be the quickest is taken
(scoring/expected_seconds.py), if it fits with its score as well; beside the plan that is chosen in the end stand the
quickest layouts, the conventional ones, and others with why they were not chosen.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf

from planner.errors import Infeasible
from planner.plan.descriptions import placed_layout
from planner.plan.plan_file import Layout, Plan, PricedLayouts
from planner.scoring import least_expected, passed_over, plan_doubt
from planner.specs.base import with_fields
from planner.strategies.assignment.encoder_orders import Orders
from planner.strategies.assignment.joint_streams import AssignmentRule
from planner.units import percent


@dataclass(frozen=True)
class TriedLayouts:
    """Layouts that were simulated: their plan and the seconds of its step; or why there is none."""

    layouts: dict[str, Layout]
    kind: str = ""  # where encoders are, as `vision all`
    plan: Plan | None = None
    seconds: float = inf  # of the step; infinite where there is no plan
    because: str = ""
    estimate: float = inf  # of the step, by its closed form, or by its assignment alone (assignment/step_estimate.py)
    rule: AssignmentRule | None = None  # of its assignment
    orders: Orders = field(default_factory=dict)  # of encoders' passes
    least: float = 0.0  # seconds that the step takes at least, where that is why there is no plan
    far: bool = False  # its estimate is beyond the limit, and it was not simulated
    memory_share: float = inf  # the fullest rank's bytes over what it may hold, where that is why there is no plan

    @property
    def layout(self) -> Layout:
        """The layout of a module that is alone."""
        (layout,) = self.layouts.values()
        return layout

    @property
    def left_out(self) -> bool:
        """Whether it was not simulated, as it takes too long: it may fit."""
        return self.far or self.least > 0.0

    @cached_property
    def doubt(self) -> float:
        """Expected over predicted seconds of its step (scoring/expected_seconds.py)."""
        return plan_doubt(self.plan) if self.plan else inf


@dataclass
class Tries:
    """What a search simulated so far, by the text of the layouts."""

    tried: dict[str, TriedLayouts] = field(default_factory=dict)
    refused: list[Infeasible] = field(default_factory=list)  # what was found of plans that were taken to fit

    @property
    def every(self) -> Iterable[TriedLayouts]:
        """All that was simulated."""
        return self.tried.values()

    @property
    def rising(self) -> list[TriedLayouts]:
        """The layouts that fit, the quickest first; of equals the first one."""
        return sorted((each for each in self.every if each.plan), key=lambda each: each.seconds)

    @property
    def best(self) -> TriedLayouts | None:
        """The quickest so far that fits."""
        return next(iter(self.rising), None)

    @property
    def chosen(self) -> TriedLayouts | None:
        """The one that fits and is expected to be the quickest; of equals the first."""
        return least_expected(self.rising, lambda each: each.seconds, lambda each: each.doubt)

    def refuse(self, one: TriedLayouts, error: Infeasible) -> None:
        """One that was taken to fit does not."""
        self.refused.append(error)
        self.replace_each(lambda each: replace(each, plan=None, seconds=inf, because=error.message), one)

    def replace_each(self, new: Callable[[TriedLayouts], TriedLayouts], one: TriedLayouts | None = None) -> None:
        """Take others in place of all, or of one."""
        self.tried = {key: new(each) if one is None or one is each else each for key, each in self.tried.items()}

    def quickest_scored(self, scored: Callable[[TriedLayouts], Plan]) -> TriedLayouts | None:
        """The one expected to be the quickest of those that fit with their scores, too, with that plan; None where none
        does.
        """
        while best := self.chosen:
            try:
                return replace(best, plan=scored(best))
            except Infeasible as error:  # by simulation it holds more than by closed form, or by its tasks in order
                self.refuse(best, error)
        return None


def chosen_plan(chosen: TriedLayouts, quickest: TriedLayouts, usual: TriedLayouts | None, effort: str) -> Plan:
    """The scored plan of the chosen layouts, with the quickest and the usual ones beside it."""
    assert chosen.plan and quickest.plan, "what is chosen has a scored plan"
    best = min(chosen.plan, quickest.plan, key=lambda each: each.outcome.value)
    beside = {
        "quickest": priced(best.layouts, best.outcome.value, best.size),
        "conventional": usual and priced(usual.layouts, usual.seconds, best.size),
    }
    return with_fields(chosen.plan, outcome=with_fields(chosen.plan.outcome, **beside, effort=effort))


def priced(layouts: dict[str, Layout], seconds: float, size: int) -> PricedLayouts:
    """Layouts on so many ranks with the seconds of their step, as an outcome has them."""
    return PricedLayouts(value=seconds, layouts={name: placed_layout(layout, size) for name, layout in layouts.items()})


def why_not_chosen(tried: TriedLayouts, chosen: TriedLayouts, slower: str, what: str = "") -> str:
    """Why layouts that fit are not the chosen ones: by how much they are `slower`; or that they are quicker, and less
    sure, or less plain within the noise. `what`: what they are, where that is told first.
    """
    assert chosen.plan and tried.plan, "these fit"
    ratio = tried.seconds / chosen.seconds
    quicker = passed_over(chosen.plan, tried.plan, ratio)
    if ratio * tried.doubt < chosen.doubt:
        quicker = f"{percent(1.0 - ratio)} quicker: within the noise, and less plain"
    return ", ".join(filter(None, (what, quicker))) if quicker else f"{percent(ratio - 1.0)} slower: {slower}"
