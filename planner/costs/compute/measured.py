"""Fits of a module that was measured, or published, as lines over a task's items (FlexSP, arXiv 2412.01523, §4)."""

from planner.costs.compute.lines import Line
from planner.specs.profile import Fit, ModuleCosts, Passes
from planner.units import MS


def compute_line(costs: ModuleCosts, layers: int, ends: bool, forward: bool, ways: int) -> Line:
    """`layers` layers (and the ends) in one pass, spread over `ways` ranks."""
    each, times = ways / costs.tp, layers / costs.layer.layers
    line = spread(pass_fit(costs.layer, forward), times, each)
    if ends and costs.ends:
        line += spread(pass_fit(costs.ends, forward), 1.0, each)
    return line


def weights_line(costs: ModuleCosts, layers: int, ends: bool, ways: int, again: bool) -> Line:
    """What of a backward makes the gradients of weights (W); the rest (I) makes those of inputs, and waits for others.

    A linear layer's backward is two products of equal work, one for each; attention, and what a pass on a stage takes
    however small it is, have no weights (arXiv 2401.10241, table 2). `again`: I makes layers again before it starts.
    """
    each, times = ways / costs.tp, layers / costs.layer.layers
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
