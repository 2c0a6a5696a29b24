"""How fast a device's kernels are, in a few coefficients that mean something and stay linear in tokens and tokens²."""

from typing import Annotated

import msgspec

from planner.specs.base import Amount, Index, Positive, Source, Spec

# Of a peak, and above 0: it is divided by.
PositiveShare = Annotated[float, msgspec.Meta(ge=1e-4, le=1)]
Length = Annotated[float, msgspec.Meta(ge=0, le=1e7)]  # rows, columns or tokens, added to what is computed


class GemmCurve(Spec):
    """[m × k]·[k × n] in 2(m + m0)(n + n0)(k + k0)/(share·peak) seconds, and one launch.

    m0, n0, k0 stand for what a kernel does once for each row and column, whatever the third length: prologues, tiles
    half full, and in fp8 the cast of the activations, which grows with m·k and so stands as n0.
    """

    share: PositiveShare
    m0: Length = 0.0
    n0: Length = 0.0
    k0: Length = 0.0
    launch_us: Amount = 0.0  # once a call, as the table has it


class AttentionCurve(Spec):
    """Forward over a sequence of s in 4·causal·heads·head_dim·s(s + s0)/(share·peak) seconds, and one launch.

    causal: 1/2 where a token sees those before it, 1 where it sees all. Backward: 2.5 times the FLOPs at its own share.
    """

    share: PositiveShare
    backward_share: PositiveShare
    s0: Length = 0.0
    launch_us: Amount = 0.0


class Fitted(Spec, kw_only=True):
    """What a fit rests on and how far it is off: relative errors, of the median and of the worst tenth."""

    rows: Index
    median_error: Amount
    p90_error: Amount
    left_out_error: Amount | None = None  # median, on every fifth configuration when fitted on the others
    outside_error: Amount | None = None  # median, on the smaller shapes of the table, which the fit never saw
    held: tuple[str, ...] = ()  # coefficients that the table cannot tell: they stand as assumed
    sources: tuple[str, ...]
    date: str = ""


class Rates(Spec):
    """A device's kernels. Gemm by dtype, attention by head_dim as text or `any`; peaks are the device's."""

    source: Source
    spread: Amount  # half-width of the 80 % interval over the value
    gemm: dict[str, GemmCurve] = {}
    attention: dict[str, AttentionCurve] = {}
    grouped_share: PositiveShare | None = None  # of experts in one kernel, relative to a gemm of one expert's tokens
    memory_share: PositiveShare | None = None  # of the bandwidth, where a kernel only reads and writes
    link_share: PositiveShare | None = None  # of the links within a node, that collectives reach
    adapter_share: PositiveShare | None = None  # of the adapters between nodes, likewise
    launch_us: Amount = 0.0
    sustained: dict[str, Positive] = {}  # by dtype: of a kernel timed alone, the rate that it keeps in training
    fitted: dict[str, Fitted] = {}  # by what was fitted: gemm/bf16, attention/128, grouped, memory
