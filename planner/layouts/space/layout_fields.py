"""One static layout of a job: the fields that the job fixes, those that a search decides, and the closed form's
columns.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import permutations, zip_longest
from typing import Any, get_args

from planner.costs import DISPATCHES, LayoutColumns, PipelineBatch, columns_of
from planner.costs.memory import OFFLOAD_STEPS
from planner.plan.descriptions import flow_text
from planner.plan.launchable.launch_rules import CODED_FIELDS
from planner.plan.mesh.even_stages import even_stages
from planner.plan.plan_file import Layout
from planner.specs.base import Layers, Ranks, with_fields
from planner.specs.framework.knobs import Knobs
from planner.specs.layers import Module
from planner.specs.parallelism import (
    MESH_DIMS,
    ZERO_BUBBLE,
    Dtype,
    OverlappedKind,
    Parallelism,
    Recompute,
    Schedule,
    decided_fields,
    parts_of,
    parts_of_code,
)

RECOMPUTE: tuple[Any, ...] = CODED_FIELDS["recompute"]  # what layers recompute, by its place in tables of layouts
RECOMPUTE_BY_RANGES = RECOMPUTE.index("ranges")  # as the job says
# Fields that a search decides, as integers; the others are as the job says, or defaults.
SEARCHED_FIELDS = (
    "tp", "cp", "ulysses", "pp", "vpp", "ep", "etp", "replica", "zero", "recompute", "micro_batch",
)  # fmt: skip
SCHEDULES: tuple[Schedule, ...] = get_args(Schedule)
SCHEDULE = "schedule"  # of a table: a place in SCHEDULES; 1f1b is interleaved where ranks have chunks
# Fields of a table that are solved for, not enumerated.
FULL_LAYERS = "full_layers"  # how many layers each pipeline rank recomputes in full
# The share of activations in host memory, in steps of 1/OFFLOAD_STEPS, or less the number of a set of kinds of them
# (part_code); 0 where the job says it.
OFFLOAD = "offload"
OPTIMIZER_OFFLOAD = "optimizer_offload"  # the same of the optimizer's moments
DISPATCH = "dispatch"  # how tokens get to experts, as a place in DISPATCHES
OFFLOADS = (OFFLOAD, OPTIMIZER_OFFLOAD)
RANK_ORDERS = tuple("-".join(dims) for dims in permutations(MESH_DIMS))  # every order of ranks, the default one first
RANK_ORDER = "rank_order"  # of a table: a place in RANK_ORDERS
SOLVED_FIELDS = (FULL_LAYERS, OFFLOAD, OPTIMIZER_OFFLOAD, RANK_ORDER)
EP_OVERLAP = "ep_overlap"  # of a table: 1 where exchanges with experts run beside compute
NOTHING_FIXED = Parallelism()


@dataclass(frozen=True)
class TrainingSetup:
    """What a layout is for: the module, its ranks, the sequences of a step, and the fields that the job fixes."""

    module: Module
    ranks: int
    sizes: tuple[int, ...]  # tokens of each sequence
    fixed: Parallelism = NOTHING_FIXED
    any_assignment: bool = False  # replicas may have any of the sequences, and micro-batches fewer than layouts say
    overlap: tuple[OverlappedKind, ...] = ()  # exchanges that layouts have beside compute, where the job leaves it open

    @property
    def dtype(self) -> Dtype:
        """The fixed dtype, else bf16."""
        return self.fixed.dtype or "bf16"

    @cached_property
    def mean_tokens(self) -> float:
        """Mean length over tokens: that of the sequence of a random token."""
        return sum(size * size for size in self.sizes) / sum(self.sizes)

    @cached_property
    def mean_sequences(self) -> float:
        """Number of sequences of that length with as many tokens, and as many token pairs, as the step."""
        return sum(self.sizes) / self.mean_tokens

    @cached_property
    def mean_share(self) -> float:
        """Sequences of that length for each of the step's: a micro-batch of so many has the mean tokens."""
        return self.mean_sequences / len(self.sizes)

    @property
    def offloaded_size(self) -> int:
        """Tokens of a sequence: copies of any hide that take no longer than those of this one. Where assignments
        differ, items may have shares of their own, and the longest has most to hide them behind.
        """
        return max(self.sizes) if self.any_assignment else min(self.sizes)

    @cached_property
    def equal_lengths(self) -> bool:
        """Whether all sequences have the same length, and all replicas as many."""
        return not self.any_assignment and min(self.sizes) == max(self.sizes)


