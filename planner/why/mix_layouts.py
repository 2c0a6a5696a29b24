"""One set of layouts of all modules for several mixes of the data, and when others repay a restart.

The quickest layouts of each mix, as its own search finds them, are simulated at every mix, samples and what they read
being assigned anew. Those of least regret are chosen (why/mix_regret.py), and compared with a change of layouts on the
way (why/restarts.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from planner.callbacks import OnProgress
from planner.errors import Infeasible
from planner.plan.descriptions import placed_layout
from planner.plan.plan_file import Alternative, Layout, Plan
from planner.scoring import restate_in_objective
from planner.specs.base import Spec
from planner.specs.inputs import Inputs, JobOptions, inputs_at_mix
from planner.specs.parallelism import Parallelism
from planner.specs.workload.mix_schedule import MixPart, distinct_mixes, mixes_between
from planner.strategies.modality import LayoutsAtMix, LayoutsOnBatches
from planner.units import percent
from planner.why.mix_regret import (
    Regret,
    Seconds,
    expected_regret,
    least_seconds,
    quickest,
    ranking,
    regrets,
    worst_regret,
)
from planner.why.restarts import RESTART_SECONDS, Changes, MixPoint, Switch, best_changes, switches


class MixCandidate(Spec, omit_defaults=False):
    """One set of layouts: what a step takes with it at each mix, and its regret there."""

    layouts: dict[str, Parallelism]
    kind: str  # where encoders are, as `vision all`
    found_at: str  # the mix whose search found it
    seconds: tuple[float | None, ...]  # of the mean step at each mix; None: it does not fit
    doubt: float  # expected over predicted seconds, and over those of the surest (scoring/expected_seconds.py)
    regrets: tuple[float | None, ...]  # of expected seconds
    worst: float | None  # None, as `expected`: it cannot be chosen
    expected: float | None
    because: str  # at which mix it does not fit, and why; empty where it fits at all


class MixComparison(Spec, omit_defaults=False):
    """Sets of layouts at the mixes of a schedule: which are best for all, and when others repay a restart."""

    name: str
    ranks: int  # of the cluster
    by: Regret
    mixes: tuple[MixPart, ...]  # each once
    candidates: tuple[MixCandidate, ...]  # least regret first: the first are the chosen ones
    own_best: tuple[int, ...]  # of each mix, the quickest candidates
    restart_seconds: float
    points: tuple[MixPoint, ...]  # by share: the mixes, and others between
    switches: tuple[Switch, ...]
    changes: Changes | None  # None: the schedule has no steps


@dataclass(frozen=True, slots=True)
class TriedLayouts:
    """Joint layouts that the search found at one of the mixes, simulated at all of them."""

    layouts: dict[str, Layout]
    kind: str
    found_at: str
    at_mixes: tuple[LayoutsOnBatches, ...]

    @property
    def seconds(self) -> Seconds:
        """Seconds of the mean step at each mix."""
        return tuple(steps.seconds for steps in self.at_mixes)

    @property
    def doubt(self) -> float:
        """The most that expected seconds are of predicted ones at any mix."""
        return max(steps.doubt for steps in self.at_mixes)


@dataclass(frozen=True, slots=True)
class MixChoice:
    """What layouts are chosen for: mixes in the order of a run, by which regret, and what a restart takes."""

    schedule: tuple[MixPart, ...]
    by: Regret = "worst"
    restart_seconds: float = RESTART_SECONDS

    @property
    def mixes(self) -> tuple[MixPart, ...]:
        """The mixes of the schedule, each once, in the order in which they are first reached."""
        return distinct_mixes(self.schedule)

    @property
    def weights(self) -> list[float]:
        """Steps of each mix; 1 where the schedule says none."""
        return [part.steps or 1.0 for part in self.mixes]


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
    """The quickest layouts of each mix, at all of them, with what they offload hidden at all. Raises Infeasible where
    none fit at a mix.
    """
    quickest_of: dict[str, tuple[dict[str, Layout], str, str]] = {}
    for number, at in enumerate(at_mix):
        on_mix(number, len(at_mix), f"at {at.mix}")
        for own, kind in at.quickest():
            layouts = own
            for other in at_mix:
                layouts = other.hiding(layouts)
            quickest_of.setdefault(str(layouts), (layouts, kind, at.mix))
    tried = []
    for number, (layouts, kind, found_at) in enumerate(quickest_of.values()):
        on_mix(number, len(quickest_of), "candidates")
        tried.append(TriedLayouts(layouts, kind, found_at, tuple(at.steps(layouts, kind) for at in at_mix)))
    return tried


def by_regret(tried: Sequence[TriedLayouts], choice: MixChoice) -> list[TriedLayouts]:
    """Layouts by their regret, the chosen ones first. Raises Infeasible where none fit at all mixes, with what is
    missing of those that fit at most.
    """
    ranked = [tried[number] for number in ranking(expected_table(tried), choice.weights, choice.by)]
    if None in ranked[0].seconds:
        nearest = min(ranked, key=lambda layouts: layouts.seconds.count(None))
        message = f"no layouts fit at all mixes; of those that fit at most of them, {misfit(nearest, choice.mixes)}"
        raise Infeasible(
            message, where="memory", fix="fewer mixes with one set of layouts, more ranks, or more --effort"
        )
    return ranked


def mix_point(part: MixPart, at: LayoutsAtMix, tried: Sequence[TriedLayouts], best: Sequence[int]) -> MixPoint | None:
    """The chosen layouts at a mix, beside the best ones of each mix of the schedule; None where none of them fit."""
    seconds = {number: at.steps(tried[number].layouts, tried[number].kind).seconds for number in sorted({0, *best})}
    fitting = {number: of_step for number, of_step in seconds.items() if of_step is not None}
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


def expected_table(tried: Sequence[TriedLayouts]) -> list[Seconds]:
    """By which layouts are compared: seconds at each mix, longer by what is more doubtful than in the surest ones."""
    doubts = relative_doubts(tried)
    return [
        tuple(None if seconds is None else seconds * doubt for seconds in layouts.seconds)
        for layouts, doubt in zip(tried, doubts, strict=True)
    ]


def relative_doubts(tried: Sequence[TriedLayouts]) -> list[float]:
    """The doubt of each over that of the surest."""
    least = min(layouts.doubt for layouts in tried)
    return [layouts.doubt / least for layouts in tried]


def mix_candidates(
    tried: Sequence[TriedLayouts], mixes: Sequence[MixPart], weights: Sequence[float], size: int
) -> tuple[MixCandidate, ...]:
    """The layouts as the answer has them; `size`: the number of ranks."""
    table = expected_table(tried)
    least = least_seconds(table)
    return tuple(
        MixCandidate(
            layouts={name: placed_layout(layout, size) for name, layout in each.layouts.items()},
            kind=each.kind,
            found_at=each.found_at,
            seconds=each.seconds,
            doubt=doubt,
            regrets=regrets(expected, least),
            worst=worst_regret(expected, least),
            expected=expected_regret(expected, least, weights),
            because=misfit(each, mixes),
        )
        for each, expected, doubt in zip(tried, table, relative_doubts(tried), strict=True)
    )


def misfit(tried: TriedLayouts, mixes: Sequence[MixPart]) -> str:
    """The first mix at which layouts do not fit, and why; empty where they fit at all."""
    at_mixes = zip(mixes, tried.at_mixes, strict=True)
    return next((f"at {mix.mix}: {steps.because}" for mix, steps in at_mixes if steps.because), "")


def own_bests(tried: Sequence[TriedLayouts], mixes: Sequence[MixPart], at: LayoutsAtMix) -> tuple[Alternative, ...]:
    """The quickest layouts of each mix but the chosen ones, as alternatives of a plan `at` some mix, where they may
    well be quicker.
    """
    size = at.inputs.cluster.size
    table = expected_table(tried)
    least = least_seconds(table)
    of_layouts: dict[int, list[str]] = {}
    for mix, number in zip(mixes, quickest(table), strict=True):
        of_layouts.setdefault(number, []).append(mix.mix)
    return tuple(
        Alternative(
            strategy=at.inputs.job.strategy,
            value=at.steps(tried[number].layouts, tried[number].kind).total_seconds,
            because=f"the quickest at {' and '.join(names)}; {elsewhere(tried[number], mixes, worst)}",
            layouts={name: placed_layout(layout, size) for name, layout in tried[number].layouts.items()},
        )
        for number, names in of_layouts.items()
        if number
        for worst in [worst_regret(table[number], least)]
    )


def elsewhere(tried: TriedLayouts, mixes: Sequence[MixPart], worst: float | None) -> str:
    """What is against layouts of this worst regret at other mixes."""
    return misfit(tried, mixes) if worst is None else f"up to {percent(worst)} slower than the quickest of each mix"
