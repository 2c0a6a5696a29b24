"""Fits of a module, measured or published, as cost lines over a task's items (FlexSP, arXiv 2412.01523, §4)."""

from dataclasses import replace

from planner.costs.cost_lines import CostLine, LaunchTerm
from planner.specs.hardware.profile import ModuleCosts, PassCosts, PassFit
from planner.units import MS


def fit_line(costs: ModuleCosts, layers: int, embedding_head: bool, forward: bool, degree: int) -> CostLine:
    """The cost line of one pass over `layers` layers, sharded over `degree` ranks; `embedding_head`: with what is
    outside the layers.
    """
    share, times = degree / costs.tp, layers / costs.layer.layers
    line = sharded_fit_line(pass_fit(costs.layer, forward), times, share)
    if embedding_head and costs.ends:
        line += sharded_fit_line(pass_fit(costs.ends, forward), 1.0, share)
    return line


def fit_weight_gradient_line(
    costs: ModuleCosts, layers: int, embedding_head: bool, degree: int, recomputes: bool
) -> CostLine:
    """The cost line of a backward's weight gradients (W); its input gradients (I) are the rest.

    The backward of a linear layer is two products of equal work, one for each; attention, and what a pass costs however
    small it is, have no weights (arXiv 2401.10241, table 2). `recomputes`: I recomputes the layers before it starts.
    """
    share, times = degree / costs.tp, layers / costs.layer.layers
    line = sharded_fit_line(weight_gradient_fit(costs.layer, recomputes), times, share)
    return (
        line + sharded_fit_line(weight_gradient_fit(costs.ends, False), 1.0, share)
        if embedding_head and costs.ends
        else line
    )


def weight_gradient_fit(passes: PassCosts, recomputes: bool) -> PassFit:
    """Half of what is linear in tokens, and half of the constant, of a backward without recomputation."""
    backward, forward = pass_fit(passes, False), pass_fit(passes, True) if recomputes else PassFit()
    return PassFit(
        ms_per_token=max(0.0, backward.ms_per_token - forward.ms_per_token) / 2,
        ms=max(0.0, backward.ms - forward.ms) / 2,
        launch_ms=max(0.0, backward.launch_ms - forward.launch_ms) / 2,
    )


def sharded_fit_line(fit: PassFit, times: float, degree: float) -> CostLine:
    """A fit as a cost line, taken `times` times and sharded over `degree` ranks."""
    once = CostLine(fit.ms_per_token2 * MS / degree, fit.ms_per_token * MS / degree, fit.ms * MS)
    if fit.launch_ms:
        once = replace(once, launches=(LaunchTerm(1.0, once, fit.launch_ms * MS),))
    return once * times


def pass_fit(passes: PassCosts, forward: bool) -> PassFit:
    """The fit of one pass; a published fit of both passes together is divided by `forward_share`."""
    if passes.both is None:
        fit = passes.forward if forward else passes.backward
        return fit or PassFit()
    share = passes.forward_share if forward else 1 - passes.forward_share
    return PassFit(
        ms_per_token2=passes.both.ms_per_token2 * share,
        ms_per_token=passes.both.ms_per_token * share,
        ms=passes.both.ms * share,
        launch_ms=passes.both.launch_ms * share,
    )
