"""What a plan may use of a device, and how sure it is that it does: one verdict for every verb."""

from math import exp, inf
from statistics import NormalDist

from planner.specs.accounting import Accounting
from planner.specs.base import changed
from planner.specs.job import Limits
from planner.specs.profile import Device
from planner.units import GIB


def allowed_bytes(device: Device, limits: Limits, accounting: Accounting) -> float:
    """The most that a rank may hold, its context counted: so much that the margin stays free, and that it runs out of
    memory with no more than the chance that the job allows.
    """
    whole = device.memory_gib * GIB
    sure = inf if limits.oom_chance >= 1 else exp(NormalDist().inv_cdf(limits.oom_chance) * accounting.spread)
    return whole * min(1 - limits.memory_margin, sure)


def accounting_on(device: Device, accounting: Accounting) -> Accounting:
    """What a framework keeps on such a device: its context is the device's own fact, and a CPU has no workspaces, no
    buffers of communicators, and an allocator that gives back what is free.
    """
    context = device.reserved_gib or (0.0 if device.kind == "cpu" else accounting.context_gib)
    if device.kind == "cpu":
        return changed(accounting, context_gib=context, workspace_gib=0.0, buffers=0.0, fragmentation=0.0)
    return changed(accounting, context_gib=context)
