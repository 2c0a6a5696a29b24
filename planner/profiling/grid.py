"""What to measure: packed batches of growing size and of different mixes, message sizes, group sizes.

The same on every rank and in every run, because it follows from shapes and data sheets alone: batches grow until a
round would take too long on such a device, or not fit into half of its memory.
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

DEPTH = 2  # layers in the measured stack: enough to see what one costs among others
AGAIN_EVERY = 3  # rounds: layers that make something again, or are spread, are measured in the first of so many
SPREAD_SIZES = 3  # of batches, in which layers that are spread are measured
LEAST_POINTS = 3  # sizes of batches, whatever they take
SAMPLE_S = 10 * MS  # shorter pieces are repeated: barriers let ranks go up to a millisecond apart
MOST_REPEATS = 16
MOST_MEETINGS = 8  # of a collective, each behind some milliseconds of work
MEMORY_SHARE = 0.5
UPDATE_S = 5 * MS
HOST_S = {"cpu": 5 * MS, "cuda": MS}  # of both passes before any arithmetic: Python; and of FSDP2's hooks as much
WIRE = {"cpu": (0.5 * MS, GB), "cuda": (0.02 * MS, 50 * GB)}  # expected latency and bytes per second


@dataclass(frozen=True, slots=True)
class Effort:
    """How much of the grid is measured, and how often."""

    rounds: int
    wire_rounds: int  # of collectives: they are short, and their waits vary
    round_s: float  # what the batches of one module may take in a round
    tokens: tuple[int, int]  # in the smallest batch and at most in the largest
    short: int  # tokens of a short document
    messages: tuple[int, ...]  # bytes


def effort(kind: str, quick: bool) -> Effort:
    if kind == "cpu":
        if quick:
            return Effort(5, 8, 2.5, (64, 2048), 128, (8 * KIB, 512 * KIB, 4 * MIB))
        return Effort(11, 22, 8.0, (64, 4096), 128, tuple(4**k * KIB for k in range(1, 8)))
    if quick:
        return Effort(5, 8, 2.0, (256, 65536), 512, (16 * KIB, 4 * MIB, 64 * MIB))
    return Effort(9, 18, 6.0, (256, 65536), 512, tuple(4**k * KIB for k in range(2, 10)))


def module_pieces(context: str, spec: Module, device: Device, dtype: Dtype, quick: bool) -> Iterator[Piece]:
    """Round by round: layers and ends on every batch, the optimizer; in the first also the activations.

    Layers that make something again take longer, and differ little from the others: they come in fewer rounds. So do
    layers that are spread, whose difference is the same for all batches.
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
        for lengths in alone(batches, device) if number % AGAIN_EVERY == 0 else ():
            for kind in SPREAD:
                of = expected.seconds("ends" if kind.endswith("ends") else "layer", lengths)
                yield repeated(context, kind, lengths, number, 2 * host_s + of)
        for total in totals:
            yield repeated(context, "ends", (total,), number, host_s + expected.seconds("ends", (total,)))
        yield Piece(context, "update", (), number, 3, UPDATE_S)


def collective_pieces(context: str, ranks: int, kind: str, quick: bool) -> Iterator[Piece]:
    """Round by round, every collective over groups of every size; point to point between two."""
    latency_s, bytes_per_s = WIRE[kind]
    level = effort(kind, quick)
    for number in range(level.wire_rounds):
        for collective in COLLECTIVES:
            for size in group_sizes(ranks)[: 1 if collective == "p2p" else None]:
                for message in level.messages:
                    piece = repeated(context, collective, (size, message), number, latency_s + message / bytes_per_s)
                    yield replace(piece, repeats=min(piece.repeats, MOST_MEETINGS))


def group_sizes(ranks: int) -> list[int]:
    """Powers of two that divide the ranks, and all of them: disjoint groups of one size then fill the machine."""
    powers = [2**k for k in range(1, ranks.bit_length()) if ranks % 2**k == 0]
    return sorted({*powers, ranks} - {1})


def alone(batches: Sequence[tuple[int, ...]], device: Device) -> Sequence[tuple[int, ...]]:
    """Batches of one document in which FSDP2's own work shows: small ones on a CPU, where it stands out of the noise;
    large ones on a GPU, since only there its device has work while the host prepares more.
    """
    single = [lengths for lengths in batches if len(lengths) == 1]
    return single[:SPREAD_SIZES] if device.kind == "cpu" else single[-SPREAD_SIZES:]


def affordable(expected: "Expected", level: Effort) -> list[tuple[int, ...]]:
    """Packed batches by rising size, until a round takes too long or memory ends."""
    spec, count = expected.spec, parameters(expected.spec)
    states = (count.layer * DEPTH + count.ends) * STATE_BYTES[expected.dtype]
    memory = MEMORY_SHARE * expected.device.memory_gib * GIB - states
    kept = expected.kept
    chosen: list[tuple[int, ...]] = []
    spent, total, sizes = 0.0, level.tokens[0], 0
    while total <= level.tokens[1]:
        found = mixes(spec, total, level.short)
        spent += sum(expected.seconds("layer", lengths) for lengths in found)
        spent += expected.seconds("ends", (total,))
        if sizes >= LEAST_POINTS and (spent > level.round_s or total * kept > memory):
            break
        chosen += found
        sizes += bool(found)
        total *= 2
    if sizes < LEAST_POINTS:
        raise InputError("its table of learned positions is too short to measure anything", fix="raise max_positions")
    return chosen


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
    """What a data sheet expects of a few layers on one rank."""

    spec: Module
    device: Device
    dtype: Dtype

    def seconds(self, kind: Kind, lengths: Sequence[int]) -> float:
        """Of one repeat, forward and backward."""
        return sum(self.line(kind, forward).seconds(lengths) for forward in (True, False))

    def line(self, kind: Kind, forward: bool) -> Line:
        if kind == "ends":
            return head_line(self.spec, self.columns, self.machine, forward)
        again: Recompute = "full" if kind == "full" else "selective" if kind == "selective" else "none"
        return pass_line(self.spec, self.columns, self.machine, places(self.columns), forward, ((again, DEPTH),))

    @property
    def columns(self) -> Columns:
        return Columns(ranks=1, seq=ONE.seq, batch=1, dtype=self.dtype)

    @property
    def machine(self) -> Machine:
        return Machine(self.device, complete(None, self.device.kind), ALONE, Timing(), BUNDLED)

    @property
    def kept(self) -> float:
        """Bytes of a token's activations."""
        kinds = kind_counts(self.spec)
        each = {kind: float(layer_kept(self.spec, kind, self.columns, BUNDLED)[0]) for kind in kinds}
        return DEPTH * sum(each[kind] * count for kind, count in kinds.items()) / self.spec.layers


def repeated(context: str, kind: Kind, sizes: tuple[int, ...], number: int, expected_s: float) -> Piece:
    """A piece that takes long enough to be told from the noise of its barriers."""
    repeats = min(MOST_REPEATS, max(1, round(SAMPLE_S / expected_s)))
    return Piece(context, kind, sizes, number, repeats, expected_s * repeats)
