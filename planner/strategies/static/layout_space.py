"""Every legal static layout, as columns of numbers: degrees that divide what they shard, powers of two unless fixed."""

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod

import numpy as np
from numpy.typing import NDArray

from planner.plan.plan_file import Layout
from planner.specs.layers import Module
from planner.specs.layers.head_widths import kv_heads
from planner.specs.parallelism import DEFAULT_RANK_ORDER, ZERO_BUBBLE, Parallelism
from planner.strategies.static.layout_fields import (
    RECOMPUTE,
    RECOMPUTE_BY_RANGES,
    SEARCHED_FIELDS,
    TrainingSetup,
    layout_of,
)

FIELD_COUNT = len(SEARCHED_FIELDS)
LayoutSpace = dict[str, NDArray[np.int64]]  # searched field → (layouts,)


def layout_space(trained: TrainingSetup, per_node: int, fixed: Parallelism) -> LayoutSpace:
    """All layouts with the fixed fields; may be empty."""
    names = ("tp", "cp", "pp", "ep", "etp", "vpp", "micro_batch", "zero", "recompute")
    tables = [np.zeros((0, FIELD_COUNT), dtype=np.int64)]
    for mesh in meshes(trained, per_node, fixed):
        rest = ([*expert_meshes(trained, mesh, fixed)], [*pipeline_choices(trained, mesh, fixed)])
        tables.append(
            cross_product(
                [mesh],
                *rest,
                single_column(zero_stages(trained, mesh, fixed)),
                single_column(recompute_choices(mesh, fixed)),
            )
        )
    table = np.concatenate(tables)
    return {name: table[:, names.index(name)] for name in SEARCHED_FIELDS}


def cross_product(*parts: Sequence[tuple[int, ...]]) -> NDArray[np.int64]:
    """The Cartesian product of the parts' rows, (combinations, WIDTH), the last part varying fastest."""
    if not all(parts):
        return np.zeros((0, FIELD_COUNT), dtype=np.int64)
    places = np.meshgrid(*(np.arange(len(part)) for part in parts), indexing="ij")
    columns = [np.array(part, dtype=np.int64)[at.reshape(-1)] for part, at in zip(parts, places, strict=True)]
    return np.concatenate(columns, axis=1)


def single_column(values: Sequence[int]) -> list[tuple[int]]:
    """Values as rows of one column."""
    return [(value,) for value in values]


def layout_at(trained: TrainingSetup, found: LayoutSpace, place: int) -> Layout:
    """One layout of the space."""
    return layout_of(trained, {name: int(column[place]) for name, column in found.items()})


Mesh = tuple[int, int, int]  # tp, cp, pp


