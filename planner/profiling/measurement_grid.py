"""The grid of measurements: packed batches of growing size and different mixes, message sizes, group sizes.

It is the same on every rank and in every run, since it follows from shapes and data sheets alone: batches grow until a
round would take too long on the device, or would not fit into half of its memory.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from planner.costs import (
    ONE_SEQUENCE,
    SINGLE_RANK_NETWORK,
    CostLine,
    LayoutColumns,
    MachineModel,
    head_line,
    layers_line,
)
from planner.costs.compute import complete_rates
from planner.costs.memory import layer_token_bytes
from planner.costs.network import layer_groups
from planner.errors import InputError
from planner.profiling.measurement import COLLECTIVES, FSDP_KINDS, RECOMPUTE_KINDS, Measurement, MeasurementKind
from planner.specs.framework.memory_coefficients import PLANNER_RUNTIME_MEMORY
from planner.specs.framework.timing_coefficients import TimingCoefficients
from planner.specs.hardware.profile import Device
from planner.specs.layers import Module, kind_counts
from planner.specs.parallelism import Dtype, Recompute
from planner.specs.parameters import parameter_counts
from planner.specs.shapes import STATE_BYTES
from planner.units import GB, GIB, KIB, MIB, MS

STACK_LAYERS = 2  # layers in the measured stack: enough for the cost of one among others
RECOMPUTE_EVERY = 3  # layers with recompute or FSDP2 are measured in every third round
FSDP_BATCH_SIZES = 3  # batch sizes at which layers under FSDP2 are measured
MIN_BATCH_SIZES = 3  # batch sizes that are measured however long they take
SAMPLE_S = 10 * MS  # shorter measurements are repeated: ranks leave a barrier up to a millisecond apart
MAX_REPEATS = 16
MAX_COLLECTIVE_REPEATS = 8  # most repeats of a collective, each after some milliseconds of compute
MEMORY_SHARE = 0.5
UPDATE_S = 5 * MS
HOST_S = {"cpu": 5 * MS, "cuda": MS}  # host time of both passes; FSDP2's hooks take about as much again
EXPECTED_NETWORK = {"cpu": (0.5 * MS, GB), "cuda": (0.02 * MS, 50 * GB)}  # expected latency and bytes per second


@dataclass(frozen=True, slots=True)
class GridExtent:
    """Extent of the grid, and number of rounds."""

    rounds: int
    collective_rounds: int  # rounds of collectives: they are short, and their waiting times vary
    round_s: float  # limit of the seconds of one module's batches in a round
    tokens: tuple[int, int]  # of the smallest batch, and limit of the largest
    short_document: int  # tokens of a short document
    messages: tuple[int, ...]  # bytes


def grid_extent(kind: str, quick: bool) -> GridExtent:
    """Extent of the grid for a kind of device."""
    if kind == "cpu":
        if quick:
            return GridExtent(5, 8, 2.5, (64, 2048), 128, (8 * KIB, 512 * KIB, 4 * MIB))
        return GridExtent(11, 22, 8.0, (64, 4096), 128, tuple(4**k * KIB for k in range(1, 8)))
    if quick:
        return GridExtent(5, 8, 2.0, (256, 65536), 512, (16 * KIB, 4 * MIB, 64 * MIB))
    return GridExtent(9, 18, 6.0, (256, 65536), 512, tuple(4**k * KIB for k in range(2, 10)))


def module_measurements(
    context: str, expected: "ExpectedCost", quick: bool, may_freeze: bool = False
) -> Iterator[Measurement]:
    """Measurements of a module, round by round: layers, and embedding and head, on every batch; the optimizer; in the
    first round also activations. `may_freeze`: also of layers without gradients of weights.

    Layers with recompute take longer and differ little from the others: they come in fewer rounds. So do layers under
    FSDP2, whose overhead is the same for all batches.
    """
    device, kinds = expected.device, (*RECOMPUTE_KINDS, *(("frozen",) if may_freeze else ()))
    level = grid_extent(device.kind, quick)
    batches = affordable_batches(expected, level)
    totals = sorted({sum(lengths) for lengths in batches})
    host_s = HOST_S[device.kind]
    yield Measurement(context, "kept", (totals[-1],), 0, expected_s=expected.seconds("layer", (totals[-1],)))
    for number in range(level.rounds):
        for lengths in batches:
            yield with_repeats(context, "layer", lengths, number, host_s + expected.seconds("layer", lengths))
            for how in kinds if number % RECOMPUTE_EVERY == 0 else ():
                yield with_repeats(context, how, lengths, number, host_s + expected.seconds(how, lengths))
        for lengths in single_documents(batches, device) if number % RECOMPUTE_EVERY == 0 else ():
            for kind in FSDP_KINDS:
                of = expected.seconds("ends" if kind.endswith("ends") else "layer", lengths)
                yield with_repeats(context, kind, lengths, number, 2 * host_s + of)
        for total in totals:
            yield with_repeats(context, "ends", (total,), number, host_s + expected.seconds("ends", (total,)))
        yield Measurement(context, "update", (), number, 3, UPDATE_S)


def collective_measurements(context: str, ranks: int, kind: str, quick: bool) -> Iterator[Measurement]:
    """Measurements of every collective over groups of every size, round by round; point-to-point between two ranks
    only.
    """
    latency_s, bytes_per_s = EXPECTED_NETWORK[kind]
    level = grid_extent(kind, quick)
    for number in range(level.collective_rounds):
        for collective in COLLECTIVES:
            for size in group_sizes(ranks)[: 1 if collective == "p2p" else None]:
                for message in level.messages:
                    measurement = with_repeats(
                        context, collective, (size, message), number, latency_s + message / bytes_per_s
                    )
                    yield replace(measurement, repeats=min(measurement.repeats, MAX_COLLECTIVE_REPEATS))


def group_sizes(ranks: int) -> list[int]:
    """Powers of two that divide the number of ranks, and that number: disjoint groups of a size use all ranks."""
    powers = [2**k for k in range(1, ranks.bit_length()) if ranks % 2**k == 0]
    return sorted({*powers, ranks} - {1})


def single_documents(batches: Sequence[tuple[int, ...]], device: Device) -> Sequence[tuple[int, ...]]:
    """Batches of one document at which the overhead of FSDP2 is measured: the smallest on a CPU, where it exceeds the
    noise; the largest on a GPU, where compute hides the host's work.
    """
    single = [lengths for lengths in batches if len(lengths) == 1]
    return single[:FSDP_BATCH_SIZES] if device.kind == "cpu" else single[-FSDP_BATCH_SIZES:]


def affordable_batches(expected: "ExpectedCost", level: GridExtent) -> list[tuple[int, ...]]:
    """Packed batches by rising size, until a round would take too long or exceed memory."""
    spec, count = expected.spec, parameter_counts(expected.spec)
    states = (count.largest_layer * STACK_LAYERS + count.embedding_head) * STATE_BYTES[expected.dtype]
    memory = MEMORY_SHARE * expected.device.memory_gib * GIB - states
    kept = expected.kept
    batches: list[tuple[int, ...]] = []
    spent, total, sizes, short = 0.0, level.tokens[0], 0, level.short_document
    while spec.max_item_tokens and spec.typical_item(short) > spec.max_item_tokens and short > 1:
        short //= 2
    while total <= level.tokens[1]:
        of_size = batch_mixes(spec, total, short)
        spent += sum(expected.seconds("layer", lengths) for lengths in of_size)
        spent += expected.seconds("ends", (total,))
        if sizes >= MIN_BATCH_SIZES and (spent > level.round_s or total * kept > memory):
            break
        batches += of_size
        sizes += bool(of_size)
        total *= 2
    if sizes < MIN_BATCH_SIZES:
        raise InputError("its table of learned positions is too short to measure anything", fix="raise max_positions")
    return batches


def batch_mixes(spec: Module, total: int, short: int) -> list[tuple[int, ...]]:
    """Batches of `total` tokens: one document; each half as long as the one before; many short ones."""
    shares: list[Sequence[float]] = [(1,), (1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 16)]
    if total < 2 * short:
        shares = shares[:1]
    lengths = [tuple(spec.typical_item(round(total * share)) for share in mix) for mix in shares]
    if total >= 4 * short:
        lengths.append((spec.typical_item(short),) * (total // short))
    longest = spec.max_item_tokens or max(map(max, lengths))
    return [mix for mix in dict.fromkeys(lengths) if max(mix) <= longest]


@dataclass(frozen=True, slots=True)
class ExpectedCost:
    """Expected cost of the measured stack on one rank, from the device's data sheet."""

    spec: Module
    device: Device
    dtype: Dtype

    def seconds(self, kind: MeasurementKind, lengths: Sequence[int]) -> float:
        """Seconds of one repeat, forward and backward."""
        return sum(self.line(kind, forward).seconds(lengths) for forward in (True, False))

    def line(self, kind: MeasurementKind, forward: bool) -> CostLine:
        if kind == "ends":
            return head_line(self.spec, self.columns, self.machine, forward)
        recompute: Recompute = "full" if kind == "full" else "selective" if kind == "selective" else "none"
        groups = layer_groups(self.columns, self.machine.network.per_node)
        return layers_line(self.spec, self.columns, self.machine, groups, forward, ((recompute, STACK_LAYERS),))

    @property
    def columns(self) -> LayoutColumns:
        return LayoutColumns(ranks=1, seq=ONE_SEQUENCE.seq, batch=1, dtype=self.dtype)

    @property
    def machine(self) -> MachineModel:
        return MachineModel(
            self.device,
            complete_rates(None, self.device.kind),
            SINGLE_RANK_NETWORK,
            TimingCoefficients(),
            PLANNER_RUNTIME_MEMORY,
        )

    @property
    def kept(self) -> float:
        """Bytes of activations per token, of the whole stack."""
        kinds = kind_counts(self.spec)
        each = {
            kind: float(layer_token_bytes(self.spec, kind, self.columns, PLANNER_RUNTIME_MEMORY)[0]) for kind in kinds
        }
        return STACK_LAYERS * sum(each[kind] * count for kind, count in kinds.items()) / self.spec.layers


def with_repeats(
    context: str, kind: MeasurementKind, sizes: tuple[int, ...], number: int, expected_s: float
) -> Measurement:
    """A measurement with enough repeats to make the noise of its barriers small."""
    repeats = min(MAX_REPEATS, max(1, round(SAMPLE_S / expected_s)))
    return Measurement(context, kind, sizes, number, repeats, expected_s * repeats)
