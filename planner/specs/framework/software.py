"""Training frameworks: coefficients of their time and memory beside their kernels."""

from typing import ClassVar

from planner.specs.base import Amount, Spec
from planner.specs.framework.memory_coefficients import MemoryCoefficients
from planner.specs.framework.timing_coefficients import TimingCoefficients
from planner.specs.hardware.device_rates import FitQuality
from planner.specs.hardware.profile import Provenance


class Software(Spec, kw_only=True):
    """A software file, `planner.software/1`; shipped ones are in `profiles/software`."""

    FORMAT: ClassVar[str] = "planner.software/1"
    format: str
    name: str
    provenance: Provenance
    timing: TimingCoefficients = TimingCoefficients()
    accounting: MemoryCoefficients = MemoryCoefficients()
    spread: Amount = 0.3  # of a step's seconds: the 80 % interval is seconds·e^±spread
    fitted: dict[str, FitQuality] = {}  # time, memory
