"""Training frameworks: what each can run, and coefficients of its time and memory beside its kernels."""

from math import hypot
from typing import Annotated, ClassVar

import msgspec

from planner.specs.base import Amount, Spec, with_fields
from planner.specs.framework.dated_kernels import (
    AttentionKernel,
    adam_bytes,
    attention_kernel,
    launches_at_once,
    with_kernel,
)
from planner.specs.framework.knobs import Knobs
from planner.specs.framework.memory_coefficients import MemoryCoefficients
from planner.specs.framework.own_runs import OwnRun
from planner.specs.framework.timing_coefficients import TimingCoefficients
from planner.specs.hardware.device_rates import FitQuality
from planner.specs.hardware.profile import Provenance

UNSAID = Knobs()  # the default itself, and no other one without restrictions
ANY = "any"  # every knob, for what nothing need launch


class Framework(Spec):
    """What trains: its name, and what it can launch. Plans carry it; where the knobs are from stays in its file."""

    name: str = ANY
    knobs: Knobs = Knobs()


class Software(Spec, kw_only=True):
    """A software file, `planner.software/1`; shipped ones are in `profiles/software`."""

    FORMAT: ClassVar[str] = "planner.software/1"
    format: str
    name: str
    provenance: Provenance
    like: str = ""  # another, shipped or a path: what this file leaves out, key by key, is as that one has it
    knobs: Knobs = UNSAID  # what it can run; no file that is like no other may leave this out
    timing: TimingCoefficients = TimingCoefficients()  # of attention: relative to its own kernel
    # Of its attention; else that of its month, YYYY-MM, where the framework's name is known; else the newest.
    attention_kernel: AttentionKernel | None = None
    month: Annotated[str, msgspec.Meta(pattern=r"^(20\d\d-(0[1-9]|1[0-2]))?$")] = ""
    accounting: MemoryCoefficients = MemoryCoefficients()
    spread: Amount = 0.3  # of a step's seconds: the 80 % interval is seconds·e^±spread
    unstated: Amount = 0.0  # of these besides: versions and options of it that no job says
    fitted: dict[str, FitQuality] = {}  # time, memory
    own_runs: tuple[OwnRun, ...] = ()  # measured ones, which jobs are priced after

    @property
    def job_spread(self) -> float:
        """The spread of a job's step: that of the fit, and what is not said."""
        return hypot(self.spread, self.unstated)

    @property
    def framework(self) -> Framework:
        """The framework's name and knobs alone, as a plan carries them."""
        return Framework(name=self.name, knobs=with_fields(self.knobs, sources={}))

    @property
    def dated_accounting(self) -> MemoryCoefficients:
        """The memory coefficients, with the bytes that Adam's update held in the month that the file says, if any."""
        held = adam_bytes(self.name, self.month) if self.month else None
        return self.accounting if held is None else with_fields(self.accounting, update_bytes=held)

    @property
    def kernel_timing(self) -> TimingCoefficients:
        """The timing coefficients, with the rate of the framework's attention kernel over the newest's."""
        dated: AttentionKernel = attention_kernel(self.name, self.month) if self.month else "newest"
        at_once = self.timing.experts_at_once and (not self.month or launches_at_once(self.name, self.month))
        return with_fields(with_kernel(self.timing, self.attention_kernel or dated), experts_at_once=at_once)

    def __post_init__(self) -> None:
        if self.knobs is UNSAID and not self.like:
            raise ValueError(
                "the file does not say what the framework can run | add `knobs:` as in docs/software.md;"
                " `knobs: {}` refuses nothing"
            )
