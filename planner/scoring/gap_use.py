"""How much of encoders' work runs in the gaps of a module on the same ranks, as a step's tasks are priced.

A gap is time in which a module that reads encoders waits for its exchanges: *within passes*, or *once a step* (its
reductions, and its gathers of updated weights). Encoders fill it as costs/side_by_side.py says, of which w is waited
for all the same. Efficiency is the share of encoders' work, alone, that gaps hold: *fine*, as the plan has it;
*coarse*, with all forwards in front of the module and all backwards behind it, beside what is once a step, at most.
"""

import numpy as np

from planner.costs import Floats, SideBySide, step_prices
from planner.plan.plan_file import Plan
from planner.scoring.score import Score
from planner.specs.base import Spec
from planner.units import duration


class Gap(Spec, omit_defaults=False):
    """Seconds of the mean rank in which a module exchanges, and of these, in which encoders compute."""

    seconds: float
    filled: float


class GapUse(Spec, omit_defaults=False):
    """Gaps of the mean rank that encoders share with others, by kind, in seconds; and encoders' work, alone."""

    within_passes: Gap
    once_a_step: Gap
    forwards: Gap  # work of encoders, and of it in gaps, their own exchanges beside others' compute included
    backwards: Gap
    coarse: float  # efficiencies
    fine: float
    hidden: float  # seconds by which the step's work is shorter
    hidden_at_most: float  # were all gaps filled, and nothing waited for anything

    @property
    def text(self) -> str:
        """What is hidden, what is left outside, and of placed passes why: `120.0 ms hidden of 350.0 ms; filled …`."""
        kinds = {"within passes": self.within_passes, "once a step": self.once_a_step}
        placed = self.within_passes.filled > 0  # else nobody looked where passes could be
        works = {"forwards" + ", due before more is exchanged" * placed: self.forwards}
        works |= {"backwards" + ", whose gradients come last" * placed: self.backwards}
        filled = [f"{name} {duration(g.filled)} of {duration(g.seconds)}" for name, g in kinds.items() if g.seconds]
        left = {what: work.seconds - work.filled for what, work in works.items() if work.filled < work.seconds}
        outside = [f"{duration(seconds)} of {what}" for what, seconds in left.items()]
        told = f"{duration(self.hidden)} hidden of {duration(self.hidden_at_most)}; filled {', '.join(filled)}"
        return f"{told}; left outside {'; '.join(outside)}" if outside else told


def gap_use(plan: Plan, scored: Score) -> GapUse | None:
    """The gaps of a step; None where no encoder is on ranks of another module, or has work there."""
    encoders, held = {edge.source for edge in plan.edges}, {True: set[int](), False: set[int]()}
    for name, layout in plan.layouts.items():
        held[name in encoders] |= {*layout.ranks}
    pricing = scored.plan_memory.pricing
    costs = step_prices(pricing, scored.tasks).each_alone(scored.tasks)
    beside = SideBySide(scored.tasks, costs, *pricing.waited_shares)
    alike, simulated = beside.alike.representative, scored.timeline.representative_of
    shared = [alike[simulated(rank)] for rank in held[True] & held[False] if simulated(rank) in alike]
    of_rank = {rank: rank_gaps(beside, encoders, rank) for rank in dict.fromkeys(shared)}
    parts = np.mean([of_rank[rank] for rank in shared], axis=0).tolist() if shared else []
    if not parts or not parts[4] + parts[6]:
        return None
    names, work = ("within_passes", "once_a_step", "forwards", "backwards"), parts[4] + parts[6]
    gaps = {name: Gap(seconds=parts[2 * at], filled=parts[2 * at + 1]) for at, name in enumerate(names)}
    coarse, fine = parts[8] / work, (parts[5] + parts[7]) / work
    return GapUse(**gaps, coarse=coarse, fine=fine, hidden=parts[9], hidden_at_most=parts[10])


def rank_gaps(beside: SideBySide, encoders: set[str], rank: int) -> Floats:
    """The numbers of `GapUse` on one rank: seconds of each gap, and filled; the coarse part; hidden, and at most."""
    passes, spent, exchanged = beside.of_rank[rank], beside.seconds, beside.exchanged
    modules = beside.modules[beside.tasks.kind[passes]]
    mine, others = passes[np.isin(modules, [*encoders])], passes[~np.isin(modules, [*encoders])]
    inside, hidden, within, once = np.zeros(len(spent)), 0.0, 0.0, np.zeros(2)
    for at, computes, exchanges in beside.beside_passes(rank):
        inside[at], within = computes + exchanges, within + computes
        hidden += (1.0 - beside.waited) * inside[at]
    for at in beside.once:
        kind = beside.kind(at)
        if kind.module not in encoders and rank in beside.alike.among(kind.ranks):
            places, together = beside.beside_exchange(at, rank, kind.module)
            waited = beside.waited_beside(places)
            together = np.where(waited < 1.0, together, 0.0)  # where all is waited for, nothing is in a gap
            once += spent[at], together.sum()
            np.add.at(inside, places, together)
            hidden += float(((1.0 - waited) * together).sum())
    ahead = beside.tasks.column(lambda kind: kind.phase == "F", np.bool_)[mine]
    inside = np.minimum(inside, spent)
    forwards, backwards = ((spent[own].sum(), inside[own].sum()) for own in (mine[ahead], mine[~ahead]))
    gaps = exchanged[others].sum(), within, *once, *forwards, *backwards
    own, more = (spent[mine] - exchanged[mine]).sum(), exchanged[others].sum() + once[0]
    most = min(own, more) + min(exchanged[mine].sum(), (spent[others] - exchanged[others]).sum())
    return np.array([*gaps, min(once[0], backwards[0]), hidden, (1.0 - beside.waited) * most])
