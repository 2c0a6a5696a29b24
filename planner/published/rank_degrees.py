"""Parallel degrees of a published record, such that their product is its number of ranks.

A record that states no layout has one of the usual ones, the least sharded that fits the memory of its devices.
PyTorch's FSDP, torchtitan and DeepSpeed shard everything over all ranks (ZeRO-3). Others divide layers, first over the
ranks of a node (tp), then in stages (pp), as little as their memory allows, and into no more stages than there are
micro-batches (arXiv 2104.04473, section 3).
"""

import math
import re
from collections.abc import Iterator
from typing import NamedTuple

from planner.published.record_files import PublishedRecord, UnusableRecord
from planner.specs.base import MAX_RANKS
from planner.specs.layers import Module
from planner.specs.parallelism import Parallelism

DENSE_DEGREE_NAMES = ("tp", "cp", "pp", "dp")
ZERO_PATTERN = re.compile(r"\bze?ro[- _]?(?:stage[- _=]*)?([0-3])\b(?!\s*=)|\bzero[- _]?redundancy.{0,20}([1-3])\b")
DenseDegrees = tuple[int, int, int, int]  # tp, cp, pp, dp
Guess = tuple[PublishedRecord, tuple[str, ...]]  # a record with cells filled in, and what was assumed
SHARDED_FRAMEWORKS = ("fsdp", "torchtitan", "deepspeed", "deepspeed-2021")
LAYOUT_COLUMNS = ("tp", "pp", "dp")


class RankDegrees(NamedTuple):
    """A record's ranks and parallel degrees; `assumed`: blank columns that were filled in."""

    ranks: int
    parallelism: Parallelism
    assumed: tuple[str, ...]

    def __getattr__(self, name: str) -> int:
        """A parallel degree; 1 where it is open."""
        return getattr(self.parallelism, name) or 1


def rank_degrees(record: PublishedRecord, module: Module, software: str) -> RankDegrees:
    """Every degree, stated or implied by the number of ranks. Raises UnusableRecord."""
    ranks = record.count("n_gpus")
    if ranks is None:
        raise UnusableRecord("number of GPUs not stated")
    if ranks > MAX_RANKS:
        raise UnusableRecord("impossible figures", f"{ranks} GPUs")
    degrees, assumed = dense_degrees(record, ranks)
    tp, cp, pp, dp = degrees
    vpp = record.degree("vpp") or 1
    if pp * vpp > module.layers + 2:  # Megatron can count embedding and loss as layers
        raise UnusableRecord("layout does not multiply up", f"{pp}x{vpp} stages for {module.layers} layers")
    if module.heads % tp:
        raise UnusableRecord("layout does not multiply up", f"{module.heads} heads on {tp} ranks")
    ep, etp, guessed = expert_degrees(record, module, degrees, software)
    if (tp * cp * dp) % (ep * etp):
        raise UnusableRecord(
            "layout does not multiply up", f"ep {ep} x etp {etp} among {tp * cp * dp} ranks of a stage"
        )
    parallelism = Parallelism(tp=tp, cp=cp, pp=pp, dp=dp, vpp=vpp if pp > 1 else 1, ep=ep, etp=etp)
    return RankDegrees(ranks, parallelism, (*assumed, *guessed))


def dense_degrees(record: PublishedRecord, ranks: int) -> tuple[DenseDegrees, list[str]]:
    """The degrees tp, cp, pp, dp, and the names of those that follow from the others. Raises UnusableRecord."""
    stated = {name: record.degree(name) for name in DENSE_DEGREE_NAMES}
    stated["cp"] = stated["cp"] or ulysses_degree(record, stated["tp"])
    stated_dp, stated["dp"] = stated["dp"], data_parallel_degree(record, stated, ranks)
    sharded = record.stated("fsdp") or stated_zero_stage(record) == 3
    if not any(stated[name] for name in ("tp", "pp", "dp")) and not sharded and ranks > 1:
        raise UnusableRecord("layout not stated", f"{ranks} GPUs, neither tp, pp, dp nor fsdp")
    tp, cp, pp = (stated[name] or 1 for name in ("tp", "cp", "pp"))
    dp, rest = stated["dp"], ranks // (tp * cp * pp)
    if tp * cp * pp * (dp or rest) == ranks:
        return (tp, cp, pp, dp or rest), ["dp"] if dp != stated_dp else []
    blank = [name for name in ("tp", "pp") if stated[name] is None]
    if dp and len(blank) == 1 and ranks % (tp * cp * pp * dp) == 0:
        factor = ranks // (tp * cp * pp * dp)
        return (tp * factor, cp, pp, dp) if blank == ["tp"] else (tp, cp, pp * factor, dp), blank
    product = " x ".join(f"{name} {value}" for name, value in stated.items() if value)
    raise UnusableRecord("layout does not multiply up", f"{product} on {ranks} GPUs")


