"""Fits of layers with recomputation: those of one layer where all layers recompute alike, else sums over the kinds.

A plan's layout gives recomputation for all layers, or for ranges of them. `layer` of a module's fits is one layer with
the layout's recomputation. Where fits of recomputing layers stand beside it (`recomputing`), as in every profile that
was measured here, `layer` recomputes nothing.
"""

from collections.abc import Sequence

from planner.costs.compute.fit_lines import pass_fit
from planner.costs.layer_pass import RecomputeCounts
from planner.errors import Unsupported
from planner.plan.descriptions import flow_text
from planner.plan.plan_file import Layout
from planner.specs.base import with_fields
from planner.specs.hardware.profile import ModuleCosts, PassCosts, PassFit
from planner.specs.parallelism import Recompute


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