def layout_of(trained: TrainingSetup, numbers: Mapping[str, int]) -> Layout:
    """A layout with these searched fields, layers to recompute and shares to offload, the others as the job says; dp is
    the rest of the ranks.
    """
    enumerated = {name: value for name, value in numbers.items() if name not in (*OFFLOADS, EP_OVERLAP)}
    chosen: dict[str, Any] = {**decided_fields(trained.fixed), **enumerated}
    full_layers = chosen.pop(FULL_LAYERS, 0)
    chosen |= {name: numbers[name] / OFFLOAD_STEPS for name in OFFLOADS if numbers.get(name, 0) > 0}
    chosen |= {OFFLOAD: parts_of_code(-numbers[OFFLOAD])} if numbers.get(OFFLOAD, 0) < 0 else {}
    how = numbers.get("recompute", 0)
    if DISPATCH in numbers:
        chosen[DISPATCH] = DISPATCHES[numbers[DISPATCH]]
    chosen[RANK_ORDER] = trained.fixed.rank_order or RANK_ORDERS[numbers.get(RANK_ORDER, 0)]
    chosen["recompute"] = trained.fixed.recompute if how == RECOMPUTE_BY_RANGES else RECOMPUTE[how]
    pp, vpp = chosen.get("pp", 1), chosen.get("vpp", 1)
    if trained.overlap:
        able = {"tp": chosen.get("tp", 1) > 1, "ep": bool(numbers.get(EP_OVERLAP))}
        chosen["overlap"] = tuple(kind for kind in trained.overlap if able[kind])
    chosen["dp"] = trained.ranks // (chosen.get("tp", 1) * chosen.get("cp", 1) * pp * chosen.get("replica", 1))
    schedule = schedule_of(trained, pp, vpp, numbers.get(SCHEDULE, 0))
    layout = Layout(
        ranks=Ranks(range(trained.ranks)),
        **{"stages": even_stages(trained.module.layers, pp * vpp), **chosen, SCHEDULE: schedule},
    )
    if not full_layers or how == RECOMPUTE_BY_RANGES:
        return layout
    ranges = recompute_ranges(layout, trained.module.layers, chosen["recompute"], full_layers)
    return with_fields(layout, recompute=ranges)


def recompute_ranges(
    layout: Layout, layers: int, base: Recompute, count: int | Sequence[int], most: Recompute = "full"
) -> Recompute | dict[str | int, Recompute]:
    """The recomputation of a layout whose pipeline ranks recompute `count` layers, or each its own number, as `most`
    says, in full, the first ones of their chunks, and the others as `base`, as a plan writes it.
    """
    every = [layout.stages[rank :: layout.pp] for rank in range(layout.pp)] if layout.stages else [(range(layers),)]
    own = [[layer for each in zip_longest(*chunks) for layer in each if layer is not None] for chunks in every]
    counts = (count,) * len(own) if isinstance(count, int) else count
    if not any(counts) or base == most:
        return base
    if all(len(each) <= many for each, many in zip(own, counts, strict=True)):
        return most
    full = sorted(layer for each, many in zip(own, counts, strict=True) for layer in each[:many])
    rest = sorted({*range(layers)} - {*full})
    found: dict[str | int, Recompute] = {Layers(full).to_file(): most}
    return {**found, Layers(rest).to_file(): base} if base != "none" else found


def searched_overlap(fixed: Parallelism, knobs: Knobs) -> tuple[OverlappedKind, ...]:
    """The exchanges that a search has beside compute, where layouts have them: all that a framework can, as none takes
    longer so; none where the job says which.
    """
    if fixed.overlap is not None:
        return ()
    sharded = fixed.sequence_parallel is not False or knobs.tp_overlap == "any"
    return tuple(kind for kind in knobs.overlap if kind != "tp" or sharded)


def schedule_of(trained: TrainingSetup, pp: int, vpp: int, place: int = 0) -> Schedule | None:
    """The schedule of a pipeline: the job's, else interleaved or 1F1B, or zero bubble by its place in SCHEDULES; None
    without a pipeline.
    """
    searched = SCHEDULES[place] if SCHEDULES[place] in ZERO_BUBBLE else None
    return None if pp == 1 else trained.fixed.schedule or searched or ("interleaved" if vpp > 1 else "1f1b")


def columns_for(layout: Layout, trained: TrainingSetup) -> LayoutColumns:
    """A layout as columns of the closed form, its sequences of mean length. Where layers differ in the parts that they
    recompute, those of most layers.
    """
    at = columns_of(layout, batch_of(layout, trained))
    if not isinstance(layout.recompute, dict):
        return at
    others = Counter(layout.recompute_counts(range(trained.module.layers)))
    del others["full"]
    most = others.most_common(1)[0][0] if others else "none"
    return replace(at, full_recompute=full_recompute_share(layout, trained), recomputed_parts=parts_of(most))


def batch_of(layout: Layout, trained: TrainingSetup) -> PipelineBatch:
    """The step's sequences as equal ones, in as many micro-batches."""
    return PipelineBatch(trained.mean_tokens, trained.mean_sequences, layout.micro_batch * trained.mean_share)


def full_recompute_share(layout: Layout, trained: TrainingSetup) -> float:
    """Share of the layers that are recomputed in full."""
    layers = trained.module.layers
    return layout.recompute_counts(range(layers)).get("full", 0) / layers


def fixed_text(fixed: Parallelism) -> str:
    """The fields that a job fixes, as `tp 8 · pp 4`."""
    return " · ".join(f"{name} {flow_text(value)}" for name, value in decided_fields(fixed).items())
