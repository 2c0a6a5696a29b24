"""Every static layout of a job, as columns of numbers: degrees of any size that divide what they shard."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import product
from math import ceil, isqrt, prod

import numpy as np
from numpy.typing import NDArray

from planner.costs import DISPATCHES
from planner.layouts.space.layout_fields import (
    DISPATCH,
    EP_OVERLAP,
    RECOMPUTE,
    RECOMPUTE_BY_RANGES,
    SCHEDULE,
    SCHEDULES,
    SEARCHED_FIELDS,
    SOLVED_FIELDS,
    TrainingSetup,
    layout_of,
)
from planner.plan.plan_file import Layout
from planner.specs.layers import Module
from planner.specs.layers.head_widths import kv_heads
from planner.specs.parallelism import DEFAULT_RANK_ORDER, ZERO_BUBBLE, Parallelism, Schedule

LayoutSpace = dict[str, NDArray[np.int64]]  # searched field → (layouts,)
# Columns of the table while it is built: a mesh, its experts, its pipeline, its states.
COLUMNS = ("tp", "cp", "ulysses", "pp", "replica", "ep", "etp", "vpp", "micro_batch", "zero", "recompute")


def layout_space(
    trained: TrainingSetup, per_node: int, fixed: Parallelism, schedules: Sequence[Schedule] = ()
) -> LayoutSpace:
    """All layouts with the fixed fields, and pipelines with each of these zero-bubble schedules beside their usual one;
    may be empty. No layers are recomputed in full, nothing is offloaded, tokens get to experts by all_to_all, and ranks
    have the default order, except where the job says.
    """
    tables = [np.zeros((0, len(COLUMNS)), dtype=np.int64)]
    for mesh in meshes(trained, per_node, fixed):
        rest = ([*expert_meshes(trained, mesh, fixed)], [*pipeline_choices(trained, mesh, fixed)])
        tables.append(cross_product([mesh], *rest, state_choices(trained, mesh, fixed)))
    table = np.concatenate(tables)
    table = table[~copies_without_shards(table)]
    columns = {name: np.ascontiguousarray(table[:, COLUMNS.index(name)]) for name in SEARCHED_FIELDS}
    dispatch = np.full(len(table), DISPATCHES.index(fixed.dispatch or "all_to_all"), dtype=np.int64)
    kept = trained.fixed.schedule
    columns |= {name: np.zeros(len(table), dtype=np.int64) for name in SOLVED_FIELDS}
    columns |= {DISPATCH: dispatch, EP_OVERLAP: np.zeros_like(dispatch)}
    columns[SCHEDULE] = np.full(len(table), SCHEDULES.index(kept or "1f1b"), dtype=np.int64)
    return columns if kept else with_schedules(columns, [name for name in schedules if name in ZERO_BUBBLE])


def with_schedules(columns: LayoutSpace, schedules: Sequence[Schedule]) -> LayoutSpace:
    """The layouts, and again those that can split backwards: pipelines of one chunk a rank without recomputation."""
    able = (columns["pp"] > 1) & (columns["vpp"] == 1) & (columns["recompute"] == RECOMPUTE.index("none"))
    parts = [columns]
    for name in schedules:
        split = {field: column[able] for field, column in columns.items()}
        parts.append({**split, SCHEDULE: np.full_like(split[SCHEDULE], SCHEDULES.index(name))})
    return {field: np.concatenate([part[field] for part in parts]) for field in columns}


def copies_without_shards(table: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Layouts that copy shards which do not exist: without ZeRO every rank has all states, and dp says so already."""
    zero, replica = table[:, COLUMNS.index("zero")], table[:, COLUMNS.index("replica")]
    return np.asarray((zero == 0) & (replica > 1))


def cross_product(*parts: Sequence[tuple[int, ...]]) -> NDArray[np.int64]:
    """The Cartesian product of the parts' rows, (combinations, width), the last part varying fastest."""
    if not all(parts):
        return np.zeros((0, len(COLUMNS)), dtype=np.int64)
    places = np.indices([len(part) for part in parts]).reshape(len(parts), -1)
    columns = [np.array(part, dtype=np.int64)[at] for part, at in zip(parts, places, strict=True)]
    return np.concatenate(columns, axis=1)


