"""The nearest change of layouts that fits: of as few fields as any, of those that people change first, by as little as
will do, and of what is left the quickest.

Fields are changed one at a time, then in pairs, then as many as it takes: of more than two, fewer might do, though none
of them can be left out. What a change gives, others evaluate: of one
module the closed form, for all values of the fields at once (closed_form_change.py); of several a plan for every value,
as what a rank holds depends on when encoders work (tried_change.py).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations, groupby
from typing import Any, NamedTuple

from planner.plan.descriptions import flow_text
from planner.plan.plan_file import Layout

# Fields in the order in which people change them when a run does not fit: what costs time alone, then the mesh.
CHANGED_FIRST = (
    "micro_batch", "recompute", "zero", "offload", "optimizer_offload", "tp", "cp", "ulysses", "pp", "vpp", "ep", "etp",
    "replica", "ranks",
)  # fmt: skip
LEANEST = 6  # changes of one field that are tried in pairs


class FieldChange(NamedTuple):
    """One field of one module with another value."""

    module: str  # empty where there is no other
    field: str
    value: Any = None  # None: any
    doublings: float = 0.0  # how far it is from the value that it had

    @property
    def lateness(self) -> int:
        """How late people change the field: one that they change earlier is nearer, whatever its value."""
        return CHANGED_FIRST.index(self.field)

    def __str__(self) -> str:
        return f"{self.module}{'.' if self.module else ''}{self.field}={flow_text(self.value)}"


@dataclass(frozen=True, slots=True)
class Change:
    """Other layouts, and what of them is another, as `planner why-not` takes it."""

    asked: tuple[FieldChange, ...]
    layouts: dict[str, Layout]
    differences: tuple[str, ...]
    doublings: float
    seconds: float  # of a step
    bytes_needed: float  # on the fullest rank
    share: float  # of what that may hold
    fits: bool
    simulated: bool = False  # else by the closed form

    @property
    def far(self) -> tuple[int, float, float]:
        """How far it is, among changes of as many fields."""
        return sum(each.lateness for each in self.asked), self.doublings, self.seconds

    @property
    def is_least(self) -> bool:
        """Whether all changes of fewer fields were tried: of one module single fields and pairs, of several single."""
        return len(self.asked) <= (1 if self.simulated else 2)

    @property
    def fix(self) -> str:
        """The differences as the fix of an error."""
        return f"{' and '.join(self.differences)} instead"


Evaluate = Callable[[Sequence[FieldChange]], Change | None]  # None: that cannot be


def nearest_change(options: Sequence[FieldChange], evaluate: Evaluate, leanest: int = LEANEST) -> Change | None:
    """The nearest change that fits, of some of these fields; None where none that is tried does."""
    single = dict[FieldChange, Change]()
    for _, alike in groupby(sorted(options, key=lambda each: each.lateness), lambda each: each.lateness):
        single |= {each: found for each in alike if (found := evaluate((each,)))}
        if best := nearest([*single.values()]):
            return best
    lean = sorted(single, key=lambda each: single[each].share)
    pairs = [pair for pair in combinations(lean[:leanest], 2) if are_several(pair)]
    return nearest([found for pair in pairs if (found := evaluate(pair))]) or gathered(lean, evaluate)


def nearest(found: Sequence[Change]) -> Change | None:
    """The nearest of those that fit, of as many fields."""
    return min((each for each in found if each.fits), key=lambda each: each.far, default=None)


def are_several(changes: Sequence[FieldChange]) -> bool:
    """Whether changes are of different fields."""
    return len({(change.module, change.field) for change in changes}) == len(changes)


def gathered(lean: Sequence[FieldChange], evaluate: Evaluate) -> Change | None:
    """Changes of ever more fields, the leanest first, each kept where it leaves no less room, until all of them fit;
    then without those that are not needed, the latest first.
    """
    best: Change | None = None
    for each in lean:
        changes = (*(best.asked if best else ()), each)
        found = evaluate(changes) if are_several(changes) else None
        if found and (best is None or found.share <= best.share):
            best = found
            if best.fits:
                break
    if best is None or not best.fits:
        return None
    for change in sorted(best.asked, key=lambda each: -each.lateness):
        fewer = evaluate([each for each in best.asked if each != change])
        best = fewer if fewer and fewer.fits else best
    return best
