"""One published measurement that can be predicted, or why it cannot."""

from dataclasses import dataclass

from planner.costs.columns import Columns
from planner.specs.layers import Module


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a record comes from."""

    source: str  # source_id
    row: str  # row_id
    group: str  # group_id: records to rank against each other
    file: str
    line: int  # in that file, 1-based; the header is line 1


@dataclass(frozen=True, slots=True)
class Fabric:
    """The network of a record, as far as it says; GB/s one way per rank."""

    per_node: int
    node_gb_per_s: float | None = None  # None: as the device's own links
    between_gb_per_s: float | None = None  # None: as machines with this device usually have


@dataclass(frozen=True, slots=True)
class Encoder:
    """What a decoder attends to, on the same ranks and as they are spread there, in front of it in each micro-batch."""

    module: Module
    seq: int  # tokens that it reads, for each sequence of the decoder


@dataclass(frozen=True, slots=True)
class Case:
    """A setup that somebody ran."""

    origin: Origin
    module: Module
    setup: Columns
    device: str  # a file of profiles/devices
    software: str  # a file of profiles/software
    fabric: Fabric
    adapters: bool  # only low-rank adapters are trained: no gradients and no states of the rest
    settings: str  # what else the record says, in lower case
    seconds: float | None  # of a step, measured; None: the record gives none
    memory_bytes: float | None  # peak of the rank that `memory_rank` names, measured
    memory_rank: str  # worst, first, last
    oom: bool  # it ran out of memory
    encoder: Encoder | None = None
    device_bytes: float | None = None  # memory of a board that has other than its profile's; None: as that says
    defaulted: tuple[str, ...] = ()  # facts that the record leaves unsaid, filled from the source's cited defaults
    assumed: tuple[str, ...] = ()  # those that nobody says: as the framework usually has them


@dataclass(frozen=True, slots=True)
class Skipped:
    """A record that is not predicted."""

    origin: Origin
    reason: str  # one of few, to be counted
    detail: str = ""  # what exactly


@dataclass(frozen=True, slots=True)
class Prediction:
    """What is predicted of a case."""

    seconds: float
    spread: float  # of seconds: the 80 % interval is seconds·e^±spread
    memory_bytes: float
    oom_probability: float
    source: str  # fitted, published or analytic: the least trusted of what went in
