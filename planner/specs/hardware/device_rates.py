"""Rates of a device's kernels: few physical coefficients, with times linear in tokens and tokens²."""

from typing import Annotated

import msgspec

from planner.specs.base import Amount, Index, Positive, RankCount, Source, Spec

# Share of a peak, above 0, as it is a divisor.
PositiveShare = Annotated[float, msgspec.Meta(ge=1e-4, le=1)]
ExtraLength = Annotated[float, msgspec.Meta(ge=0, le=1e7)]  # rows, columns or tokens, added to those of the product


class GemmCurve(Spec):
    """[m × k]·[k × n] in 2(m + m0)(n + n0)(k + k0)/(share·peak) seconds, and one launch.

    m0, n0, k0 are the work that does not depend on the third length: prologues, partly filled tiles, and in fp8 the
    cast of the activations, which grows with m·k and so is part of n0.
    """

    share: PositiveShare
    m0: ExtraLength = 0.0
    n0: ExtraLength = 0.0
    k0: ExtraLength = 0.0
    launch_us: Amount = 0.0  # once a call, as in the table that it was fitted on


class AttentionCurve(Spec):
    """Forward over a sequence of s in 4·causal·heads·head_dim·s(s + s0)/(share·peak) seconds, and one launch.

    causal: 1/2 where a token attends to those before it, 1 where to all. Backward: 2.5 times the FLOPs at its own
    share.
    """

    share: PositiveShare
    backward_share: PositiveShare
    s0: ExtraLength = 0.0
    launch_us: Amount = 0.0


class FitQuality(Spec, kw_only=True):
    """The data of a fit and its relative errors: median and 90th percentile."""

    rows: Index
    median_error: Amount
    p90_error: Amount
    left_out_error: Amount | None = None  # median, held out: on every fifth configuration when fitted on the others
    outside_error: Amount | None = None  # median, on the smaller shapes of the table, which are not part of the fit
    held: tuple[str, ...] = ()  # coefficients that the table does not determine: they keep assumed values
    sources: tuple[str, ...]
    date: str = ""


class ReduceLine(Spec):
    """A sum over the ranks of a model that is served: as long as this, and what its bytes take."""

    us: Amount
    gb_per_s: Positive


class ServedRates(Spec, kw_only=True):
    """Rates of kernels that only serving has: attention of a new token to keys and values that are cached, and sums
    over tensor-parallel ranks within a node by kernels of the server's own.
    """

    cache_share: PositiveShare  # of the memory bandwidth
    cache_us: Amount  # once a layer
    all_reduce: dict[RankCount, ReduceLine] = {}  # by ranks
    sources: tuple[str, ...] = ()


class DeviceRates(Spec):
    """Rates of a device's kernels: gemm by dtype, attention by head_dim as text or `any`; peaks are the device's."""

    source: Source
    spread: Amount  # half-width of the 80 % interval over the value
    gemm: dict[str, GemmCurve] = {}
    attention: dict[str, AttentionCurve] = {}
    grouped_share: PositiveShare | None = None  # of grouped gemms of experts, relative to a gemm of one expert's tokens
    memory_share: PositiveShare | None = None  # of the memory bandwidth, in kernels bound by it
    link_share: PositiveShare | None = None  # of the bandwidth within a node that collectives reach
    adapter_share: PositiveShare | None = None  # of the bandwidth between nodes that collectives reach
    launch_us: Amount = 0.0
    sustained: dict[
        str, Positive
    ] = {}  # by dtype: share of the rate of a kernel timed alone that it sustains in training
    served: ServedRates | None = None
    fitted: dict[str, FitQuality] = {}  # by what was fitted: gemm/bf16, attention/128, grouped, memory
