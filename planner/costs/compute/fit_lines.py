"""Fits of a module, measured or published, as cost lines over a task's items (FlexSP, arXiv 2412.01523, §4).

A plan's layout gives recomputation for all layers, or for ranges of them. `layer` of a module's fits is one layer with
the layout's recomputation. Where fits of recomputing layers stand beside it (`recomputing`), as in every profile that
was measured here, `layer` recomputes nothing; layers of several kinds are sums over these.

Where a profile measured bare layers, FSDP2's own work in a pass comes on top: hooks, casts, copies into and out of its
buffers. Each layer is one FSDP unit, embedding and head are another. Their collectives are tasks of their own
(network/rank_groups.py).
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from planner.costs.cost_lines import CostLine, LaunchTerm
from planner.costs.layer_pass import RecomputeCounts
from planner.errors import Unsupported
from planner.plan.descriptions import flow_text
from planner.plan.plan_file import Layout
from planner.specs.base import with_fields
from planner.specs.hardware.profile import ModuleCosts, PassCosts, PassFit
from planner.specs.parallelism import Recompute
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


def fsdp_line(costs: ModuleCosts, layout: Layout, layers: int, embedding_head: bool, forward: bool) -> CostLine:
    """The constant that FSDP2 adds to one pass over `layers` layers, whatever the number of tokens."""
    how = resharding(layout)
    units = costs.fsdp.get(how) if how else None
    if units is None:
        return CostLine()
    each, outside = (unit.forward_ms if forward else unit.backward_ms for unit in (units.layer, units.ends))
    return CostLine(const=(layers * each + (outside if embedding_head else 0.0)) * MS)


def resharding(layout: Layout) -> Literal["held", "resharded"] | None:
    """Whether FSDP2 reshards a module's units after forward; None where it does nothing: the optimizer updates the very
    weights that are computed with, and replicas sum gradients once a step, if there are any.
    """
    whole = layout.zero == 0 or layout.state_shards == 1
    if layout.dtype != "bf16" and whole and (layout.zero < 3 or layout.data_ranks == 1):
        return None
    return "resharded" if layout.zero == 3 else "held"


def costs_with_recompute(costs: ModuleCosts, each: RecomputeCounts) -> ModuleCosts:
    """The costs of a module that has these layers only."""
    if not any(how in costs.recomputing for how, _ in each):
        return costs
    parts = [
        (costs.recomputing.get(how, costs.layer) if isinstance(how, str) else costs.layer, count) for how, count in each
    ]
    return with_fields(costs, layer=parts[0][0] if len(parts) == 1 else combined_passes(parts))


def unmeasured_recompute(costs: ModuleCosts, layout: Layout, layers: Sequence[int]) -> list[Recompute]:
    """Kinds of recomputation that these layers use and the fits do not have.

    Published costs without others beside them are taken as those of whatever layers they were published of.
    """
    if not (costs.recomputing or costs.source == "fitted"):
        return []
    return [how for how in layout.recompute_counts(layers) if how != "none" and how not in costs.recomputing]


def require_measured_recompute(
    costs: ModuleCosts, layout: Layout, layers: Sequence[int], name: str, where: str, fix: str
) -> None:
    """Raises Unsupported where the costs called `name` lack the recomputation of these layers, and would price them too
    low.
    """
    for how in unmeasured_recompute(costs, layout, layers):
        raise Unsupported(f"`{name}` was measured without recompute {flow_text(how)}", where=where, fix=fix)


def combined_passes(parts: Sequence[tuple[PassCosts, float]]) -> PassCosts:
    """Fits of a number of layers of each kind, one after another."""
    times = [(passes, count / passes.layers) for passes, count in parts]
    return PassCosts(
        layers=round(sum(count for _, count in parts)),
        forward=combined_fit([(pass_fit(passes, True), each) for passes, each in times]),
        backward=combined_fit([(pass_fit(passes, False), each) for passes, each in times]),
        activation_kib_per_token=sum(passes.activation_kib_per_token * each for passes, each in times),
        working_kib_per_token=max(passes.working_kib_per_token for passes, _ in parts),
    )


def combined_fit(fits: Sequence[tuple[PassFit, float]]) -> PassFit:
    """The sum of fits, each taken so many times."""
    return PassFit(
        ms_per_token2=sum(fit.ms_per_token2 * times for fit, times in fits),
        ms_per_token=sum(fit.ms_per_token * times for fit, times in fits),
        ms=sum(fit.ms * times for fit, times in fits),
        launch_ms=sum(fit.launch_ms * times for fit, times in fits),
    )
