"""How many tokens of a micro-batch a rank can hold: what its states, buffers and margin leave for activations."""

from typing import NamedTuple

from planner.costs.columns import columns_of
from planner.costs.memory.allowed import accounting_on, allowed_bytes
from planner.costs.memory.footprint import Footprint, footprint
from planner.plan.model import Layout
from planner.specs.accounting import Accounting
from planner.specs.job import Limits
from planner.specs.layers import Module
from planner.specs.profile import Device

MOST_TOKENS = 2**40  # where activations cost next to nothing


class Held(NamedTuple):
    """Bytes on each rank of a group of some items: kept by layers from forward to backward, and by what stands behind
    them; and made again while one layer's backward lasts, when the latter are gone.
    """

    layers: float
    ends: float
    remade: float

    @property
    def besides(self) -> float:
        """What a backward holds beside what forwards left."""
        return max(0.0, self.remade - self.ends)

    @property
    def most(self) -> float:
        """At once, of one micro-batch."""
        return self.layers + self.ends + self.besides


def without_activations(
    module: Module, layout: Layout, device: Device, accounting: Accounting, stage: int
) -> Footprint:
    """What a rank of a stage holds however few tokens it has."""
    return footprint(module, columns_of(layout), accounting_on(device, accounting), stage).without_activations


def room(module: Module, layout: Layout, device: Device, limits: Limits, accounting: Accounting) -> float:
    """Bytes that are left for activations on the fullest stage's ranks; less than 0: the states do not fit."""
    most, share = allowed_bytes(device, limits, accounting), 1.0 + accounting_on(device, accounting).fragmentation
    stages = (without_activations(module, layout, device, accounting, stage) for stage in range(layout.pp))
    return min(
        -1.0 if float(each.total) > most else (most - float(each.outside)) / share - float(each.beside_passes)
        for each in stages
    )


def token_cap(
    module: Module, held: Held, layout: Layout, device: Device, limits: Limits, accounting: Accounting
) -> int:
    """Tokens that one rank can hold in a micro-batch. The job's own limit replaces the model; may be ≤ 0.

    `held`: of one token, on a rank alone.
    """
    if limits.tokens_per_rank is not None:
        return limits.tokens_per_rank
    free = room(module, layout, device, limits, accounting)
    return int(min(free // held.most, MOST_TOKENS)) if held.most > 0 else MOST_TOKENS
