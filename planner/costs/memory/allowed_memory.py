"""The memory that a plan may use on a device, for every verb alike."""

from planner.costs.memory.oom_chance import share_at_chance
from planner.specs.base import with_fields
from planner.specs.framework.memory_coefficients import MemoryCoefficients
from planner.specs.hardware.profile import Device
from planner.specs.job import Limits
from planner.units import GIB


def allowed_bytes(device: Device, limits: Limits, accounting: MemoryCoefficients) -> float:
    """The most bytes that a rank may hold, its context included: the margin stays free, and the chance of running out
    of memory stays below the job's.
    """
    capacity = device.memory_gib * GIB
    return capacity * min(1 - limits.memory_margin, share_at_chance(limits.oom_chance, accounting.spread))


def device_accounting(device: Device, accounting: MemoryCoefficients) -> MemoryCoefficients:
    """A framework's memory coefficients on a device: the context is the device's own, and a CPU has no workspaces, no
    communication buffers, and an allocator without fragmentation.
    """
    context = device.reserved_gib or (0.0 if device.kind == "cpu" else accounting.context_gib)
    if device.kind == "cpu":
        return with_fields(accounting, context_gib=context, workspace_gib=0.0, buffers=0.0, fragmentation=0.0)
    return with_fields(accounting, context_gib=context)
