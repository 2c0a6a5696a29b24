"""Seconds of one group in one micro-batch, as a line over its items: quad·Σs² + lin·Σs + const.

Every strategy that groups sequences works on these lines, and the simulator prices F and B tasks with the same ones, so
that what was optimised is what is predicted (FlexSP's cost model, arXiv 2412.01523, section 4).
"""

from dataclasses import dataclass

from planner.costs.comm import collective_cost
from planner.costs.cost import Cost, trust
from planner.specs.base import Ranks
from planner.specs.cluster import Cluster
from planner.specs.job import Dtype
from planner.specs.model import Module
from planner.specs.profile import Collective, Fit, ModuleCosts, Passes
from planner.specs.shapes import BYTES, exchange_elements
from planner.units import MS


@dataclass(frozen=True, slots=True)
class Line:
    """Seconds over packed items of s tokens each; `comm_*` is the part spent in exchanges."""

    quad: float = 0.0
    lin: float = 0.0
    const: float = 0.0
    comm_lin: float = 0.0
    comm_const: float = 0.0

    def __call__(self, squares: float, tokens: float) -> float:
        return self.quad * squares + self.lin * tokens + self.const

    def comm(self, tokens: float) -> float:
        return self.comm_lin * tokens + self.comm_const

    def __add__(self, other: "Line") -> "Line":
        return Line(
            self.quad + other.quad,
            self.lin + other.lin,
            self.const + other.const,
            self.comm_lin + other.comm_lin,
            self.comm_const + other.comm_const,
        )


def compute_line(costs: ModuleCosts, layers: int, ends: bool, forward: bool, ways: int) -> Line:
    """Compute of `layers` layers (and the ends) in one pass, spread over `ways` ranks."""
    fit = pass_fit(costs.layer, forward)
    times = layers / costs.layer.layers
    line = Line(fit.ms_per_token2 * MS * times / ways, fit.ms_per_token * MS * times / ways, fit.ms * MS * times)
    if ends and costs.ends:
        fit = pass_fit(costs.ends, forward)
        line += Line(fit.ms_per_token2 * MS / ways, fit.ms_per_token * MS / ways, fit.ms * MS)
    return line


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


def exchange_line(
    module: Module, costs: ModuleCosts, ranks: Ranks, dtype: Dtype, cluster: Cluster, tables: dict[str, Collective]
) -> tuple[Line, Cost]:
    """The all-to-alls of one pass over all layers, on a group of these ranks; and one token's cost, for its source."""
    degree = len(ranks)
    if costs.a2a_mb_per_token is not None:
        per_token = costs.a2a_mb_per_token * 1e6 / 2  # both passes
    else:
        per_token = float(exchange_elements(module, degree) * module.layers * BYTES[dtype])
    calls = (costs.a2a_calls if costs.a2a_calls is not None else 4 * module.layers) // 2
    fixed = collective_cost("all_to_all", 0.0, calls, ranks, cluster, tables)
    moved = collective_cost("all_to_all", per_token / degree, 0, ranks, cluster, tables)
    line = Line(0.0, moved.value, fixed.value, moved.value, fixed.value)
    return line, moved


def summed(*costs: Cost) -> Cost:
    """Several costs one after another; their spreads add up as if they erred together."""
    total = sum(cost.value for cost in costs)
    spread = sum(cost.value * cost.spread for cost in costs) / total if total else 0.0
    sources = [cost.source for cost in costs if cost.value > 0]
    return Cost(total, trust(sources), spread, sum(cost.comm for cost in costs))
