"""What prices the modules of many plans of one job, computed once for each layout of a module, whichever others have.

A search holds one, and hands it to the pricing of each plan that it tries. Models, devices, cluster and rates are the
job's, so that a module's layout and what its cross attention reads decide all else.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from planner.costs.fit_pricing import FitPricing
from planner.costs.layer_pass import CrossReads
from planner.costs.memory.footprint import Footprint
from planner.costs.network_model import CommGroup
from planner.costs.rate_pricing import RatePricing
from planner.plan.plan_file import Layout
from planner.specs.base import Ranks

ModulePricing = FitPricing | RatePricing


class SendRoute(NamedTuple):
    """Who sends to whom: numbers of ranks, those on both sides, the group over which, and the kinds of device."""

    senders: int
    readers: int
    both: int
    group: CommGroup
    kinds: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SharedPrices:
    """What prices a module on a device kind, and what it holds, by its layout; and the ways of sends, which depend on
    no layout where all ranks are of one kind.
    """

    known: dict[tuple[str, str, str, CrossReads], ModulePricing] = field(default_factory=dict)
    routes: dict[tuple[str, Ranks, Ranks, bool], SendRoute] = field(default_factory=dict)
    # Bytes without activations of each stage of a module by kind of device, by its layout
    footprints: dict[tuple[str, str, tuple[str, ...]], list[dict[str, Footprint]]] = field(default_factory=dict)

    def of(
        self, place: tuple[str, str], layout: Layout, reads: CrossReads, new: Callable[[], ModulePricing]
    ) -> ModulePricing:
        """What prices a module on a kind (`place`), made where it is not known."""
        key = (*place, str(layout), reads)
        if key not in self.known:
            self.known[key] = new()
        return self.known[key]
