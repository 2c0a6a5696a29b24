"""Seconds of one group in one micro-batch, as a line over its items: quad·Σs² + lin·Σs + const, and what no attention
hides of a ring's blocks.

Every strategy that groups sequences works on these lines, and the simulator prices F and B tasks with the same ones, so
that what was optimised is what is predicted (FlexSP's cost model, arXiv 2412.01523, section 4).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from planner.costs.cost import Cost, trust
from planner.specs.profile import Fit, ModuleCosts, Passes
from planner.units import MS


class Ring(NamedTuple):
    """Key/value blocks that travel from rank to rank while these compute attention on what they have."""

    moved: float  # seconds of sending, per token of an item
    hidden: float  # seconds of attention, per token² of the item: as much of the sending takes no time of its own

    def exposed(self, size: int) -> float:
        """Seconds by which sending outlasts attention."""
        return max(0.0, self.moved * size - self.hidden * size * size)


@dataclass(frozen=True, slots=True)
class Line:
    """Seconds over packed items of s tokens each; `comm_*` is the part spent in exchanges.

    `quad` holds the attention that hides `rings`, so that an item's attention and ring take max(quad·s², moved·s).
    """

    quad: float = 0.0
    lin: float = 0.0
    const: float = 0.0
    comm_lin: float = 0.0
    comm_const: float = 0.0
    rings: tuple[Ring, ...] = ()  # of each pass

    def seconds(self, sizes: Sequence[int]) -> float:
        """All items together, packed."""
        squares = float(sum(size * size for size in sizes))
        return self.quad * squares + self.lin * sum(sizes) + self.const + self.exposed(sizes)

    def of(self, size: int) -> float:
        """One item alone, without the constant."""
        computed = self.quad * size * size + self.lin * size
        return computed + self.exposed((size,)) if self.rings else computed

    def comm(self, sizes: Sequence[int]) -> float:
        """The part of `seconds` in which ranks wait for each other's data."""
        return self.comm_lin * sum(sizes) + self.comm_const + self.exposed(sizes)

    def exposed(self, sizes: Sequence[int]) -> float:
        return sum((ring.exposed(size) for ring in self.rings for size in sizes), 0.0)

    def __add__(self, other: "Line") -> "Line":
        return Line(
            self.quad + other.quad,
            self.lin + other.lin,
            self.const + other.const,
            self.comm_lin + other.comm_lin,
            self.comm_const + other.comm_const,
            self.rings + other.rings,
        )


def compute_line(costs: ModuleCosts, layers: int, ends: bool, forward: bool, ways: int) -> Line:
    """`layers` layers (and the ends) in one pass, spread over `ways` ranks: compute, and what tp's ranks and experts
    wait for each other.
    """
    each, times = ways / (costs.tp * costs.cp), layers / costs.layer.layers
    line = Line(const=costs.stage_ms * MS) + spread(pass_fit(costs.layer, forward), times, each)
    waits = costs.layer.forward_waits if forward else costs.layer.backward_waits
    if waits:
        waited = spread(waits, times, each)
        line += replace(waited, comm_lin=waited.lin, comm_const=waited.const)
    if ends and costs.ends:
        line += spread(pass_fit(costs.ends, forward), 1.0, each)
    return line


def weights_line(costs: ModuleCosts, layers: int, ends: bool, ways: int, again: bool) -> Line:
    """What of a backward makes the gradients of weights (W); the rest (I) makes those of inputs, and waits for others.

    A linear layer's backward is two products of equal work, one for each; attention, and what a pass on a stage takes
    however small it is, have no weights (arXiv 2401.10241, table 2). `again`: I makes layers again before it starts.
    """
    each, times = ways / (costs.tp * costs.cp), layers / costs.layer.layers
    line = spread(weights_fit(costs.layer, again), times, each)
    return line + spread(weights_fit(costs.ends, False), 1.0, each) if ends and costs.ends else line


def weights_fit(passes: Passes, again: bool) -> Fit:
    """Half of what is linear in tokens, and of what is once, in a backward without recomputation."""
    backward, forward = pass_fit(passes, False), pass_fit(passes, True) if again else Fit()
    return Fit(
        ms_per_token=max(0.0, backward.ms_per_token - forward.ms_per_token) / 2,
        ms=max(0.0, backward.ms - forward.ms) / 2,
    )


def spread(fit: Fit, times: float, ways: float) -> Line:
    """What a fit gives so many times, shared out."""
    return Line(fit.ms_per_token2 * MS * times / ways, fit.ms_per_token * MS * times / ways, fit.ms * MS * times)


def pass_fit(passes: Passes, forward: bool) -> Fit:
    """The fit of one pass; published fits of both passes are shared out by `forward_share`."""
    if passes.both is None:
        fit = passes.forward if forward else passes.backward
        return fit or Fit()
    share = passes.forward_share if forward else 1 - passes.forward_share
    return Fit(
        ms_per_token2=passes.both.ms_per_token2 * share,
        ms_per_token=passes.both.ms_per_token * share,
        ms=passes.both.ms * share,
    )


def summed(*costs: Cost) -> Cost:
    """Several costs one after another; their spreads add up as if they erred together."""
    total = sum(cost.value for cost in costs)
    spread = sum(cost.value * cost.spread for cost in costs) / total if total else 0.0
    sources = [cost.source for cost in costs if cost.value > 0]
    return Cost(total, trust(sources), spread, sum(cost.comm for cost in costs))
