"""Costs of layers by what they make again in backward: of those that are alike each one's, else sums over the layers.

A plan's layout says it for all layers, or by ranges of them. Fits of a module are of one layer as the layout has them
(`layer`). Where fits of layers that make something again stand beside it (`recomputing`), it makes nothing again: so it
is in a profile that was measured here, and by rates where a layout's layers differ.
"""

from collections.abc import Sequence
from dataclasses import replace

from planner.costs.lines import pass_fit
from planner.costs.static.costs import static_costs
from planner.costs.static.layouts import recomputed
from planner.costs.static.machine import Machine
from planner.costs.static.setup import Setup
from planner.errors import InputError
from planner.plan.model import Layout
from planner.specs.accounting import Accounting
from planner.specs.base import changed
from planner.specs.job import Recompute
from planner.specs.model import Module
from planner.specs.profile import Fit, ModuleCosts, Passes

Mixed = tuple[tuple[Recompute, int], ...]  # how many layers make what again; empty: as `layer` has it


def mixed(layout: Layout, layers: Sequence[int]) -> Mixed:
    """Of some layers of a module."""
    return tuple(sorted(layout.recomputes(layers).items()))


def costs_of_layers(costs: ModuleCosts, each: Mixed) -> ModuleCosts:
    """The costs of a module that has these layers only."""
    if not any(how in costs.recomputing for how, _ in each):
        return costs
    parts = [(costs.recomputing.get(how, costs.layer), count) for how, count in each]
    return changed(costs, layer=parts[0][0] if len(parts) == 1 else together(parts))


def untold(costs: ModuleCosts, layout: Layout, layers: Sequence[int]) -> list[Recompute]:
    """What some of these layers make again, where the costs were measured of layers that do not.

    Costs that somebody published, without others beside them, are of whatever layers they were published of.
    """
    if costs.by == "rates" or not (costs.recomputing or costs.source == "fitted"):
        return []
    return [how for how in layout.recomputes(layers) if how != "none" and how not in costs.recomputing]


def require_told(costs: ModuleCosts, layout: Layout, layers: Sequence[int], name: str, where: str, fix: str) -> None:
    """Raises InputError when the costs called `name` would be taken as if these layers made nothing again."""
    for how in untold(costs, layout, layers):
        raise InputError(f"`{name}` was measured without recompute {how}", where=where, fix=fix)


def together(parts: Sequence[tuple[Passes, int]]) -> Passes:
    """So many layers of each kind, one after another."""
    times = [(passes, count / passes.layers) for passes, count in parts]
    return Passes(
        layers=sum(count for _, count in parts),
        forward=added([(pass_fit(passes, True), each) for passes, each in times]),
        backward=added([(pass_fit(passes, False), each) for passes, each in times]),
        forward_waits=waited([(passes.forward_waits, each) for passes, each in times]),
        backward_waits=waited([(passes.backward_waits, each) for passes, each in times]),
        activation_kib_per_token=sum(passes.activation_kib_per_token * each for passes, each in times),
        working_kib_per_token=max(passes.working_kib_per_token for passes, _ in parts),
    )


def waited(fits: Sequence[tuple[Fit | None, float]]) -> Fit | None:
    there = [(fit, times) for fit, times in fits if fit]
    return added(there) if there else None


def added(fits: Sequence[tuple[Fit, float]]) -> Fit:
    """Each so many times."""
    return Fit(
        ms_per_token2=sum(fit.ms_per_token2 * times for fit, times in fits),
        ms_per_token=sum(fit.ms_per_token * times for fit, times in fits),
        ms=sum(fit.ms * times for fit, times in fits),
    )


def making_again(setup: Setup, how: Recompute) -> Setup:
    """The same of layers that make this again."""
    full, again = recomputed(how)
    return replace(setup, full=full, again=again)


def typical(setup: Setup, layout: Layout, module: Module) -> Setup:
    """The same for the layers of a layout in the mean: the share that is made again whole, and what most others do."""
    counts = layout.recomputes(range(module.layers))
    again: Recompute = "selective" if counts.get("selective", 0) > counts.get("none", 0) else "none"
    return replace(making_again(setup, again), full=counts.get("full", 0) / module.layers)


def layered_costs(
    module: Module, layout: Layout, setup: Setup, machine: Machine, accounting: Accounting
) -> ModuleCosts:
    """What rates give for a layout's layers, each kind of them on its own. `setup`: of the layout."""
    words = layout.recomputes(range(module.layers))
    if len(words) == 1:
        return static_costs(module, making_again(setup, *words), machine, accounting)
    costs = {how: static_costs(module, making_again(setup, how), machine, accounting) for how in ("none", *words)}
    return changed(costs["none"], recomputing={how: costs[how].layer for how in words if how != "none"})
