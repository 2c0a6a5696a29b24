"""A published measurement that can be predicted, its prediction, or the reason why it cannot be predicted."""

from dataclasses import dataclass
from typing import Literal

from planner.costs import LayoutColumns
from planner.plan.gradient_flow import TRAINED, GradientFlow
from planner.specs.framework.dated_kernels import AttentionKernel
from planner.specs.framework.timing_coefficients import Fp8Recipe
from planner.specs.layers import Module


@dataclass(frozen=True, slots=True)
class RecordOrigin:
    """Where a record comes from: its source, its identifiers, and its line in the file."""

    source: str  # source_id
    record_id: str  # row_id
    group_id: str  # group_id: records of one job, whose strategies are ranked against each other
    file: str
    line: int  # in that file, 1-based; the header is line 1


@dataclass(frozen=True, slots=True)
class StatedNetwork:
    """The stated network of a record; GB/s per rank in one direction."""

    ranks_per_node: int  # ranks of a node
    node_gb_per_s: float | None = None  # None: the bandwidth of the device's own links
    between_gb_per_s: float | None = None  # None: the usual adapter of machines with this device


@dataclass(frozen=True, slots=True)
class CaseEncoder:
    """An encoder that feeds the case's module, before it in each micro-batch."""

    module: Module
    seq: float  # tokens of one of its sequences: attention stays within
    per_token: float  # of its sequences for each token of the module
    place: Literal["all_stages", "first_stage", "apart"] = "all_stages"  # its layers: in stages as those that it feeds
    ranks: int = 0  # of its own, where it is apart
    flow: GradientFlow = TRAINED


@dataclass(frozen=True, slots=True)
class PublishedCase:
    """A published measurement as a setup that can be priced."""

    origin: RecordOrigin
    module: Module
    setup: LayoutColumns
    device: str  # name of a profile in profiles/devices
    software: str  # name of a framework in profiles/software
    network: StatedNetwork
    settings_text: str  # other settings as free text, in lower case
    attention_kernel: AttentionKernel
    seconds: float | None  # of a measured step; None: the record states none
    memory_bytes: float | None  # measured peak of the rank that `memory_rank` names
    memory_rank: str  # worst, first, last
    oom: bool  # the run ran out of memory
    memory_figure: str = ""  # what the measured peak counts: allocated, reserved, total; empty: as the framework's
    month: str = ""  # of its software, YYYY-MM, or a year; empty where nothing says it
    fp8_recipe: Fp8Recipe = "tensorwise"
    experts_at_once: bool = False  # where its precision and its device have the kernel for it
    overlaps_replicas: bool | None = None  # gradients are reduced beside backward; None: as its framework has it
    gathers_ahead: bool | None = None  # updated weights are gathered beside the next forward; None: the same
    prefetches: bool = True  # sharded weights are gathered beside the backward before theirs
    encoders: tuple[CaseEncoder, ...] = ()
    device_bytes: float | None = None  # memory where the board's differs from its profile's; None: the profile's
    defaulted: tuple[str, ...] = ()  # blank columns filled from the source's cited defaults
    assumed: tuple[str, ...] = ()  # blank columns that nothing states: as the framework usually has them
    doubts: tuple[str, ...] = ()  # printed figures that contradict the measured seconds, which are kept
    other_setups: tuple[LayoutColumns, ...] = ()  # which the record may describe as well

    @property
    def ranks(self) -> float:
        """All ranks: of the module's setup, and those that encoders have for themselves, all of them together."""
        return float(self.setup.ranks) + max((encoder.ranks for encoder in self.encoders), default=0)


@dataclass(frozen=True, slots=True)
class SkippedRecord:
    """A record that cannot be predicted, with the reason."""

    origin: RecordOrigin
    reason: str  # one of a few, so that they can be counted
    detail: str = ""  # what is wrong in this record


@dataclass(frozen=True, slots=True)
class CasePrediction:
    """Predicted step time and memory of a case."""

    seconds: float
    spread: float  # half-width of the 80 % interval: seconds·e^±spread
    memory_bytes: float
    oom_probability: float
    source: str  # fitted, published or analytic: the least trusted of its inputs
    left_out_seconds: float | None = None  # by a fit without the case's source; None: no fit has seen it
