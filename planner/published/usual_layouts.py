"""Layouts of records that state none: of the usual ones, the least sharded that fits the memory of its devices.

PyTorch's FSDP, torchtitan and DeepSpeed shard everything over all ranks (ZeRO-3). Others divide layers, first over the
ranks of a node (tp), then in stages (pp), as little as their memory allows, and into no more stages than there are
micro-batches (arXiv 2104.04473, section 3).
"""

import math
from collections.abc import Iterator

from planner.published.rank_degrees import stated_zero_stage
from planner.published.record_files import PublishedRecord

Guess = tuple[PublishedRecord, tuple[str, ...]]  # a record with cells filled in, and what was assumed
SHARDED_FRAMEWORKS = ("fsdp", "torchtitan", "deepspeed", "deepspeed-2021")
LAYOUT_COLUMNS = ("tp", "pp", "dp")


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
