"""FlexSP (arXiv 2412.01523): cut sequences by length into micro-batches, and solve each by a mixed-integer program.

Sequences are sorted by length and cut into M consecutive chunks whose largest token count is least, for M from the
fewest that hold the tokens on; each chunk is a micro-batch, whose groups and assignment a program chooses over 16
buckets of lengths (flexsp_program.py), with SCIP and 5 s. The M whose step is shortest is taken.

Kindly to it: steps are compared on exact lengths, the program is seeded with the best balanced homogeneous micro-batch,
and chunks that cannot bring an M below the best one known are not solved, which changes no result.
"""

from dataclasses import replace
from itertools import accumulate

from benchmarks.baselines.flexsp_program import solve_micro_batch
from benchmarks.baselines.groups import longest_first, placed
from planner.costs.packing_problem import PackingProblem
from planner.costs.packing_table import packing_table
from planner.packing.packed_groups import PackedGroup, Packing, makespan, packing_seconds

TRIALS = 5  # of M
SECONDS = 5.0  # a micro-batch

Row = list[PackedGroup]


def flexsp(problem: PackingProblem, seconds: float = SECONDS) -> Packing | None:
    best, value = None, float("inf")
    first = fewest_chunks(problem)
    for count in range(first, first + TRIALS):
        chunks = [replace(problem, sizes={i: problem.sizes[i] for i in chunk}) for chunk in blast(problem, count)]
        rows = solve_chunks(chunks, value - problem.step_seconds, seconds)
        packed = placed(problem, rows) if rows else None
        if packed and packing_seconds(problem, packed) < value:
            best, value = packed, packing_seconds(problem, packed)
    return best


def solve_chunks(chunks: list[PackingProblem], value: float, seconds: float) -> list[Row] | None:
    """Micro-batches that together last less than `value`; None as soon as that cannot be any more."""
    least = [
        packing_table(chunk).least_rank_seconds / chunk.ranks + chunk.least_micro_batch_seconds for chunk in chunks
    ]
    to_come, spent = list(accumulate(reversed(least))), 0.0
    rows: list[Row] = []
    for chunk in chunks:
        if spent + to_come.pop() >= value:
            return None
        row = solve_micro_batch(chunk, seconds)
        if row is None:
            return None
        spent += makespan(chunk, tuple(row)) + chunk.micro_batch_seconds
        rows.append(row)
    return rows


def fewest_chunks(problem: PackingProblem) -> int:
    """The least number of chunks none of which exceeds what a micro-batch holds."""
    count = -(-problem.tokens // problem.micro_batch_tokens)
    while count < len(problem.sizes) and tokens_of_fullest(problem, count) > problem.micro_batch_tokens:
        count += 1
    return count


def tokens_of_fullest(problem: PackingProblem, count: int) -> int:
    return max(sum(problem.sizes[item] for item in chunk) for chunk in blast(problem, count))


def blast(problem: PackingProblem, count: int) -> list[list[int]]:
    """Longest first, at most `count` consecutive chunks; the largest token count is least (bisection)."""
    items = longest_first(problem)
    low, high = max(problem.sizes.values()), problem.tokens
    while low < high:
        middle = (low + high) // 2
        if len(cut(problem, items, middle)) <= count:
            high = middle
        else:
            low = middle + 1
    return cut(problem, items, low)


def cut(problem: PackingProblem, items: list[int], most: int) -> list[list[int]]:
    """Consecutive chunks of at most so many tokens."""
    chunks: list[list[int]] = [[]]
    held = 0
    for item in items:
        if held + problem.sizes[item] > most:
            chunks.append([])
            held = 0
        chunks[-1].append(item)
        held += problem.sizes[item]
    return chunks
