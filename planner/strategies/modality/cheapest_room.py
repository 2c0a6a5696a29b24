"""As little offloaded and recomputed as fits, over all modules of joint layouts: what takes least for a byte first.

Copies of activations that hide take nothing. Of what layers may recompute, the sets of parts on the lower hull of
(bytes freed, seconds taken) of a module are mixed: some of its layers recompute a set, the others the one before it on
the hull. All modules' sets in the order of their seconds for a byte are one row of steps, and the fewest steps of the
row that fit are found by bisection, which is steered by what each step frees: layers of encoders are recomputed where
those of the LLM would cost more, and the other way round. The samples stay where they are meanwhile.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate, pairwise
from math import inf
from typing import NamedTuple

from planner.costs import SharedPrices, pricing_of
from planner.costs.memory import OFFLOAD_STEPS
from planner.layouts import layout_problem, recompute_ranges, searched_sets
from planner.plan.gradient_flow import GradientFlow, gradient_flows
from planner.plan.plan_file import Layout, Plan
from planner.scoring import TriedPlan
from planner.specs.base import Layers, with_fields
from planner.specs.hardware.cluster import device_of_rank
from planner.specs.inputs import Inputs
from planner.specs.parallelism import ZERO_BUBBLE, Recompute, decided_fields
from planner.specs.workload.items import part_lengths
from planner.strategies.modality.joint_changes import Change, changed
from planner.strategies.static import item_line, micro_batch_count

CLOSE = 0.003  # of the allowed memory: layouts that leave no more are not made to take more of it
LOOKS = 7  # at the memory of a plan, for one row of steps
NOTHING: Change = {"recompute": "none", "offload": 0.0}
AMPLE = 1.002  # times the bytes that are too many: what is freed is estimated


class Step(NamedTuple):
    """One more layer of each pipeline rank of a module recomputes more."""

    module: str
    recompute: Recompute | dict[str | int, Recompute]  # of the module then
    freed: float  # bytes, about, on each of its ranks
    seconds: float  # that a step takes longer for it, about


class Recomputing(NamedTuple):
    """All layers of a module recompute a set of parts: what that frees and takes, each beside other sets."""

    how: Recompute
    freed: float  # bytes on each of its ranks, about: less those that are kept
    seconds: float  # of a step, about


class Fitting(NamedTuple):
    """Layouts that fit, and the seconds of a step that this takes, about."""

    layouts: dict[str, Layout]
    seconds: float = 0.0


@dataclass(frozen=True)
class CheapestRoom:
    """A plan before its check, whose layouts recompute and offload nothing that the job leaves open, and the same with
    more and more of it.
    """

    inputs: Inputs
    plan: Plan
    prices: SharedPrices  # with other plans of the job
    alike: bool = False  # whether all layers of a module recompute alike, and nothing is offloaded
    hidden: dict[tuple[str, str], float] = field(default_factory=dict)  # shares that hide, by module and recomputation

    @property
    def bare(self) -> dict[str, Layout]:
        """The layouts that recompute and offload nothing."""
        return self.plan.layouts

    @cached_property
    def steps(self) -> list[Step]:
        """The row of steps, those that take least for a byte first."""
        found = [step for name in self.bare for step in self.steps_of(name)]
        return sorted(found, key=lambda step: step.seconds / step.freed)

    @cached_property
    def freed(self) -> list[float]:
        """Bytes that so many steps free, about."""
        return [*accumulate((step.freed for step in self.steps), initial=0.0)]

    @cached_property
    def seconds(self) -> list[float]:
        """Seconds that so many steps take, about."""
        return [*accumulate((step.seconds for step in self.steps), initial=0.0)]

    @cached_property
    def ends(self) -> tuple[float, float]:
        """The shares of the allowed memory that the bare layouts take, and those with all offloaded that hides."""
        return self.share(self.bare), self.share(self.after(0))

    def fitting(self, full: float = 1.0, most: float = inf) -> Fitting:
        """The layouts after the fewest steps that take no more than this share of the allowed memory, as far as it is
        known without tasks; or where none do, after all; or as many as take more than so many seconds.
        """
        bare, offloaded = self.ends
        if bare <= full or self.plan.uses.limits.tokens_per_rank is not None:
            return Fitting(self.bare)
        if offloaded <= full:
            return Fitting(self.offloading_less(full))
        shares = {0: offloaded}
        fewest, enough = 0, len(self.steps)  # known not to be enough, and the fewest that may be
        for _ in range(LOOKS):
            close = shares.get(enough, 0.0) > full - CLOSE
            if self.seconds[fewest] > most or enough - fewest <= (enough in shares) or close:
                break
            tried = self.guess(fewest, enough, shares, full)
            shares[tried] = self.share(self.after(tried))
            fewest, enough = (fewest, tried) if shares[tried] <= full else (tried, enough)
        count = fewest if self.seconds[fewest] > most else enough
        return Fitting(self.after(count), self.seconds[count])

    def guess(self, fewest: int, enough: int, shares: dict[int, float], full: float) -> int:
        """How many steps may be enough."""
        needed = self.freed[fewest] + (shares[fewest] - full) * self.allowed * AMPLE
        if enough in shares:  # in between, by a straight line
            part = (shares[fewest] - full) / (shares[fewest] - shares[enough])
            needed = self.freed[fewest] + part * (self.freed[enough] - self.freed[fewest])
        most = enough - 1 if enough in shares else enough
        return min(max(bisect_left(self.freed, needed), fewest + 1), most)

    def after(self, count: int) -> dict[str, Layout]:
        """The layouts after so many steps, with all offloaded that hides."""
        told = {step.module: step.recompute for step in self.steps[:count]}
        found = {name: with_fields(each, recompute=told.get(name, each.recompute)) for name, each in self.bare.items()}
        return {name: self.offloading(found, name) for name in found}

    def offloading(self, layouts: dict[str, Layout], name: str) -> Layout:
        """The layout of a module with all offloaded that hides, where it can be."""
        layout, knobs = layouts[name], self.inputs.software.knobs
        if self.alike:
            return layout
        alone = knobs.offload == "alone" and (layout.pp > 1 or layout.recompute != "none")
        if alone or knobs.offload == "none" or knobs.offload_shares != "any" or not self.keeps(name):
            return layout
        if (key := (name, str(layout.recompute))) not in self.hidden:
            tried = TriedPlan(with_fields(self.plan, layouts=layouts), self.prices)
            self.hidden[key] = tried.hidden_offload(name)
        return changed(self.inputs, name, layout, {"offload": self.hidden[key]})

    def offloading_less(self, full: float) -> dict[str, Layout]:
        """The layouts that recompute nothing with as little offloaded as fits: bytes fall in a straight line."""
        bare, offloaded = self.ends
        part = min(1.0, (bare - full) / (bare - offloaded) + 1.0 / OFFLOAD_STEPS)
        whole = self.after(0)
        less = {
            name: changed(self.inputs, name, each, {"offload": round(part * each.offload_share, 4)})
            if not each.offloaded_parts
            else each
            for name, each in whole.items()
        }
        return less if self.share(less) <= full else whole

    def share(self, layouts: dict[str, Layout]) -> float:
        """The greatest share of a rank's allowed memory, at least, as far as it is known without tasks."""
        return TriedPlan(with_fields(self.plan, layouts=layouts), self.prices).least_share

    @cached_property
    def allowed(self) -> float:
        """Bytes that a rank may hold."""
        return TriedPlan(self.plan, self.prices).plan_memory.allowed_bytes(0)

    @cached_property
    def flows(self) -> dict[str, GradientFlow]:
        """Through what of each module gradients go."""
        return gradient_flows(self.plan.uses.models, self.plan.edges)

    def keeps(self, name: str) -> bool:
        """Whether forwards of a module keep something for a backward through its layers."""
        items, computed = self.plan.uses.items[name], self.bare[name].features == "computed"
        return bool(items) and computed and self.flows[name].through_layers

    def steps_of(self, name: str) -> list[Step]:
        """The steps of one module, in the order of its hull."""
        layout, knobs = self.bare[name], self.inputs.software.knobs
        fixed = decided_fields(self.inputs.fixed_of(name))
        if "recompute" in fixed or layout.schedule in ZERO_BUBBLE or not self.keeps(name):
            return []
        layers, found = self.inputs.model.modules[name].layers, list[Step]()
        for before, after in pairwise(lower_hull([self.recomputing(name, how) for how in self.sets(name)])):
            count = -(-layers // layout.pp)
            freed, seconds = after.freed - before.freed, after.seconds - before.seconds
            if self.alike or "ranges" not in knobs.recompute:
                found.append(Step(name, after.how, freed, seconds))
                continue
            for number in range(1, count + 1):
                told = recompute_ranges(layout, layers, before.how, number, after.how)
                found.append(Step(name, told, freed / count, seconds / count))
        return found

    def sets(self, name: str) -> list[Recompute]:
        """What all layers of a module may recompute."""
        one = layout_problem(replace(self.inputs, module=name))
        named = [how for how in ("selective", "full") if how in self.inputs.software.knobs.recompute]
        return ["none", *searched_sets(one), *named]

    def recomputing(self, name: str, how: Recompute) -> Recomputing:
        """What it gives that all layers of a module recompute a set of parts."""
        layout = with_fields(self.bare[name], recompute=how)
        pricing = pricing_of(with_fields(self.plan, layouts={**self.bare, name: layout}), self.prices)
        basis = pricing.module_pricing(name, device_of_rank(self.inputs.cluster, layout.ranks[0]))
        tokens, count = self.typical[name]
        every, replicas = Layers(range(self.inputs.model.modules[name].layers)), layout.dp * layout.replica * layout.pp
        kept = basis.activation_bytes(every, False, layout.default_split, (tokens,)).layers
        seconds = item_line(pricing, name, layout).item_seconds(tokens)
        scale = count / replicas
        return Recomputing(how, -kept * scale * self.share_in_flight(name), seconds * scale)

    @cached_property
    def typical(self) -> dict[str, tuple[int, float]]:
        """Module → tokens of a part of an item that the mean token is in, and of how many such parts there are as many
        tokens.
        """
        found = {}
        for name, items in self.plan.uses.items.items():
            lengths = [length for size in items.values() for length in part_lengths(size)] or [1]
            typical = round(sum(length * length for length in lengths) / sum(lengths))
            found[name] = typical, sum(lengths) / typical
        return found

    def share_in_flight(self, name: str) -> float:
        """The share of a module's items whose forwards a rank keeps at once, about."""
        llm, layout = self.bare[self.inputs.module], self.bare[name]
        count = micro_batch_count(llm, len(self.inputs.batches[0].items))
        if name == self.inputs.module:
            return min(1.0, llm.pp / count)
        return 1.0 if layout.backward == "last" else min(1.0, (layout.serves + layout.ahead) / count)


def lower_hull(points: Sequence[Recomputing]) -> list[Recomputing]:
    """The points of the lower hull, from the first one on: of rising bytes and seconds for a byte."""
    found = [points[0]]
    while further := [each for each in points if each.freed > found[-1].freed]:
        at = found[-1]
        found.append(min(further, key=lambda each: (each.seconds - at.seconds) / (each.freed - at.freed)))
    return found


def bare_layouts(inputs: Inputs, layouts: dict[str, Layout]) -> dict[str, Layout]:
    """The layouts that recompute and offload nothing which the job leaves open."""
    return {name: with_fields(layout, **open_of(inputs, name)) for name, layout in layouts.items()}


def open_of(inputs: Inputs, name: str) -> Change:
    """What of NOTHING a job leaves open of a module."""
    fixed = decided_fields(inputs.fixed_of(name))
    return {field: value for field, value in NOTHING.items() if field not in fixed}
