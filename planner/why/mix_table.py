"""Sets of layouts beside mixes of the data, as an answer: what each takes, its regret, and where it does not fit."""

from collections.abc import Sequence
from dataclasses import dataclass

from planner.plan.descriptions import placed_layout
from planner.plan.plan_file import Alternative, Layout
from planner.specs.base import Spec
from planner.specs.parallelism import Parallelism
from planner.specs.workload.mix_schedule import MixPart
from planner.strategies.modality import LayoutsAtMix, LayoutsOnBatches
from planner.units import percent
from planner.why.best_changes import Changes
from planner.why.mix_regret import Regret, Seconds, expected_regret, least_seconds, quickest, regrets, worst_regret
from planner.why.restart_repaid import MixPoint, Switch


class MixCandidate(Spec, omit_defaults=False):
    """One set of layouts, and what it takes at each mix."""

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
        return tuple(each.seconds for each in self.at_mixes)

    @property
    def doubt(self) -> float:
        """The most that expected seconds are of predicted ones at any mix."""
        return max(each.doubt for each in self.at_mixes)


def expected_table(tried: Sequence[TriedLayouts]) -> list[Seconds]:
    """By which layouts are compared: seconds at each mix, longer by what is more doubtful than in the surest ones."""
    doubts = relative_doubts(tried)
    return [
        tuple(None if seconds is None else seconds * doubt for seconds in each.seconds)
        for each, doubt in zip(tried, doubts, strict=True)
    ]


def relative_doubts(tried: Sequence[TriedLayouts]) -> list[float]:
    """The doubt of each over that of the surest."""
    least = min(each.doubt for each in tried)
    return [each.doubt / least for each in tried]


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
    found = zip(mixes, tried.at_mixes, strict=True)
    return next((f"at {mix.mix}: {each.because}" for mix, each in found if each.because), "")


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
