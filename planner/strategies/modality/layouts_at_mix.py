"""Joint layouts at one mix of the data: the quickest that the search finds there, and any others on the same batches.

Layouts are searched for on the first batch, as the strategy does it; what others take is the mean over all batches,
samples and what they read being assigned anew in each.
"""

from dataclasses import dataclass, field, replace
from statistics import fmean

from planner.errors import Infeasible
from planner.plan.join_plans import join_plans, round_digits
from planner.plan.plan_file import Alternative, Layout, Plan
from planner.scoring import outcome_of, prediction_of
from planner.specs.base import with_fields
from planner.specs.inputs import Inputs
from planner.strategies.modality.job_search import search_job
from planner.strategies.modality.joint_search import SimulatedJoint, simulated_joint

QUICKEST = {1: 2, 2: 4, 3: 8, 4: 16}  # joint layouts of a mix that others are given, by effort


@dataclass(frozen=True, slots=True)
class LayoutsOnBatches:
    """One set of layouts on every batch of a mix."""

    batches: tuple[SimulatedJoint, ...]  # up to the first that does not fit

    @property
    def because(self) -> str:
        """Why a batch does not fit; empty where all do."""
        return self.batches[-1].because

    @property
    def seconds(self) -> float | None:
        """Seconds of the mean step; None where a batch does not fit."""
        return None if self.because else round_digits(fmean(each.seconds for each in self.batches))

    @property
    def total_seconds(self) -> float | None:
        """Seconds of all batches; None where one does not fit."""
        return None if self.because else round_digits(sum(each.seconds for each in self.batches))

    def plan(self, effort: str, alternatives: tuple[Alternative, ...] = ()) -> Plan:
        """The plan of all batches, with these alternatives."""
        plans = [
            with_fields(
                each.plan,
                outcome=outcome_of(each.found, effort),
                prediction=prediction_of(each.found),
                alternatives=alternatives,
            )
            for each in self.batches
            if each.plan and each.found
        ]
        return join_plans(plans)


@dataclass(frozen=True)
class LayoutsAtMix:
    """What is known of joint layouts at a mix."""

    mix: str
    inputs: Inputs  # with the batches of the mix
    known: dict[str, LayoutsOnBatches] = field(default_factory=dict)

    def quickest(self) -> list[SimulatedJoint]:
        """The quickest joint layouts that the search simulated on the first batch, without those that take as long as
        one before: the first is the strategy's. Raises Infeasible where none fits.
        """
        first = replace(self.inputs, batches=self.inputs.batches[:1])
        tried = [*search_job(first).tried.values()]
        found: dict[float, SimulatedJoint] = {}
        for each in sorted((each for each in tried if each.plan), key=lambda each: each.seconds):
            found.setdefault(each.seconds, each)
        if not found:
            because = tried[0].because if tried else "no layout of some module fits into memory"
            fix = "more ranks, a smaller batch, fewer fields in fix.layouts, or the other mixes alone"
            raise Infeasible(f"no layouts fit at the mix {self.mix}: {because}", where="memory", fix=fix)
        chosen = [*found.values()][: QUICKEST[self.inputs.effort]]
        for each in chosen:
            self.known[str(each.layouts)] = self.on_batches(each.layouts, each.kind, (each,))
        return chosen

    def steps(self, layouts: dict[str, Layout], kind: str) -> LayoutsOnBatches:
        """Layouts on the batches of the mix; what was simulated before is not simulated again."""
        key = str(layouts)
        if key not in self.known:
            self.known[key] = self.on_batches(layouts, kind, ())
        return self.known[key]

    def on_batches(self, layouts: dict[str, Layout], kind: str, known: tuple[SimulatedJoint, ...]) -> LayoutsOnBatches:
        """Layouts on all batches; `known`: the first ones."""
        found = [*known]
        for batch in self.inputs.batches[len(found) :]:
            if found and found[-1].because:
                break
            found.append(simulated_joint(replace(self.inputs, batches=(batch,)), layouts, kind))
        return LayoutsOnBatches(tuple(found))
