"""The nearest change of the layouts of several modules that fits into memory: of one field of one module where any
does, else of two, else of several at once; of those equally near the one that people change first, then the quickest.

Each is tried as a plan, whose step is simulated: what a rank holds depends on when encoders work.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, groupby

from planner.errors import Infeasible, InputError
from planner.plan.descriptions import flow_text
from planner.plan.plan_file import Layout
from planner.scoring import Score, exceeds_memory, score
from planner.specs.base import Ranks, with_fields
from planner.specs.inputs import Inputs
from planner.specs.parallelism import Parallelism, decided_fields
from planner.strategies.static.changed_layouts import Asked, changed_layouts, with_asked
from planner.strategies.static.joint_plan import plan_of_layouts
from planner.strategies.static.layout_change import CHANGED_FIRST

LEANEST = 6  # changes of one field that are tried in pairs
MOST_TOGETHER = 6  # fields that change at once


@dataclass(frozen=True, slots=True)
class FieldChange:
    """One field of one module with another value."""

    module: str
    field: str
    value: int | str | Ranks
    doublings: int  # how far it is from the value that it had

    @property
    def wish(self) -> Parallelism:
        """The field alone."""
        return with_fields(Parallelism(), **{self.field: self.value})

    def __str__(self) -> str:
        return f"{self.module}.{self.field}={flow_text(self.value)}"


@dataclass(frozen=True, slots=True)
class FittingChange:
    """Other layouts of several modules that fit, and what of them is another, as `planner why-not` takes it."""

    layouts: dict[str, Layout]
    differences: tuple[str, ...]
    seconds: float  # of a step, simulated
    bytes_needed: float  # on the fullest rank


@dataclass(frozen=True, slots=True)
class Tried:
    """Changes together, and the step and memory that they give."""

    changes: tuple[FieldChange, ...]
    layouts: dict[str, Layout]
    seconds: float
    share: float  # of its allowed memory that the fullest rank takes
    bytes_needed: float
    fits: bool

    @property
    def far(self) -> tuple[int, int, float]:
        return sum(map(lateness, self.changes)), sum(change.doublings for change in self.changes), self.seconds


def fitting_change(
    inputs: Inputs, layouts: Mapping[str, Layout], runs: bool = True, asked: Asked | None = None
) -> FittingChange | None:
    """The nearest change of these layouts, which a job fixes, that fits; None where none that is tried does. Fields
    that were `asked` for stay.
    """
    stay = {(name, field) for name, wish in (asked or {}).items() for field in decided_fields(wish)}
    changes = [each for each in field_changes(inputs, layouts) if (each.module, each.field) not in stay]
    best, single = None, list[Tried]()
    for _, alike in groupby(sorted(changes, key=lateness), lateness):
        single += [found for change in alike if (found := tried(inputs, layouts, (change,), runs))]
        best = nearest(single)
        if best:
            break
    if best is None:
        leanest = sorted(single, key=lambda each: each.share)
        pairs = [(*one.changes, *other.changes) for one, other in combinations(leanest[:LEANEST], 2)]
        both = (tried(inputs, layouts, pair, runs) for pair in pairs if is_several(pair))
        best = nearest([each for each in both if each]) or gathered(inputs, layouts, leanest, runs)
    if best is None:
        return None
    return FittingChange(best.layouts, tuple(map(str, best.changes)), best.seconds, best.bytes_needed)


def lateness(change: FieldChange) -> int:
    """How late people change a field: one that they change earlier is nearer, whatever its value."""
    return CHANGED_FIRST.index(change.field)


def nearest(found: Sequence[Tried]) -> Tried | None:
    """The nearest of those that fit, and of these the quickest."""
    return min((each for each in found if each.fits), key=lambda each: each.far, default=None)


def is_several(changes: Sequence[FieldChange]) -> bool:
    """Whether changes are of different fields."""
    return len({(change.module, change.field) for change in changes}) == len(changes)


def gathered(inputs: Inputs, layouts: Mapping[str, Layout], leanest: Sequence[Tried], runs: bool) -> Tried | None:
    """Changes of ever more fields, the leanest first, each kept where it leaves more room, until all of them fit; then
    without those that are not needed.
    """
    best: Tried | None = None
    for each in leanest:
        changes = (*(best.changes if best else ()), *each.changes)
        found = tried(inputs, layouts, changes, runs) if is_several(changes) and len(changes) <= MOST_TOGETHER else None
        if found and (best is None or found.share < best.share):
            best = found
            if best.fits:
                return without_needless(inputs, layouts, best, runs)
    return None


def without_needless(inputs: Inputs, layouts: Mapping[str, Layout], found: Tried, runs: bool) -> Tried:
    """Changes that fit, without any that they fit without."""
    for change in found.changes:
        fewer = tried(inputs, layouts, [each for each in found.changes if each != change], runs)
        if fewer and fewer.fits:
            found = fewer
    return found


def tried(inputs: Inputs, layouts: Mapping[str, Layout], changes: Sequence[FieldChange], runs: bool) -> Tried | None:
    """What some changes give; None where they cannot be."""
    asked: dict[str, Parallelism] = {}
    for change in changes:
        asked[change.module] = with_fields(asked.get(change.module, Parallelism()), **decided_fields(change.wish))
    try:
        wanted = with_asked(inputs, asked)
        others = changed_layouts(wanted, asked, layouts, runs)
        found = score(plan_of_layouts(wanted, others))
    except (InputError, Infeasible):
        return None
    return Tried(
        (*changes,), others, found.step_seconds, fullest_share(found), found.peak_bytes, fits_every_rank(found)
    )


def fullest_share(found: Score) -> float:
    """The share of its allowed memory that the fullest rank takes."""
    return found.memory_share(found.fullest_rank)


def fits_every_rank(found: Score) -> bool:
    """Whether no rank takes more than it is allowed."""
    host, rank = found.host_memory, found.fullest_rank
    fits_host = host is None or host.fits
    return fits_host and not exceeds_memory(found.peak_bytes, found.plan_memory.allowed_bytes(rank))


def field_changes(inputs: Inputs, layouts: Mapping[str, Layout]) -> Iterator[FieldChange]:
    """Changes of one field that may leave more room: recompute, ZeRO, larger tp and pp, an encoder on all ranks, and a
    smaller micro-batch.
    """
    for name, layout in layouts.items():
        how = layout.recompute
        if how != "full":
            yield FieldChange(name, "recompute", "full", 2)
            if how != "selective":
                yield FieldChange(name, "recompute", "selective", 1)
        for zero in range(layout.zero + 1, 4):
            yield FieldChange(name, "zero", zero, zero - layout.zero)
        ranks = len(layout.ranks)
        for doublings in (1, 2, 3):
            tp, pp = layout.tp << doublings, layout.pp << doublings
            in_node = tp <= max(kind.per_node for kind in inputs.cluster.ranks)
            if in_node and tp * layout.pp * layout.cp * layout.replica <= ranks:
                yield FieldChange(name, "tp", tp, doublings)
            if pp * layout.tp * layout.cp * layout.replica <= ranks and pp <= inputs.model.modules[name].layers:
                yield FieldChange(name, "pp", pp, doublings)
        every = Ranks(range(inputs.cluster.size))
        if name != inputs.module and layout.ranks != every:
            yield FieldChange(name, "ranks", every, 2)
        if name == inputs.module and layout.micro_batch > 1:
            yield FieldChange(name, "micro_batch", layout.micro_batch // 2, 1)
