"""What screens say of an order of a graph's training nodes: rows that it moves beside others, and the partition."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from planner.cli.views.plain_table import table
from planner.graphs import OrderAnswer
from planner.units import percent, plural

SHOWN = 6  # orders with caches: the JSON answer has all


def order_lines(answer: OrderAnswer, path: Path) -> Iterator[RenderableType]:
    """The order and the cache that were chosen, what each would move, and the partition."""
    chosen, rival = answer.chosen, answer.best_random
    yield Text.assemble((f"{chosen.order} with {chosen.cache}", "bold"), f"  {chosen.rows:,.0f} rows an epoch")
    fewer = f"{rival.rows / chosen.rows:.2f} times fewer than" if chosen.rows else f"{rival.rows:,.0f} rows"
    yield Text(
        f"{fewer} in random order with {rival.cache}, its best; labels of a "
        f"batch differ by {chosen.imbalance:.2f}, in random order by {rival.imbalance:.2f}"
    )
    rows = table("order", "cache", ">rows an epoch", ">imbalance of labels")
    for each in answer.counted[:SHOWN]:
        rows.add_row(each.order, each.cache, f"{each.rows:,.0f}", f"{each.imbalance:.2f}")
    yield rows
    yield Text(f"counted on {answer.sampled} of {plural(answer.batches, 'batch')} of each order", style="dim")
    part, (across, every) = answer.partition, answer.across
    yield Text(
        f"partition: {part.cut:,} edges cut, {percent(across / max(1, every))} of walks of two edges leave their part; "
        f"the fullest part has {percent(part.imbalance - 1)} more nodes than the mean, "
        f"{percent(part.train_imbalance - 1)} more training nodes"
    )
    yield Text(f"written to {path}: order, part, cached", style="dim")


def order_answer(answer: OrderAnswer, path: Path) -> dict[str, Any]:
    """The JSON answer of `planner loader-order`."""
    part = answer.partition
    return {
        "order": answer.chosen.order,
        "cache": answer.chosen.cache,
        "rows": answer.chosen.rows,
        "imbalance": answer.chosen.imbalance,
        "counted": [asdict(each) for each in answer.counted],
        "sampled_batches": answer.sampled,
        "batches": answer.batches,
        "cut_edges": part.cut,
        "two_hop_across": answer.across[0] / max(1, answer.across[1]),
        "part_imbalance": part.imbalance,
        "part_train_imbalance": part.train_imbalance,
        "file": str(path),
    }
