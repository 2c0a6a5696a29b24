"""Profiles of a device: its facts, fits of modules, tables of collectives, rates of kernels, and provenance."""

from statistics import median
from typing import Annotated, ClassVar, Literal

import msgspec

from planner.specs.base import Amount, Index, LayerCount, Positive, RankCount, Share, Source, Spec
from planner.specs.hardware.device_rates import DeviceRates
from planner.specs.parallelism import RecomputeName

FORWARD_SHARE = 1 / 3  # of both passes, where nothing says it
BACKWARD_SHARE = 1 - FORWARD_SHARE
ASSUMED_SHARES_SPREAD = 0.5  # of a pass beside another, where no pair was timed: what kappa from 1 to 3 leaves open


class PassFit(Spec):
    """Milliseconds of one pass over packed sequences of s tokens each: (ms_per_token2·Σs² + ms_per_token·Σs)/d + ms."""

    ms_per_token2: Amount = 0.0
    ms_per_token: Amount = 0.0
    ms: Amount = 0.0
    launch_ms: Amount = 0.0  # in which the host launches it: it takes no less, however short


class PassCosts(Spec):
    """The fits of `layers` layers: forward and backward apart, or published together with forward's share of them."""

    layers: LayerCount = 1
    forward: PassFit | None = None
    backward: PassFit | None = None
    both: PassFit | None = None
    forward_share: Share = FORWARD_SHARE  # backward does twice forward's work
    activation_kib_per_token: Amount = 0.0  # kept from forward to backward
    working_kib_per_token: Amount = 0.0  # additional, while one layer's backward recomputes it
    holdout_error: Amount | None = None  # median relative error on held-out measurements

    def __post_init__(self) -> None:
        if (self.both is None) == (self.forward is None) or (self.forward is None) != (self.backward is None):
            raise ValueError("give `forward` and `backward`, or `both` | remove one or add the other")


class FsdpUnit(Spec):
    """Milliseconds that FSDP2 spends on one of its units in a pass, without communication."""

    forward_ms: Amount = 0.0
    backward_ms: Amount = 0.0


class FsdpUnits(Spec):
    """FSDP2's units: each layer is one, embedding and head are another. Copies are of shards over as many ranks as were
    measured together.
    """

    layer: FsdpUnit
    ends: FsdpUnit


class ModuleCosts(Spec):
    """The costs of one module: layers, `ends` (embedding, head, loss), optimizer, communication."""

    source: Source
    spread: Amount  # half-width of the 80 % interval over the value
    layer: PassCosts
    recomputing: dict[RecomputeName, PassCosts] = {}  # layers that recompute this in backward
    # Layers whose weights are frozen: a forward that keeps nothing, and a backward of inputs alone; none: not measured
    frozen: PassCosts | None = None
    ends: PassCosts | None = None
    fsdp: dict[
        Literal["held", "resharded"], FsdpUnits
    ] = {}  # gathered once a step, or in each pass (ZeRO-3); none: part of the fits
    update_ns_per_parameter: Amount = 0.0
    a2a_mb_per_token: Amount | None = None  # 10⁶ bytes, all layers, both passes; None: from the shape
    a2a_calls: Index | None = None  # all-to-alls in both passes of all layers; None: from the shape
    sharding: Literal["apart", "included"] = "apart"  # whether ZeRO-3's gathers are part of the fits
    tp: RankCount = 1  # tensor-parallel degree at which one rank's fits were measured
    measured_at: str = ""  # shape and dtype of the measurement


class CollectivePoint(Spec):
    """A collective over `ranks` ranks, as seen by one of them: latency_us + bytes / gb_per_s."""

    ranks: RankCount
    gb_per_s: Positive
    latency_us: Amount = 0.0


class CollectiveCosts(Spec):
    """Measured points of one collective; a number of ranks in between takes the next larger one."""

    source: Source
    spread: Amount
    points: tuple[CollectivePoint, ...]


class TimedPair(Spec):
    """Two modules timed on one device: each alone on all of it, and side by side on shares of it."""

    modules: tuple[str, str]
    shares: tuple[Share, Share]
    alone_ms: tuple[Positive, Positive]  # forward and backward
    ms: tuple[Positive, Positive]

    @property
    def gain(self) -> float:
        """Passes a second side by side, over those in turn."""
        return sum(alone / beside for alone, beside in zip(self.alone_ms, self.ms, strict=True))


class DeviceShares(Spec, kw_only=True):
    """What modules take that share a device (costs/compute/contention.py); left out where nobody timed it."""

    source: Source
    device: str = ""  # that was timed
    kappa: Annotated[float, msgspec.Meta(ge=1, le=64)]  # a share q of the compute reaches kappa·q of the bandwidth
    gamma: Amount  # demand beyond the bandwidth takes so many times longer
    launch_threads: RankCount = 1  # that launch at the same time; of 1, modules of a rank queue
    memory_shares: dict[str, Share] = {}  # of a pass, bound by memory, by MODEL/MODULE
    pairs: tuple[TimedPair, ...] = ()
    holdout_error: Amount | None = None  # the largest relative error of a pair that was predicted from the others

    @property
    def spread(self) -> float:
        """Half-width of the 80 % interval of a pass beside another, over its seconds."""
        return ASSUMED_SHARES_SPREAD if self.holdout_error is None else self.holdout_error

    @property
    def gain(self) -> float | None:
        """The median gain of the timed pairs; None where none was timed."""
        return median(pair.gain for pair in self.pairs) if self.pairs else None


class Device(Spec):
    """Facts of a device, from its data sheet unless `provenance` says otherwise."""

    kind: Literal["cpu", "cuda"]
    memory_gib: Amount
    tflops: Annotated[dict[str, Positive], msgspec.Meta(min_length=1)]  # dense peak by dtype
    memory_gb_per_s: Positive
    microscaling: bool = False  # its matrix products in fp8 take a scale for every 32 elements (MXFP8)
    reserved_gib: Amount = 0.0  # context and library workspaces
    # to host memory and back, in each direction at once; None: nothing can be offloaded
    host_gb_per_s: Positive | None = None
    # memory of its host, over the host's devices, as is usual for machines with it; None: as much as the device has
    host_gib: Amount | None = None
    link_gb_per_s: Positive | None = None  # to all others of its node together, in one direction, on the data sheet
    # to other nodes, in one direction, as is usual for machines with this device
    adapter_gb_per_s: Positive | None = None
    usd_per_hour: Amount | None = None
    price_date: str = ""

    @property
    def tflops_in_16_bits(self) -> float:
        """Peak TFLOP/s of the device in 16 bits, or its largest where it has none."""
        return self.tflops.get("bf16") or self.tflops.get("fp16") or max(self.tflops.values())


class Provenance(Spec):
    """The source of a profile's numbers: who, when, and on which machine."""

    source: str
    date: str = ""
    machine: str = ""
    versions: dict[str, str] = {}
    note: str = ""


class Profile(Spec):
    """A profile file, `planner.profile/1`: shipped in `profiles/devices`, or written by `planner profile`."""

    FORMAT: ClassVar[str] = "planner.profile/1"
    format: str
    name: str
    device: Device
    provenance: Provenance
    modules: dict[str, ModuleCosts] = {}  # by MODEL/MODULE
    collectives: dict[str, CollectiveCosts] = {}  # all_to_all, all_gather, reduce_scatter, p2p
    rates: DeviceRates | None = None  # of kernels by their shape: they price modules without measurements
    shares: DeviceShares | None = None  # None: as assumed
