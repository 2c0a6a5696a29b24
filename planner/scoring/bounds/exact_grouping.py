"""The exact integer program of grouping sequences, for problems small enough to be solved to optimality.

With A_kpm: sequence k on virtual group p (a shape and a copy of it) of micro-batch m; g_pm: the group is used;
C_m: seconds of the micro-batch; o_m: it is used (FlexSP's MILP, arXiv 2412.01523, over all micro-batches together):

    min  Σ_m C_m + constant·o_m + step
    Σ_pm A_kpm = 1                                      every sequence once
    β_p g_pm + Σ_k (q_p s_k² + l_p s_k) A_kpm ≤ C_m     a micro-batch lasts as long as its groups
    Σ_k s_k A_kpm ≤ cap·d_p·g_pm                        tokens, on used groups only
    Σ_p d_p g_pm ≤ N·o_m                                ranks of each pool
    g_pm ≥ g_(p+1)m within a shape, C_m ≥ C_(m+1)       symmetry breaking

It places groups on any ranks of a pool: where degrees do not fill the nodes, the grouping found need not be possible,
but the bound holds all the same.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from planner.costs import PackingProblem, packing_table
from planner.programs import Floats, Program, ProgramBuilder, solve

ITEMS, RANKS, BINARIES = 8, 8, 120  # beyond these sizes nothing is proven in reasonable time
EFFORT = 3  # of the back end
UNITS = 1000.0  # time units per step: solvers' tolerances are absolute, and would exceed microseconds
NO_TIME = 1e-100  # seconds: the least that is divided by

GroupOfItems = tuple[int, tuple[int, ...]]  # shape, items


class Slot(NamedTuple):
    """A virtual group in a micro-batch. Its text is part of the names in the program."""

    micro_batch: int
    shape: int
    copy: int


@dataclass(frozen=True, slots=True)
class Formulation:
    """The program, and the meaning of its variables."""

    program: Program
    assigned: dict[tuple[int, Slot], int]  # A
    used: dict[Slot, int]  # g


@dataclass(frozen=True, slots=True)
class ExactGrouping:
    """The best grouping found, empty if none beats the known one, and a lower bound over all groupings."""

    micro_batches: tuple[tuple[GroupOfItems, ...], ...]
    bound: float  # seconds of the step


def small_enough(problem: PackingProblem, value: float) -> bool:
    """Whether the exact program can be expected to solve the problem to optimality."""
    if len(problem.sizes) > ITEMS or problem.ranks > RANKS:
        return False
    slots = sum(max_groups(problem, shape) for shape in range(len(problem.shapes)))
    return slots * max_micro_batches(problem, value) * len(problem.sizes) <= BINARIES


def max_groups(problem: PackingProblem, shape: int) -> int:
    """The most groups of a shape that a micro-batch can have."""
    chosen = problem.shapes[shape]
    return min(problem.pools[chosen.pool].ranks // chosen.degree, len(problem.sizes))


def max_micro_batches(problem: PackingProblem, value: float) -> int:
    """The most micro-batches to try: more cost over `value` seconds in perfect balance, or leave some empty."""
    constant, most = problem.least_micro_batch_seconds, len(problem.sizes)
    if constant <= 0:
        return most
    work = packing_table(problem).least_rank_seconds / problem.ranks
    return max(1, min(most, int((value - problem.step_seconds - work) / constant * (1 + 1e-9) + 1e-9)))


def solve_grouping(problem: PackingProblem, value: float, backend: str = "mathopt-highs") -> ExactGrouping:
    """Solve the exact program; `value`: seconds of a known grouping."""
    unit = value / UNITS if value > NO_TIME else 1.0
    formulation = formulate(problem, max_micro_batches(problem, value), value * (1 + 1e-6), unit)
    solution = solve(formulation.program, backend, effort=EFFORT)
    micro_batches = groups_of_solution(problem, formulation, solution.values) if solution.values is not None else ()
    return ExactGrouping(micro_batches, min(max(0.0, solution.bound) * unit + problem.step_seconds, value))


def formulate(problem: PackingProblem, micro_batches: int, longest: float, unit: float = 1.0) -> Formulation:
    """The program over so many micro-batches of at most `longest` seconds: variables that exceed it are left out.

    Its times are in units of `unit` seconds.
    """
    b = ProgramBuilder()
    makespan_variables = [
        b.variable(upper=longest / unit, name=f"C{number}", cost=1.0) for number in range(micro_batches)
    ]
    opened = [
        b.variable(0, 1, True, problem.micro_batch_seconds / unit, f"o{number}") for number in range(micro_batches)
    ]
    slots = [
        Slot(micro_batch, number, copy)
        for micro_batch in range(micro_batches)
        for number, shape in enumerate(problem.shapes)
        if shape.line.const <= longest
        for copy in range(max_groups(problem, number))
    ]
    used = {slot: b.variable(0, 1, True, name=f"g{slot}") for slot in slots}
    assigned = {
        (item, slot): b.variable(0, 1, True, name=f"A{item},{slot}")
        for item in problem.sizes
        for slot in slots
        if slot.shape in problem.choices(item) and problem.seconds(slot.shape, (item,)) <= longest
    }
    add_assignment_rows(b, problem, assigned)
    add_makespan_rows(b, problem, assigned, used, makespan_variables, unit)
    add_capacity_rows(b, problem, assigned, used)
    add_rank_rows(b, problem, used, opened)
    add_symmetry_rows(b, used, makespan_variables)
    return Formulation(b.build(), assigned, used)


def add_assignment_rows(b: ProgramBuilder, problem: PackingProblem, assigned: dict[tuple[int, Slot], int]) -> None:
    """Every sequence is assigned once."""
    for item in problem.sizes:
        b.row({variable: 1.0 for (k, _), variable in assigned.items() if k == item}, 1.0, 1.0, f"item {item}")


def add_makespan_rows(
    b: ProgramBuilder,
    problem: PackingProblem,
    assigned: dict[tuple[int, Slot], int],
    used: dict[Slot, int],
    makespan_variables: list[int],
    unit: float,
) -> None:
    """A micro-batch lasts as long as each of its groups."""
    for slot, group in used.items():
        line = problem.shapes[slot.shape].line
        mine = {item: assigned[item, slot] for item in problem.sizes if (item, slot) in assigned}
        seconds = {variable: line.item_seconds(problem.sizes[item]) / unit for item, variable in mine.items()}
        b.row(
            {**seconds, group: line.const / unit, makespan_variables[slot.micro_batch]: -1.0},
            upper=0.0,
            name=f"makespan {slot}",
        )


def add_capacity_rows(
    b: ProgramBuilder, problem: PackingProblem, assigned: dict[tuple[int, Slot], int], used: dict[Slot, int]
) -> None:
    """Tokens fit into their groups, and only into used ones."""
    for slot, group in used.items():
        sizes = {assigned[item, slot]: float(s) for item, s in problem.sizes.items() if (item, slot) in assigned}
        room = -float(min(problem.shapes[slot.shape].room, problem.tokens))
        b.row({**sizes, group: room}, upper=0.0, name=f"capacity {slot}")


def add_rank_rows(b: ProgramBuilder, problem: PackingProblem, used: dict[Slot, int], opened: list[int]) -> None:
    """Used groups have ranks of their pool, and only in used micro-batches."""
    for micro_batch, variable in enumerate(opened):
        for number, pool in enumerate(problem.pools):
            shapes = {slot: problem.shapes[slot.shape] for slot in used if slot.micro_batch == micro_batch}
            degrees = {used[slot]: float(shape.degree) for slot, shape in shapes.items() if shape.pool == number}
            b.row({**degrees, variable: -float(pool.ranks)}, upper=0.0, name=f"ranks {micro_batch} of pool {number}")


def add_symmetry_rows(b: ProgramBuilder, used: dict[Slot, int], makespan_variables: list[int]) -> None:
    """Of equivalent solutions keep one: copies of a shape in order, micro-batches slowest first."""
    for slot, group in used.items():
        following = used.get(slot._replace(copy=slot.copy + 1))
        if following is not None:
            b.row({group: 1.0, following: -1.0}, lower=0.0, name=f"copies {slot}")
    for one, two in pairwise(makespan_variables):
        b.row({one: 1.0, two: -1.0}, lower=0.0, name="order")


def groups_of_solution(
    problem: PackingProblem, formulation: Formulation, values: Floats
) -> tuple[tuple[GroupOfItems, ...], ...]:
    """The groups of a solution, by micro-batch; empty ones are left out."""
    micro_batches: dict[int, list[GroupOfItems]] = {}
    for slot in formulation.used:
        chosen = {
            item for (item, at), variable in formulation.assigned.items() if at == slot and values[variable] > 0.5
        }
        items = tuple(item for item in problem.sizes if item in chosen)
        if items:
            micro_batches.setdefault(slot.micro_batch, []).append((slot.shape, items))
    return tuple(tuple(micro_batches[number]) for number in sorted(micro_batches))
