"""FlexSP's program for one micro-batch (arXiv 2412.01523, section 4): bucket q, virtual group p, A_qp sequences.

    min C   such that   β_p m_p + Σ_q (q_p s_q² + l_p s_q) A_qp ≤ C      Σ_q s_q A_qp ≤ cap·d_p·m_p
                        Σ_p d_p m_p ≤ N      Σ_p A_qp = b_q      m_p ≥ m_{p+1} in a degree

For every power of two d there are ⌊N/d⌋ virtual groups; A_qp exists where memory allows. Buckets are the 16 whose
rounding up to the longest adds the fewest tokens, found by dynamic programming over distinct lengths.
"""

from bisect import bisect_left
from collections import deque
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.baselines.groups import longest_first, powers_of_two
from benchmarks.baselines.karmarkar_karp import partition
from planner.costs.packing_problem import PackingProblem
from planner.packing.packed_groups import PackedGroup, makespan
from planner.programs import Program, ProgramBuilder, solve
from planner.programs.program import Floats
from planner.units import MS

BUCKETS = 16
EFFORT = 4  # the clock stops it first

Slot = tuple[int, int]  # shape, copy


@dataclass(frozen=True, slots=True)
class Formulation:
    program: Program
    lasts: int  # C
    used: dict[Slot, int]  # m
    counts: dict[tuple[int, Slot], int]  # A, by length of the bucket


def solve_micro_batch(problem: PackingProblem, seconds: float) -> list[PackedGroup] | None:
    """The groups of one micro-batch; None when none were found."""
    ends = bucket_ends(sorted(problem.sizes.values()), BUCKETS)
    rounded = replace(problem, sizes={i: ends[bisect_left(ends, size)] for i, size in problem.sizes.items()})
    formulation = formulate(rounded)
    seed = balanced_row(rounded)
    hint = values_of(rounded, formulation, seed) if seed else None
    solution = solve(formulation.program, "mathopt-scip", limit_seconds=seconds, effort=EFFORT, hint=hint)
    return None if solution.values is None else read(rounded, formulation, solution.values)


def bucket_ends(sizes: list[int], count: int) -> list[int]:
    """The lengths that end at most `count` buckets of sorted sizes: Σ (end − size) is least."""
    lengths, times = np.unique(np.array(sizes, dtype=np.int64), return_counts=True)
    items = np.concatenate([[0], np.cumsum(times)])
    tokens = np.concatenate([[0], np.cumsum(times * lengths)])
    begin, end = np.meshgrid(np.arange(len(lengths)), np.arange(1, len(lengths) + 1), indexing="ij")
    added = lengths[end - 1] * (items[end] - items[begin]) - (tokens[end] - tokens[begin])
    cost = np.where(begin < end, added.astype(np.float64), np.inf)  # (first length, length after the last)
    least = np.concatenate([[0.0], np.full(len(lengths), np.inf)])  # of the lengths before
    begins = []
    for _ in range(min(count, len(lengths))):
        tried = least[:-1, None] + cost
        begins.append(tried.argmin(axis=0))
        least = np.concatenate([[np.inf], tried.min(axis=0)])
    ends, at = [], len(lengths)
    for chosen in reversed(begins):
        ends.append(int(lengths[at - 1]))
        at = int(chosen[at - 1])
    return ends[::-1]


def formulate(problem: PackingProblem) -> Formulation:
    """Over lengths that are few; times in milliseconds, since solvers' tolerances are absolute."""
    b = ProgramBuilder()
    lasts = b.variable(cost=1.0, name="C")
    lengths, amounts = np.unique(list(problem.sizes.values()), return_counts=True)
    buckets = dict(zip(lengths.tolist(), amounts.tolist(), strict=True))
    slots = [(p, copy) for p in powers_of_two(problem) for copy in range(problem.ranks // problem.shapes[p].degree)]
    used = {slot: b.variable(0, 1, True, name=f"m{slot}") for slot in slots}
    counts = {
        (length, slot): b.variable(0, amount, True, name=f"A{length},{slot}")
        for length, amount in buckets.items()
        for slot in slots
        if length <= problem.shapes[slot[0]].room
    }
    for slot, group in used.items():
        shape = problem.shapes[slot[0]]
        mine = {variable: length for (length, at), variable in counts.items() if at == slot}
        seconds = {variable: shape.line.item_seconds(length) / MS for variable, length in mine.items()}
        b.row({**seconds, group: shape.line.const / MS, lasts: -1.0}, upper=0.0)
        b.row({**{variable: float(length) for variable, length in mine.items()}, group: -float(shape.room)}, upper=0.0)
        if (slot[0], slot[1] + 1) in used:
            b.row({group: 1.0, used[slot[0], slot[1] + 1]: -1.0}, lower=0.0)
    b.row({group: float(problem.shapes[p].degree) for (p, _), group in used.items()}, upper=float(problem.ranks))
    for length, amount in buckets.items():
        b.row({variable: 1.0 for (size, _), variable in counts.items() if size == length}, amount, amount)
    return Formulation(b.build(), lasts, used, counts)


def balanced_row(problem: PackingProblem) -> list[PackedGroup] | None:
    """The best homogeneous micro-batch, balanced by largest differencing."""
    found = []
    for number in powers_of_two(problem):
        shape = problem.shapes[number]
        weights = {item: shape.line.item_seconds(size) for item, size in problem.sizes.items()}
        bins = partition(weights, problem.ranks // shape.degree)
        if all(sum(problem.sizes[item] for item in held) <= shape.room for held in bins):
            found.append([PackedGroup(number, held) for held in bins])
    return min(found, key=lambda row: makespan(problem, tuple(row)), default=None)


def values_of(problem: PackingProblem, formulation: Formulation, row: list[PackedGroup]) -> Floats:
    """A micro-batch as values of the program."""
    values = np.zeros(formulation.program.variables)
    copies: dict[int, int] = {}
    for group in row:
        slot = group.shape, copies.get(group.shape, 0)
        copies[group.shape] = slot[1] + 1
        values[formulation.used[slot]] = 1.0
        for item in group.items:
            values[formulation.counts[problem.sizes[item], slot]] += 1.0
    values[formulation.lasts] = makespan(problem, tuple(row)) / MS * (1 + 1e-9)
    return values


def read(problem: PackingProblem, formulation: Formulation, values: Floats) -> list[PackedGroup]:
    """Items of a bucket go to its groups, by id."""
    waiting: dict[int, deque[int]] = {}
    for item in longest_first(problem):
        waiting.setdefault(problem.sizes[item], deque()).append(item)
    held: dict[Slot, list[int]] = {slot: [] for slot in formulation.used}
    for (length, slot), variable in formulation.counts.items():
        held[slot] += [waiting[length].popleft() for _ in range(round(values[variable]))]
    return [PackedGroup(slot[0], tuple(items)) for slot, items in held.items() if items]
