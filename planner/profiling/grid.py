"""The grid of measurements: packed batches of growing size and different mixes, message sizes, group sizes.

It is the same on every rank and in every run, since it follows from shapes and data sheets alone: batches grow until a
round would take too long on the device, or would not fit into half of its memory.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from planner.costs.columns import ONE, Columns
from planner.costs.compute.assumed import complete
from planner.costs.compute.lines import Line
from planner.costs.compute.machine import Machine
from planner.costs.compute.rated import head_line, pass_line
from planner.costs.memory.footprint import layer_kept
from planner.costs.network.network import ALONE
from planner.costs.network.traffic import places
from planner.errors import InputError
from planner.profiling.piece import AGAIN, COLLECTIVES, SPREAD, Kind, Piece
from planner.specs.accounting import BUNDLED
from planner.specs.layers import Module, kind_counts
from planner.specs.parallelism import Dtype, Recompute
from planner.specs.parameters import parameters
from planner.specs.profile import Device
from planner.specs.shapes import STATE_BYTES
from planner.specs.timing import Timing
from planner.units import GB, GIB, KIB, MIB, MS

DEPTH = 2  # layers in the measured stack: enough for the cost of one among others
AGAIN_EVERY = 3  # layers with recompute or FSDP2 are measured in every third round
SPREAD_SIZES = 3  # batch sizes at which layers under FSDP2 are measured
LEAST_POINTS = 3  # batch sizes that are measured however long they take
SAMPLE_S = 10 * MS  # shorter measurements are repeated: ranks leave a barrier up to a millisecond apart
MOST_REPEATS = 16
MOST_MEETINGS = 8  # most repeats of a collective, each after some milliseconds of compute
MEMORY_SHARE = 0.5
UPDATE_S = 5 * MS
HOST_S = {"cpu": 5 * MS, "cuda": MS}  # host time of both passes; FSDP2's hooks take about as much again
WIRE = {"cpu": (0.5 * MS, GB), "cuda": (0.02 * MS, 50 * GB)}  # expected latency and bytes per second


@dataclass(frozen=True, slots=True)
class Effort:
    """Extent of the grid, and number of rounds."""

    rounds: int
    wire_rounds: int  # rounds of collectives: they are short, and their waiting times vary
    round_s: float  # limit of the seconds of one module's batches in a round
    tokens: tuple[int, int]  # of the smallest batch, and limit of the largest
    short: int  # tokens of a short document
    messages: tuple[int, ...]  # bytes


def effort(kind: str, quick: bool) -> Effort:
    """Extent of the grid for a kind of device."""
    if kind == "cpu":
        if quick:
            return Effort(5, 8, 2.5, (64, 2048), 128, (8 * KIB, 512 * KIB, 4 * MIB))
        return Effort(11, 22, 8.0, (64, 4096), 128, tuple(4**k * KIB for k in range(1, 8)))
    if quick:
        return Effort(5, 8, 2.0, (256, 65536), 512, (16 * KIB, 4 * MIB, 64 * MIB))
    return Effort(9, 18, 6.0, (256, 65536), 512, tuple(4**k * KIB for k in range(2, 10)))


def module_pieces(context: str, spec: Module, device: Device, dtype: Dtype, quick: bool) -> Iterator[Piece]:
    """Measurements of a module, round by round: layers, and embedding and head, on every batch; the optimizer; in the
    first round also activations.

    Layers with recompute take longer and differ little from the others: they come in fewer rounds. So do layers under
    FSDP2, whose overhead is the same for all batches.
    """
    level = effort(device.kind, quick)
    expected = Expected(spec, device, dtype)
    batches = affordable(expected, level)
    totals = sorted({sum(lengths) for lengths in batches})
    host_s = HOST_S[device.kind]
    yield Piece(context, "kept", (totals[-1],), 0, expected_s=expected.seconds("layer", (totals[-1],)))
    for number in range(level.rounds):
        for lengths in batches:
            yield repeated(context, "layer", lengths, number, host_s + expected.seconds("layer", lengths))
            for how in AGAIN if number % AGAIN_EVERY == 0 else ():
                yield repeated(context, how, lengths, number, host_s + expected.seconds(how, lengths))
        for lengths in single_documents(batches, device) if number % AGAIN_EVERY == 0 else ():
            for kind in SPREAD:
                of = expected.seconds("ends" if kind.endswith("ends") else "layer", lengths)
                yield repeated(context, kind, lengths, number, 2 * host_s + of)
        for total in totals:
            yield repeated(context, "ends", (total,), number, host_s + expected.seconds("ends", (total,)))
        yield Piece(context, "update", (), number, 3, UPDATE_S)


def collective_pieces(context: str, ranks: int, kind: str, quick: bool) -> Iterator[Piece]:
    """Measurements of every collective over groups of every size, round by round; point-to-point between two ranks
    only.
    """
    latency_s, bytes_per_s = WIRE[kind]
    level = effort(kind, quick)
    for number in range(level.wire_rounds):
        for collective in COLLECTIVES:
            for size in group_sizes(ranks)[: 1 if collective == "p2p" else None]:
                for message in level.messages:
                    measurement = repeated(
                        context, collective, (size, message), number, latency_s + message / bytes_per_s
                    )
                    yield replace(measurement, repeats=min(measurement.repeats, MOST_MEETINGS))


def group_sizes(ranks: int) -> list[int]:
    """Powers of two that divide the number of ranks, and that number: disjoint groups of a size use all ranks."""
    powers = [2**k for k in range(1, ranks.bit_length()) if ranks % 2**k == 0]
    return sorted({*powers, ranks} - {1})


def single_documents(batches: Sequence[tuple[int, ...]], device: Device) -> Sequence[tuple[int, ...]]:
    """Batches of one document at which the overhead of FSDP2 is measured: the smallest on a CPU, where it exceeds the
    noise; the largest on a GPU, where compute hides the host's work.
    """
    single = [lengths for lengths in batches if len(lengths) == 1]
    return single[:SPREAD_SIZES] if device.kind == "cpu" else single[-SPREAD_SIZES:]


def affordable(expected: "Expected", level: Effort) -> list[tuple[int, ...]]:
    """Packed batches by rising size, until a round would take too long or exceed memory."""
    spec, count = expected.spec, parameters(expected.spec)
    states = (count.layer * DEPTH + count.ends) * STATE_BYTES[expected.dtype]
    memory = MEMORY_SHARE * expected.device.memory_gib * GIB - states
    kept = expected.kept
    batches: list[tuple[int, ...]] = []
    spent, total, sizes = 0.0, level.tokens[0], 0
    while total <= level.tokens[1]:
        of_size = mixes(spec, total, level.short)
        spent += sum(expected.seconds("layer", lengths) for lengths in of_size)
        spent += expected.seconds("ends", (total,))
        if sizes >= LEAST_POINTS and (spent > level.round_s or total * kept > memory):
            break
        batches += of_size
        sizes += bool(of_size)
        total *= 2
    if sizes < LEAST_POINTS:
        raise InputError("its table of learned positions is too short to measure anything", fix="raise max_positions")
    return batches


def mixes(spec: Module, total: int, short: int) -> list[tuple[int, ...]]:
    """Batches of `total` tokens: one document; each half as long as the one before; many short ones."""
    shares: list[Sequence[float]] = [(1,), (1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 16)]
    if total < 2 * short:
        shares = shares[:1]
    unit = spec.merged
    lengths = [tuple(unit * max(1, round(total * share / unit)) for share in mix) for mix in shares]
    if total >= 4 * short:
        lengths.append((unit * max(1, round(short / unit)),) * (total // short))
    longest = spec.longest or total + unit
    return [mix for mix in dict.fromkeys(lengths) if max(mix) <= longest]


@dataclass(frozen=True, slots=True)
class Expected:
    """Expected cost of the measured stack on one rank, from the device's data sheet."""

    spec: Module
    device: Device
    dtype: Dtype

    def seconds(self, kind: Kind, lengths: Sequence[int]) -> float:
        """Seconds of one repeat, forward and backward."""
        return sum(self.line(kind, forward).seconds(lengths) for forward in (True, False))

    def line(self, kind: Kind, forward: bool) -> Line:
        if kind == "ends":
            return head_line(self.spec, self.columns, self.machine, forward)
        recompute: Recompute = "full" if kind == "full" else "selective" if kind == "selective" else "none"
        return pass_line(self.spec, self.columns, self.machine, places(self.columns), forward, ((recompute, DEPTH),))

    @property
    def columns(self) -> Columns:
        return Columns(ranks=1, seq=ONE.seq, batch=1, dtype=self.dtype)

    @property
    def machine(self) -> Machine:
        return Machine(self.device, complete(None, self.device.kind), ALONE, Timing(), BUNDLED)

    @property
    def kept(self) -> float:
        """Bytes of activations per token, of the whole stack."""
        kinds = kind_counts(self.spec)
        each = {kind: float(layer_kept(self.spec, kind, self.columns, BUNDLED)[0]) for kind in kinds}
        return DEPTH * sum(each[kind] * count for kind, count in kinds.items()) / self.spec.layers


def repeated(context: str, kind: Kind, sizes: tuple[int, ...], number: int, expected_s: float) -> Piece:
    """A measurement with so many repeats that the noise of its barriers is small."""
    repeats = min(MOST_REPEATS, max(1, round(SAMPLE_S / expected_s)))
    return Piece(context, kind, sizes, number, repeats, expected_s * repeats)
