"""A published measurement that can be predicted, its prediction, or the reason why it cannot be predicted."""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from planner.costs import LayoutColumns
from planner.costs.step import FeedingEncoder
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

    def in_stages(self, setup: LayoutColumns) -> LayoutColumns:
        """The setup of its layers, which have no experts and read no outputs, in as many stages as those of the module
        that it feeds, on the same ranks.
        """
        return replace(
            setup,
            seq=self.seq,
            batch=setup.batch * setup.seq * self.per_token,
            micro_batch=setup.micro_batch * setup.seq * self.per_token,
            ep=1.0,
            etp=1.0,
            imbalance=0.0,
            cross_reads=0.0,
            cross_pairs=0.0,
            alike={},
        )

    def feeding(self, setup: LayoutColumns) -> FeedingEncoder:
        """All of its layers on one stage: the decoder's first with its tp, as far as that divides its heads, or ranks
        of its own without. Ranks of one cp group repeat what its sequence reads, as in Megatron and verl; ranks of its
        own share what all replicas read of one micro-batch.
        """
        staged = replace(self.in_stages(setup), pp=1.0, vpp=1.0, cp=1.0, ulysses=1.0, schedule="1f1b")
        if self.place == "apart":
            at_once = np.ceil(staged.micro_batch * setup.pipelines / self.ranks)  # sequences of one of its ranks
            alone = replace(staged, ranks=self.ranks, tp=1.0, replica=1.0, micro_batch=at_once)
            batch = at_once * self.ranks * setup.micro_batches
            return FeedingEncoder(self.module, replace(alone, batch=batch), self.flow, apart=True)
        tp = np.gcd(np.asarray(setup.tp, dtype=np.int64), self.module.heads) * 1.0
        at = replace(staged, ranks=setup.ranks / setup.pp, tp=tp, batch=staged.batch * setup.cp)
        micro_batch = at.batch / (at.pipelines * setup.micro_batches)  # where tp is less, replicas share its items
        return FeedingEncoder(self.module, replace(at, micro_batch=micro_batch), self.flow)


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
