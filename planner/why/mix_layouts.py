"""One set of layouts of all modules for several mixes of the data, and when others repay a restart.

The quickest layouts of each mix, as its own search finds them, are simulated at every mix, samples and what they read
being assigned anew. Those of least regret are chosen (why/mix_regret.py), and compared with a change of layouts on the
way (why/restart_repaid.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from planner.callbacks import OnProgress
from planner.errors import Infeasible
from planner.plan.plan_file import Layout, Plan
from planner.scoring import restate_in_objective
from planner.specs.inputs import Inputs, JobOptions, inputs_at_mix
from planner.specs.workload.mix_schedule import MixPart, distinct_mixes, mixes_between
from planner.strategies.modality import LayoutsAtMix
from planner.why.best_changes import best_changes
from planner.why.mix_regret import Regret, quickest, ranking, regrets
from planner.why.mix_table import MixComparison, TriedLayouts, expected_table, misfit, mix_candidates, own_bests
from planner.why.restart_repaid import RESTART_SECONDS, MixPoint, switches


@dataclass(frozen=True, slots=True)
class MixChoice:
    """What layouts are chosen for: mixes in the order of a run, by which regret, and what a restart takes."""

    schedule: tuple[MixPart, ...]
    by: Regret = "worst"
    restart_seconds: float = RESTART_SECONDS

    @property
    def mixes(self) -> tuple[MixPart, ...]:
        """Each mix once."""
        return distinct_mixes(self.schedule)

    @property
    def weights(self) -> list[float]:
        """Steps of each mix; 1 where the schedule says none."""
        return [each.steps or 1.0 for each in self.mixes]


@dataclass(frozen=True, slots=True)
class MixPlan:
    """The plan of the chosen layouts at one mix, and what they were chosen from."""

    plan: Plan
    comparison: MixComparison


def best_for_mixes(inputs: Inputs, choice: MixChoice, options: JobOptions, on_mix: OnProgress) -> MixPlan:
    """The best layouts for all mixes, and their plan at the mix of the options, else at the first one. Raises
    InputError, and Infeasible where no layouts fit at all mixes.
    """
    mixes = choice.mixes
    planned = LayoutsAtMix(options.mix, inputs_at_mix(inputs, options.mix, options)) if options.mix else None
    at_mix = {each.share: LayoutsAtMix(each.mix, inputs_at_mix(inputs, each.mix, options)) for each in mixes}
    tried = by_regret(tried_layouts([*at_mix.values()], on_mix), choice)
    table = [each.seconds for each in tried]
    best = quickest(expected_table(tried))
    points: dict[float, MixPoint] = {}
    for part in mixes_between(choice.schedule):
        on_mix(len(points), len(mixes_between(choice.schedule)), f"between, {part.mix}")
        if part.share not in at_mix:
            at_mix[part.share] = LayoutsAtMix(part.mix, inputs_at_mix(inputs, part.mix, options))
        if point := mix_point(part, at_mix[part.share], tried, best):
            points[part.share] = point
    comparison = MixComparison(
        name=inputs.job.name,
        ranks=inputs.cluster.size,
        by=choice.by,
        mixes=mixes,
        candidates=mix_candidates(tried, mixes, choice.weights, inputs.cluster.size),
        own_best=best,
        restart_seconds=choice.restart_seconds,
        points=tuple(points.values()),
        switches=switches(choice.schedule, points, choice.restart_seconds),
        changes=best_changes(choice.schedule, mixes, table, choice.restart_seconds),
    )
    return MixPlan(plan_at(planned or at_mix[mixes[0].share], tried, mixes), comparison)


def tried_layouts(at_mix: Sequence[LayoutsAtMix], on_mix: OnProgress) -> list[TriedLayouts]:
    """The quickest layouts of each mix, at all of them. Raises Infeasible where none fit at a mix."""
    found: dict[str, tuple[dict[str, Layout], str, str]] = {}
    for number, at in enumerate(at_mix):
        on_mix(number, len(at_mix), f"at {at.mix}")
        for layouts, kind in at.quickest():
            found.setdefault(str(layouts), (layouts, kind, at.mix))
    tried = []
    for number, (layouts, kind, found_at) in enumerate(found.values()):
        on_mix(number, len(found), "candidates")
        tried.append(TriedLayouts(layouts, kind, found_at, tuple(at.steps(layouts, kind) for at in at_mix)))
    return tried


def by_regret(tried: Sequence[TriedLayouts], choice: MixChoice) -> list[TriedLayouts]:
    """Layouts by their regret, the chosen ones first. Raises Infeasible where none fit at all mixes, with what is
    missing of those that fit at most.
    """
    found = [tried[number] for number in ranking(expected_table(tried), choice.weights, choice.by)]
    if None in found[0].seconds:
        nearest = min(found, key=lambda each: each.seconds.count(None))
        message = f"no layouts fit at all mixes; of those that fit at most of them, {misfit(nearest, choice.mixes)}"
        raise Infeasible(
            message, where="memory", fix="fewer mixes with one set of layouts, more ranks, or more --effort"
        )
    return found


def mix_point(part: MixPart, at: LayoutsAtMix, tried: Sequence[TriedLayouts], best: Sequence[int]) -> MixPoint | None:
    """The chosen layouts at a mix, beside the best ones of each mix of the schedule; None where none of them fit."""
    seconds = {number: at.steps(tried[number].layouts, tried[number].kind).seconds for number in sorted({0, *best})}
    fitting = {number: each for number, each in seconds.items() if each is not None}
    if not fitting:
        return None
    first = min(fitting, key=lambda number: fitting[number])
    (regret,) = regrets((seconds[0],), (fitting[first],))
    return MixPoint(
        mix=part.mix,
        share=part.share,
        kept_seconds=seconds[0],
        least_seconds=fitting[first],
        regret=regret,
        quickest=first,
    )


def plan_at(at: LayoutsAtMix, tried: Sequence[TriedLayouts], mixes: Sequence[MixPart]) -> Plan:
    """The plan of the chosen layouts at a mix. Raises Infeasible where they do not fit there."""
    chosen = at.steps(tried[0].layouts, tried[0].kind)
    if chosen.because:
        message = f"the layouts that are best for all mixes do not fit at {at.mix}: {chosen.because}"
        raise Infeasible(message, where="memory", fix="that mix among --mixes, or another one as --mix")
    work = f"{len(tried)} joint layouts simulated at {' and '.join(mix.mix for mix in mixes)}"
    others = own_bests(tried, mixes, at)
    return restate_in_objective(at.plan(tried[0].layouts, work, others), at.inputs.job.objective)
