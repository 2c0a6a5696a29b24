"""As little offloaded and recomputed as fits, over all modules of joint layouts: one knapsack of bytes and seconds.

Its items: a part of what a module can offload, whose copies hide, so that it takes nothing; and one more layer of each
pipeline rank of a module that recomputes the next set of parts instead of the one before, of the sets on the lower hull
of (bytes kept, seconds taken). Those that take least for a byte come first, of whichever module. An item is taken where
some rank with its module holds too much: by arithmetic, from what the ranks hold without any. How far that is off, as
modules peak at different times, the plans themselves say, of which few are looked at. The samples stay where they are
meanwhile.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import accumulate, pairwise
from math import inf
from operator import neg
from typing import Any, NamedTuple

from planner.costs import SharedPrices
from planner.layouts import layout_problem, recompute_ranges, searched_sets
from planner.plan.gradient_flow import gradient_flows
from planner.plan.plan_file import Layout, Plan
from planner.scoring import TriedPlan
from planner.specs.base import Layers, with_fields
from planner.specs.hardware.cluster import device_of_rank
from planner.specs.inputs import Inputs
from planner.specs.parallelism import ZERO_BUBBLE, Recompute, decided_fields
from planner.specs.workload.items import part_lengths
from planner.strategies.assignment import item_line, micro_batch_count, orders_of
from planner.strategies.modality.joint_changes import Change

CLOSE = 0.001  # of the allowed memory: as far as looks are trusted
LOOKS = 5  # at the memory of plans, for one share of it
OFFLOADED = 16  # items of what a module offloads
NOTHING: Change = {"recompute": "none", "offload": 0.0}


class Item(NamedTuple):
    """Something more that a module offloads or recomputes."""

    module: str
    freed: float  # bytes, about, on each of its ranks
    seconds: float  # that a step takes longer for it, about
    field: str  # of its layout
    value: Callable[[], Any]  # with this item and all before it


class Point(NamedTuple):
    """All layers of a module recompute a set of parts: what that keeps and takes."""

    how: Any  # as layouts say it
    bytes: float  # on each of its ranks, about
    seconds: float  # of a step, about


@dataclass(frozen=True)
class ModuleAlone:
    """What a module has by its own layout, whichever others have; `tried`: a plan with it."""

    name: str
    tried: TriedPlan

    @cached_property
    def hidden(self) -> float:
        """The largest share of its activations whose copies to the host hide."""
        return self.tried.hidden_offload(self.name)

    @cached_property
    def passes(self) -> tuple[float, float]:
        """Bytes that forwards of all its items keep in its layers, and seconds of their passes, by one replica."""
        plan, pricing, layout = self.tried.plan, self.tried.pricing, self.tried.plan.layouts[self.name]
        basis = pricing.module_pricing(self.name, device_of_rank(plan.uses.cluster, layout.ranks[0]))
        lengths = [length for size in plan.uses.items[self.name].values() for length in part_lengths(size)] or [1]
        tokens = round(sum(length * length for length in lengths) / sum(lengths))  # of the part that a mean token is in
        every, count = Layers(range(plan.uses.models[self.name].layers)), sum(lengths) / tokens
        kept = basis.activation_bytes(every, False, layout.default_split, (tokens,)).layers
        return kept * count, item_line(pricing, self.name, layout).item_seconds(tokens) * count


@dataclass(frozen=True)
class CheapestRoom:
    """A plan before its check, whose layouts recompute and offload nothing that the job leaves open, and the same with
    more and more of it.
    """

    inputs: Inputs
    plan: Plan
    prices: SharedPrices  # with other plans of the job
    known: dict[tuple[str, str], ModuleAlone] = field(default_factory=dict)  # with other plans, by name and layout
    alike: bool = False  # whether all layers of a module recompute alike, and nothing is offloaded
    everywhere: bool = False  # whether items are taken of all modules, as ranks that seem to have room may have none
    seen: dict[int, TriedPlan] = field(default_factory=dict)  # with so many items: those that were looked at

    @cached_property
    def ordered(self) -> tuple[list[Item], list[float]]:
        """The items in the order in which smaller and smaller shares of the memory ask for them, and the share that
        each number of them leaves, about.
        """
        tried, held, found = self.tried(0), dict[tuple[str, ...], float](), list[tuple[float, Item]]()
        of_modules = {name: {*layout.ranks} for name, layout in self.plan.layouts.items()}
        for rank, peak in enumerate(tried.least_peaks):  # the most on ranks of the same modules
            names = tuple(name for name, ranks in of_modules.items() if self.everywhere or rank in ranks)
            held[names] = max(held.get(names, 0.0), peak)
        every = [item for name in of_modules for item in self.items_of(name)]
        for item in sorted(every, key=lambda each: each.seconds / each.freed):
            crowded = {names: held[names] for names in held if item.module in names}
            found.append((max(crowded.values()), item))
            held |= {names: peak - item.freed for names, peak in crowded.items()}
        found.sort(key=lambda each: -each[0])
        least, allowed = max(held.values()), tried.plan_memory.allowed_bytes(0)
        return [item for _, item in found], [max(peak, least) / allowed for peak in (*(p for p, _ in found), least)]

    @cached_property
    def seconds(self) -> list[float]:
        """Seconds that each number of items takes, about."""
        return [*accumulate((item.seconds for item in self.ordered[0]), initial=0.0)]

    def fitting(self, full: float = 1.0, most: float = inf) -> tuple[TriedPlan, float]:
        """The plan with the fewest items that takes no more than this share of the allowed memory, as far as it is
        known without tasks, and the seconds that these take; where none does, with all; or with some that are known to
        be too few, and take more than so many seconds.
        """
        limited = self.plan.uses.limits.tokens_per_rank is not None
        if limited or self.tried(0).least_share <= full:
            return self.tried(0), 0.0
        for _ in range(LOOKS):
            few, enough = self.around(full)
            tried = max(self.guess(full), few + 1)
            if self.seconds[few] > most or tried > len(self.ordered[0]) or (tried >= enough and enough in self.seen):
                break
            self.tried(tried)
        few, enough = self.around(full)
        chosen = few if self.seconds[few] > most else enough
        return self.tried(chosen), self.seconds[chosen]

    def around(self, full: float) -> tuple[int, int]:
        """The most items that are known to be too few, and the fewest that are known to be enough, or all."""
        shares = {count: tried.least_share for count, tried in self.seen.items()}
        few = max(count for count, share in shares.items() if share > full)
        return few, min((count for count, share in shares.items() if share <= full), default=len(self.ordered[0]))

    def guess(self, full: float) -> int:
        """How many items are enough by what they free, corrected by what those that are known left nearest to it."""
        shares, about = {count: tried.least_share for count, tried in self.seen.items()}, self.ordered[1]
        at, *others = sorted(shares, key=lambda count: (abs(shares[count] - full), -count))
        slopes = (
            (about[at] - about[each]) / (shares[at] - shares[each]) for each in others if shares[each] != shares[at]
        )
        aim = about[at] - (shares[at] - full + CLOSE) * next(slopes, 1.0)
        return bisect_left(about, -aim, key=neg)

    def after(self, count: int) -> dict[str, Layout]:
        """The layouts with so many items, and with all offloaded that hides of modules that recompute some."""
        layouts, last = (
            {**self.plan.layouts},
            {item.module: item for item in (self.ordered[0][:count] if count else ())},
        )
        for name, item in last.items():
            layout = with_fields(layouts[name], **{item.field: item.value()})
            hidden = self.hidden(name, layout) if item.field == "recompute" else 0.0
            layouts[name] = with_fields(layout, offload=hidden) if hidden else layout
        return layouts

    def tried(self, count: int) -> TriedPlan:
        """The plan with so many items."""
        if count not in self.seen:
            self.seen[count] = TriedPlan(with_fields(self.plan, layouts=self.after(count)), self.prices)
        return self.seen[count]

    def alone(self, name: str, layout: Layout) -> ModuleAlone:
        """What a module has by this layout."""
        key = name, str(layout)
        if key not in self.known:
            plan = with_fields(self.plan, layouts={**self.plan.layouts, name: layout})
            self.known[key] = ModuleAlone(name, TriedPlan(plan, self.prices))
        return self.known[key]

    def hidden(self, name: str, layout: Layout) -> float:
        """The largest share of a module's activations that may be offloaded, and whose copies hide."""
        knobs, fixed = self.inputs.software.knobs, decided_fields(self.inputs.fixed_of(name))
        beside = knobs.offload == "any" or (layout.pp == 1 and layout.recompute == "none")
        told = beside and knobs.offload != "none" and knobs.offload_shares == "any"
        return self.alone(name, layout).hidden if told and "offload" not in fixed and not self.alike else 0.0

    def items_of(self, name: str) -> list[Item]:
        """The items of one module, in their order; none where its forwards keep nothing for a backward."""
        layout, flows = self.plan.layouts[name], gradient_flows(self.plan.uses.models, self.plan.edges)
        if not (self.plan.uses.items[name] and layout.features == "computed" and flows[name].through_layers):
            return []
        layers, knobs, found = self.inputs.model.modules[name].layers, self.inputs.software.knobs, list[Item]()
        points, hidden = self.points(name), self.hidden(name, layout)
        moved = points[0].bytes * hidden * max(0.0, 1.0 - 2.0 * layout.pp * layout.vpp / layers)  # but ends of chunks
        for number in range(1, OFFLOADED + 1 if moved else 1):
            share = partial(round, hidden * number / OFFLOADED, 4)
            found.append(Item(name, moved / OFFLOADED, 0.0, "offload", share))
        count = -(-layers // layout.pp) if "ranges" in knobs.recompute and not self.alike else 1
        for before, after in pairwise(lower_hull(points)):
            freed, seconds = (before.bytes - after.bytes) / count, (after.seconds - before.seconds) / count
            for number in (layers,) if count == 1 else range(1, count + 1):
                how = partial(recompute_ranges, layout, layers, before.how, number, after.how)
                found.append(Item(name, freed, seconds, "recompute", how))
        return found

    def points(self, name: str) -> list[Point]:
        """What all layers of a module may recompute, from what they do in any case on."""
        layout, named = self.plan.layouts[name], self.inputs.software.knobs.recompute
        sets = searched_sets(layout_problem(replace(self.inputs, module=name)))
        every: list[Recompute] = [*sets, *(how for how in ("selective", "full") if how in named)]
        if "recompute" in decided_fields(self.inputs.fixed_of(name)) or layout.schedule in ZERO_BUBBLE:
            every = []
        ranks, found = layout.dp * layout.replica * layout.pp, list[Point]()
        held = self.share_in_flight(name) * (1.0 + self.inputs.accounting.fragmentation)
        for how in (layout.recompute, *every):
            kept, seconds = self.alone(name, with_fields(layout, recompute=how)).passes
            found.append(Point(how, kept * held / ranks, seconds / ranks))
        return found

    def share_in_flight(self, name: str) -> float:
        """The share of a module's items whose forwards a rank keeps at once, about."""
        llm = self.plan.layouts[self.inputs.module]
        count = micro_batch_count(llm, len(self.inputs.batches[0].items))
        if name == self.inputs.module:
            return min(1.0, llm.pp / count)
        order = orders_of(self.plan)[name]
        kept = count if None in order or not order.at_once else (order.serves or 0) + (order.ahead or 0)
        return min(1.0, kept / count)


def lower_hull(points: Sequence[Point]) -> list[Point]:
    """The points of the lower hull, from the first one on: of falling bytes and rising seconds for a byte."""
    found = [points[0]]
    while further := [each for each in points if each.bytes < found[-1].bytes]:
        at = found[-1]
        found.append(min(further, key=lambda each: (each.seconds - at.seconds) / (at.bytes - each.bytes)))
    return found


def bare_layouts(inputs: Inputs, layouts: dict[str, Layout]) -> dict[str, Layout]:
    """The layouts that recompute and offload nothing which the job leaves open."""
    fixed = {name: decided_fields(inputs.fixed_of(name)) for name in layouts}
    return {
        name: with_fields(layout, **{field: value for field, value in NOTHING.items() if field not in fixed[name]})
        for name, layout in layouts.items()
    }