def meshes(trained: TrainingSetup, per_node: int, fixed: Parallelism) -> Iterator[Mesh]:
    """Meshes with tp within a node and dividing the heads, a layer or more per stage, and tokens for each ring rank."""
    module, ranks, copies = trained.module, trained.ranks, fixed.replica or 1
    widths = [fixed.tp] if fixed.tp else [n for n in powers(min(ranks, per_node)) if splits_heads(trained, n)]
    rings = [fixed.cp] if fixed.cp else powers(min(ranks, max(1, max(trained.sizes) // 2)))
    depths = [fixed.pp] if fixed.pp else pipeline_ranks(ranks, module.layers)
    for tp, cp, pp in product(widths, rings, depths):
        dims = {"tp": tp, "cp": cp, "pp": pp, "replica": copies, "dp": ranks // (tp * cp * pp * copies)}
        if prod(dims.values()) != ranks or not keeps_fixed(dims, fixed) or not can_shard(module, tp, cp, pp):
            continue
        if module.heads % (tp * (fixed.ulysses or 1)) == 0 and cp % (fixed.ulysses or 1) == 0 and pp <= module.layers:
            yield tp, cp, pp


def can_shard(module: Module, tp: int, cp: int, pp: int) -> bool:
    """Whether a module can be sharded so: some need whole sequences, all layers, or whole groups of heads on a rank."""
    space = module.ssm
    return (
        (cp == 1 or not module.unshardable_reason)
        and (pp == 1 or not module.unpipelined_reason)
        and not (space and space.groups % tp)
    )


def keeps_fixed(dims: dict[str, int], fixed: Parallelism) -> bool:
    """Whether a mesh agrees with the fixed dp, schedule and rank order."""
    named = (fixed.rank_order or DEFAULT_RANK_ORDER).split("-")
    return (
        fixed.dp in (None, dims["dp"])
        and (dims["pp"] > 1 or fixed.schedule in (None, "1f1b"))
        and all(size == 1 or dim in named for dim, size in dims.items())
    )


def pipeline_ranks(ranks: int, layers: int) -> list[int]:
    """Values of pp that divide the layers, or the layers plus two with embedding and head as one each; else any."""
    all_of = [n for n in divisors(ranks) if n <= layers]
    even = [n for n in all_of if 0 in (layers % n, (layers + 2) % n)]
    return even if len(even) > 1 else all_of


def splits_heads(trained: TrainingSetup, tp: int) -> bool:
    """Whether tp divides the query heads, and divides the key/value heads or replicates each evenly."""
    groups = kv_heads(trained.module)
    return trained.module.heads % tp == 0 and (groups % tp == 0 or tp % groups == 0)


def expert_meshes(trained: TrainingSetup, mesh: Mesh, fixed: Parallelism) -> Iterator[tuple[int, int]]:
    """Pairs (ep, etp) over the ranks of a stage; etp is 1 or tp unless fixed."""
    moe, stage_ranks = trained.module.routed_experts, trained.ranks // mesh[2]
    if moe is None:
        if (fixed.ep or 1) == (fixed.etp or 1) == 1:
            yield 1, 1
        return
    ep_choices = [fixed.ep] if fixed.ep else powers(min(stage_ranks, moe.experts))
    for ep, etp in product(ep_choices, [fixed.etp] if fixed.etp else sorted({1, mesh[0]})):
        if moe.experts % ep == 0 and moe.ffn % etp == 0 and stage_ranks % (ep * etp) == 0:
            yield ep, etp


def pipeline_choices(trained: TrainingSetup, mesh: Mesh, fixed: Parallelism) -> Iterator[tuple[int, int]]:
    """Pairs (vpp, micro-batch size). Interleaving needs a multiple of pp micro-batches."""
    tp, cp, pp = mesh
    dp, layers, count = trained.ranks // (tp * cp * pp), trained.module.layers, len(trained.sizes)
    most = max(1, count // dp)
    for vpp in [fixed.vpp] if fixed.vpp else chunk_counts(layers, pp, fixed):
        if (vpp > 1 and pp == 1) or layers < pp * vpp or (fixed.schedule == "interleaved" and vpp == 1 < pp):
            continue
        for micro_batch in [fixed.micro_batch] if fixed.micro_batch else powers(most):
            if trained.equal_lengths and count % (dp * micro_batch):
                continue
            if vpp == 1 or not trained.equal_lengths or count // (dp * micro_batch) % pp == 0:
                yield vpp, micro_batch


def chunk_counts(layers: int, pp: int, fixed: Parallelism) -> list[int]:
    """Values of vpp that divide the layers, or the layers plus two with embedding and head as one each."""
    if pp == 1 or fixed.schedule not in (None, "interleaved"):
        return [1]
    even = [n for n in range(1, layers // pp + 1) if 0 in (layers % (pp * n), (layers + 2) % (pp * n))]
    return [n for n in even if n == 1 or (layers + 2) // (pp * n) > 1 or layers % (pp * n) == 0] or [1]


def zero_stages(trained: TrainingSetup, mesh: Mesh, fixed: Parallelism) -> list[int]:
    """ZeRO stages. Without replicas there is nothing to shard; above stage 1 gradients are reduced, or weights
    gathered, in each micro-batch, which does not pay in a pipeline.
    """
    if fixed.zero is not None:
        return [fixed.zero]
    tp, _, pp = mesh
    if trained.ranks // (tp * pp) == 1:
        return [0]
    return [0, 1] if pp > 1 else [0, 1, 2, 3]


def recompute_choices(mesh: Mesh, fixed: Parallelism) -> list[int]:
    """Recomputation choices as numbers; a split backward keeps its activations, so it allows none."""
    if fixed.schedule in ZERO_BUBBLE and mesh[2] > 1:
        return [RECOMPUTE.index("none")]
    if isinstance(fixed.recompute, dict):
        return [RECOMPUTE_BY_RANGES]
    return [RECOMPUTE.index(fixed.recompute)] if fixed.recompute else [*range(len(RECOMPUTE))]


def powers(most: int) -> list[int]:
    """1, 2, 4, … up to `most`."""
    return [2**n for n in range(most.bit_length())]


def divisors(number: int) -> list[int]:
    """All divisors, rising."""
    return [n for n in range(1, number + 1) if number % n == 0]