def layout_at(trained: TrainingSetup, found: LayoutSpace, place: int) -> Layout:
    """One layout of the space."""
    return layout_of(trained, {name: int(column[place]) for name, column in found.items()})


Mesh = tuple[int, int, int, int, int]  # tp, cp, ulysses, pp, replica


def meshes(trained: TrainingSetup, per_node: int, fixed: Parallelism) -> Iterator[Mesh]:
    """Meshes with tp within a node and dividing the heads, a layer or more per stage, and tokens for each ring rank."""
    ranks, tokens = trained.ranks, max(1, max(trained.sizes) // 2)
    widths = [fixed.tp] if fixed.tp else [n for n in divisors(ranks, min(ranks, per_node)) if splits_heads(trained, n)]
    degrees = [fixed.cp] if fixed.cp else divisors(ranks, tokens)
    depths = [fixed.pp] if fixed.pp else divisors(ranks, trained.module.layers)
    for tp, cp, pp in product(widths, degrees, depths):
        if ranks % (tp * cp * pp) or not can_shard(trained.module, tp, cp, pp) or pp > trained.module.layers:
            continue
        for ulysses in head_ranks(trained, tp, cp, per_node, fixed):
            for replica in copies(ranks // (tp * cp * pp), tp * cp, per_node, fixed):
                dims = {"tp": tp, "cp": cp, "pp": pp, "replica": replica}
                dims["dp"] = ranks // prod(dims.values())
                if prod(dims.values()) == ranks and keeps_fixed(dims, fixed):
                    yield tp, cp, ulysses, pp, replica


def can_shard(module: Module, tp: int, cp: int, pp: int) -> bool:
    """Whether a module can be sharded so: some need whole sequences, all layers, or whole groups of heads on a rank."""
    return (
        (cp == 1 or not module.unshardable_reason)
        and (pp == 1 or not module.unpipelined_reason)
        and not module.scan_groups % tp
    )


def head_ranks(trained: TrainingSetup, tp: int, cp: int, per_node: int, fixed: Parallelism) -> list[int]:
    """Ranks of cp that shard heads: none (a ring), as many as a node and the heads have, or all that divide both."""
    if fixed.ulysses:
        return [fixed.ulysses] if cp % fixed.ulysses == 0 and trained.module.heads % (tp * fixed.ulysses) == 0 else []
    able = [n for n in divisors(cp, cp) if trained.module.heads % (tp * n) == 0]
    near = [n for n in able if n * tp <= per_node]
    return sorted({1, near[-1], able[-1]}) if near else [1]


def copies(pipelines: int, model_ranks: int, per_node: int, fixed: Parallelism) -> list[int]:
    """Copies of each shard of states (HSDP): one, or one for each node, so that shards are gathered within nodes."""
    if fixed.replica:
        return [fixed.replica] if pipelines % fixed.replica == 0 else []
    near = max(1, per_node // model_ranks)  # pipelines of a node
    return sorted({1, pipelines // near}) if 1 < near < pipelines and pipelines % near == 0 else [1]


def keeps_fixed(dims: dict[str, int], fixed: Parallelism) -> bool:
    """Whether a mesh agrees with the fixed dp, schedule and rank order."""
    named = (fixed.rank_order or DEFAULT_RANK_ORDER).split("-")
    return (
        fixed.dp in (None, dims["dp"])
        and (dims["pp"] > 1 or fixed.schedule in (None, "1f1b"))
        and all(size == 1 or dim in named for dim, size in dims.items())
    )


def splits_heads(trained: TrainingSetup, tp: int) -> bool:
    """Whether tp divides the query heads, and divides the key/value heads or replicates each evenly."""
    groups = kv_heads(trained.module)
    return trained.module.heads % tp == 0 and (groups % tp == 0 or tp % groups == 0)


def expert_meshes(trained: TrainingSetup, mesh: Mesh, fixed: Parallelism) -> Iterator[tuple[int, int]]:
    """Pairs (ep, etp) over the ranks of a stage, whatever attention's mesh over the same ranks is (MoE parallel
    folding, arXiv 2504.14960); etp is 1 or tp unless fixed.
    """
    moe, stage_ranks = trained.module.routed_experts, trained.ranks // mesh[3]
    if moe is None:
        if (fixed.ep or 1) == (fixed.etp or 1) == 1:
            yield 1, 1
        return
    ep_choices = [fixed.ep] if fixed.ep else divisors(moe.experts, stage_ranks)
    for ep, etp in product(ep_choices, [fixed.etp] if fixed.etp else sorted({1, mesh[0]})):
        if moe.experts % ep == 0 and moe.ffn % etp == 0 and stage_ranks % (ep * etp) == 0:
            yield ep, etp


def pipeline_choices(trained: TrainingSetup, mesh: Mesh, fixed: Parallelism) -> Iterator[tuple[int, int]]:
    """Pairs (vpp, micro-batch size). Interleaving needs a multiple of pp micro-batches."""
    tp, cp, _, pp, _ = mesh
    pipelines, layers, count = trained.ranks // (tp * cp * pp), trained.module.layers, len(trained.sizes)
    most = max(1, count // pipelines if trained.equal_lengths else ceil(count / pipelines))
    sizes = micro_batch_sizes(trained, pipelines, most)
    for vpp in [fixed.vpp] if fixed.vpp else chunk_counts(layers, pp, fixed):
        if (vpp > 1 and pp == 1) or layers < pp * vpp or (fixed.schedule == "interleaved" and vpp == 1 < pp):
            continue
        for micro_batch in sizes:
            if trained.equal_lengths and count % (pipelines * micro_batch):
                continue
            if vpp == 1 or not trained.equal_lengths or count // (pipelines * micro_batch) % pp == 0:
                yield vpp, micro_batch


def micro_batch_sizes(trained: TrainingSetup, pipelines: int, most: int) -> Sequence[int]:
    """Sequences of a micro-batch: the fixed number; any that divides a pipeline's share of equal ones; powers of two of
    others. Where assignments differ, some numbers up to the fixed one or the most, each at most twice the one before.
    """
    if trained.any_assignment:
        most = trained.fixed.micro_batch or most
        able = {n for power in range(most.bit_length()) for n in (2**power, 3 * 2**power // 2) if n < most}
        return sorted({*able, most})
    if trained.fixed.micro_batch:
        return [trained.fixed.micro_batch]
    if trained.equal_lengths and len(trained.sizes) % pipelines == 0:
        return divisors(len(trained.sizes) // pipelines, most)
    return sorted({*(2**n for n in range(most.bit_length())), *(ceil(most / n) for n in range(1, 5))})


def chunk_counts(layers: int, pp: int, fixed: Parallelism) -> list[int]:
    """Values of vpp that divide the layers, or the layers plus two with embedding and head as one each."""
    if pp == 1 or fixed.schedule not in (None, "interleaved"):
        return [1]
    even = [n for n in range(1, layers // pp + 1) if 0 in (layers % (pp * n), (layers + 2) % (pp * n))]
    return [n for n in even if n == 1 or (layers + 2) // (pp * n) > 1 or layers % (pp * n) == 0] or [1]


def state_choices(trained: TrainingSetup, mesh: Mesh, fixed: Parallelism) -> list[tuple[int, int]]:
    """Pairs (ZeRO stage, recomputation)."""
    return [*product(zero_stages(trained, mesh, fixed), recompute_choices(mesh, fixed))]


def zero_stages(trained: TrainingSetup, mesh: Mesh, fixed: Parallelism) -> list[int]:
    """ZeRO stages; without ranks that share parameters there is nothing to shard."""
    if fixed.zero is not None:
        return [fixed.zero]
    tp, _, _, pp, _ = mesh
    return [0] if trained.ranks // (tp * pp) == 1 else [0, 1, 2, 3]


def recompute_choices(mesh: Mesh, fixed: Parallelism) -> list[int]:
    """What layers recompute that are not recomputed in full; a split backward keeps its activations."""
    if fixed.schedule in ZERO_BUBBLE and mesh[3] > 1:
        return [RECOMPUTE.index("none")]
    if isinstance(fixed.recompute, dict):
        return [RECOMPUTE_BY_RANGES]
    return [RECOMPUTE.index(how) for how in ([fixed.recompute] if fixed.recompute else ["none", "selective"])]


@lru_cache(maxsize=4096)
def divisors(number: int, most: int) -> tuple[int, ...]:
    """All divisors up to `most`, rising."""
    low = [n for n in range(1, isqrt(number) + 1) if number % n == 0]
    return tuple(n for n in sorted({*low, *(number // n for n in low)}) if n <= most)