def data_parallel_degree(record: PublishedRecord, stated: dict[str, int | None], ranks: int) -> int | None:
    """The degree dp, from any of three conventions: replicas, expert replicas (ep times fewer), or replicas times cp.

    The convention is the one by which the degrees multiply up to the number of ranks.
    """
    dp, ep, cp = stated["dp"], record.degree("ep") or 1, stated["cp"] or 1
    others = cp * (stated["tp"] or 1) * (stated["pp"] or 1)
    if not dp or dp * others == ranks:
        return dp
    if dp * ep * others == ranks:
        return dp * ep
    return dp // cp if dp * others == ranks * cp and dp % cp == 0 else dp


def ulysses_degree(record: PublishedRecord, tp: int | None) -> int | None:
    """The Ulysses degree, where column sp holds one: 0 and 1 only switch Megatron's sequence parallelism."""
    degree = record.number("sp") if re.fullmatch(r"\d+", record.text("sp")) else None
    return int(degree) if degree and degree > 1 and degree != tp and degree <= 10**6 else None


def stated_zero_stage(record: PublishedRecord) -> int | None:
    """The ZeRO stage stated in its column or in the settings, else None. Raises UnusableRecord."""
    text = record.stated("zero_stage").lower()
    match = re.fullmatch(r"(?:ze?ro)?[- _]*(?:stage)?[- _]*([0-3])(?:\.0)?(?:\s*[+(].*)?", text)
    if text and not match:
        raise UnusableRecord("unreadable number", f"zero_stage: {text[:60]}")
    words = ZERO_PATTERN.search(f"{record.text('framework')} {record.text('other_settings')}".lower())
    return int(match[1]) if match else int(words[1] or words[2]) if words else None


def expert_degrees(
    record: PublishedRecord, module: Module, degrees: DenseDegrees, software: str
) -> tuple[int, int, list[str]]:
    """The degrees ep, etp, and the names of those that were assumed. Raises UnusableRecord.

    By default Megatron-LM shards experts over tp too (expert_tensor_parallel_size is None: tp;
    megatron/training/arguments.py); where there are too few ranks for that, it must have been set to 1. NeMo's and
    Megatron-Bridge's recipes of MoE models set 1 (scripts/performance/configs), and other frameworks have no etp.
    """
    if module.routed_experts is None:
        if (record.degree("ep") or 1) > 1:
            raise UnusableRecord(
                "layout does not multiply up", f"ep {record.degree('ep')}, and the model has no experts"
            )
        return 1, 1, []
    ep, etp = record.degree("ep") or 1, record.degree("etp")
    if module.routed_experts.experts % ep:
        raise UnusableRecord("layout does not multiply up", f"{module.routed_experts.experts} experts on {ep} ranks")
    if etp is not None:
        return ep, etp, []
    tp, cp, _, dp = degrees
    as_dense = software == "megatron" and tp > 1 and (tp * cp * dp) % (ep * tp) == 0
    return ep, tp if as_dense else 1, ["etp"] if tp > 1 else []


def states_layout(record: PublishedRecord) -> bool:
    """Whether a record says how its model is divided, or ran on one device. Raises UnusableRecord."""
    degrees = any(record.degree(name) for name in LAYOUT_COLUMNS)
    return degrees or bool(record.stated("fsdp")) or stated_zero_stage(record) == 3 or record.count("n_gpus") == 1


def usual_layouts(record: PublishedRecord, software: str, per_node: int) -> Iterator[Guess]:
    """The record as it is where it states a layout, else with each usual one, the least sharded first. Raises
    UnusableRecord.
    """
    ranks = record.count("n_gpus")
    if states_layout(record) or ranks is None:
        yield record, ()
    elif software in SHARDED_FRAMEWORKS:
        yield record.with_cells({"zero_stage": "3"}), ("layout",)
    else:
        shared = ranks // (record.degree("cp") or 1)
        micro_batches = (record.count("gbs") or math.inf) / (record.count("mbs") or 1)  # of all replicas
        for tp, pp in tensor_and_pipeline(shared, per_node):
            if pp == 1 or pp <= micro_batches * tp * pp / shared:
                yield record.with_cells({"tp": str(tp), "pp": str(pp)}), ("layout",)


def tensor_and_pipeline(ranks: int, per_node: int) -> list[tuple[int, int]]:
    """Powers of two of tp within a node, then of pp, that divide the ranks: the smallest product first."""
    powers = [2**power for power in range(ranks.bit_length()) if ranks % 2**power == 0]
    pairs = [(tp, pp) for tp in powers for pp in powers if tp <= per_node and ranks % (tp * pp) == 0]
    return sorted(pairs, key=lambda pair: (pair[0] * pair[1], pair[1]))
