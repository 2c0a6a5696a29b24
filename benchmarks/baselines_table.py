"""Our packing beside published ways of packing: same process, same batches, same prices, same judge.

One line of figures for each way and batch on stdout; the same as a table on stderr at the end. FlexSP, which the clock
stops, runs on 64 ranks only. Steps are in seconds of the priced problem, over the bound that nothing can beat.
"""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from benchmarks.baselines import BASELINES, TIMED
from benchmarks.baselines.instances import FLEXSP_RANKS, Instance, instances
from benchmarks.registry import Figures
from planner.costs.packing_problem import PackingProblem
from planner.packing.packed_groups import Packing, packing_seconds
from planner.scoring.bounds.step_bounds import packing_bound
from planner.strategies.sequence_groups import pack

EFFORT = 2  # that jobs have when they name none
OURS = "planner"

Way = Callable[[PackingProblem], Packing | None]


@dataclass(frozen=True, slots=True)
class Decided:
    """What one way made of a batch, and how long it took."""

    way: str
    packed: Packing | None
    seconds: float


def run(data: Path | None) -> Iterator[Figures]:
    lines = []
    for instance in instances(data):
        ways: dict[str, Way] = {OURS: ours, **BASELINES, **(TIMED if instance.problem.ranks == FLEXSP_RANKS else {})}
        for line in compared(instance, [decide(instance.problem, name, way) for name, way in ways.items()]):
            lines.append(line)
            yield line
    print(table(lines), file=sys.stderr)


def ours(problem: PackingProblem) -> Packing | None:
    return pack(problem, EFFORT)[0]


def decide(problem: PackingProblem, name: str, way: Way) -> Decided:
    start = perf_counter()
    packed = way(problem)
    seconds = perf_counter() - start
    if packed is not None:
        require_legal(problem, packed, name)
    return Decided(name, packed, seconds)


def compared(instance: Instance, decided: list[Decided]) -> Iterator[Figures]:
    """The figures of every way, over one bound."""
    values = [packing_seconds(instance.problem, each.packed) for each in decided if each.packed is not None]
    bound = packing_bound(instance.problem, min(values), EFFORT).seconds
    for each in decided:
        yield {
            "workload": instance.workload,
            "batch": instance.batch,
            "ranks": instance.problem.ranks,
            "sequences": len(instance.problem.sizes),
            "clipped": instance.clipped,
            "way": each.way,
            **reached(instance.problem, each.packed, bound),
            "bound_ms": round(bound * 1e3, 1),
            "seconds": round(each.seconds, 4),
        }


def reached(problem: PackingProblem, packed: Packing | None, bound: float) -> Figures:
    """What a packing is worth; nulls where a way found none."""
    if packed is None:
        return dict.fromkeys(("value_ms", "over_bound", "micro_batches", "peak_tokens_per_rank"))
    value = packing_seconds(problem, packed)
    return {
        "value_ms": round(value * 1e3, 1),
        "over_bound": round(value / bound - 1, 4),
        "micro_batches": len(packed),
        "peak_tokens_per_rank": peak_tokens(problem, packed),
    }


def require_legal(problem: PackingProblem, packed: Packing, name: str) -> None:
    """Every sequence once, a rank in one group of a micro-batch, no group beyond its memory. Raises ValueError."""
    if sorted(item for row in packed for group in row for item in group.items) != sorted(problem.sizes):
        raise ValueError(f"{name} does not place every sequence once")
    for row in packed:
        held = [r for g in row for r in range(g.first_rank, g.first_rank + problem.shapes[g.shape].degree)]
        if len(set(held)) != len(held) or not set(held) <= set(range(problem.ranks)):
            raise ValueError(f"{name} gives a rank to two groups of a micro-batch, or one that there is not")
        for group in row:
            if sum(problem.sizes[item] for item in group.items) > problem.shapes[group.shape].room:
                raise ValueError(f"{name} fills a group beyond its memory")


def peak_tokens(problem: PackingProblem, packed: Packing) -> int:
    """The most that a rank holds in a micro-batch: memory, but for constants."""
    return max(
        -(-sum(problem.sizes[item] for item in group.items) // problem.shapes[group.shape].degree)
        for row in packed
        for group in row
    )


def table(lines: list[Figures]) -> str:
    """Markdown: one row for each batch; in it every way's time over the bound, and what it took."""
    ways = list(dict.fromkeys(line["way"] for line in lines))
    batches: dict[tuple[str, int, int], dict[str, Figures]] = {}
    for line in lines:
        batches.setdefault((line["workload"], line["ranks"], line["batch"]), {})[line["way"]] = line
    head = ["workload", "ranks", "batch", "sequences", "clipped", "bound", *ways]
    rows = [head, ["---"] * len(head)]
    for (workload, ranks, batch), found in batches.items():
        any_way = next(iter(found.values()))
        known = [any_way["sequences"], any_way["clipped"], f"{any_way['bound_ms']:.0f} ms"]
        rows.append([workload, ranks, batch, *known, *(cell(found.get(way)) for way in ways)])
    text = "\n".join("| " + " | ".join(map(str, row)) + " |" for row in rows)
    return f"{text}\n\nIn a cell: time over the bound; seconds of deciding; most tokens on a rank."


def cell(line: Figures | None) -> str:
    if line is None:
        return ""
    if line["value_ms"] is None:
        return f"none; {line['seconds']:.2g} s"
    return f"+{line['over_bound']:.1%}; {line['seconds']:.2g} s; {line['peak_tokens_per_rank']}"
