"""The exact program of grouping sequences, for problems small enough to be settled: it proves, and it can improve.

With A_kpm: sequence k on virtual group p (a shape and a copy of it) of micro-batch m; g_pm: the group is used;
C_m: how long the micro-batch lasts; o_m: it is used (FlexSP's MILP, arXiv 2412.01523, over all micro-batches together):

    min  Σ_m C_m + row·o_m + step
    Σ_pm A_kpm = 1                                   every sequence once                  each_once
    β_p g_pm + Σ_k (q_p s_k² + l_p s_k) A_kpm ≤ C_m     the micro-batch outlasts its groups   makespans
    Σ_k s_k A_kpm ≤ cap·d_p·g_pm                     tokens, on open groups only          capacities
    Σ_p d_p g_pm ≤ N·o_m                             ranks of each pool                   ranks
    g_pm ≥ g_(p+1)m in a shape, C_m ≥ C_(m+1)          of equal solutions, one              symmetry

It places groups on any ranks of a pool: where degrees do not fill the nodes, what it finds need not be possible, and
what it proves holds all the same.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from planner.costs.step.sequences import Sequences
from planner.costs.step.table import make_table
from planner.solve import Program, ProgramBuilder, solve
from planner.solve.program import Floats

ITEMS, RANKS, BINARIES = 8, 8, 120  # beyond these nothing is proven in reasonable time
EFFORT = 3  # of the back end
UNITS = 1000.0  # of time in a step: solvers' tolerances are absolute, so microseconds would drown in them
NO_TIME = 1e-100  # seconds: less cannot be divided by

GroupOfItems = tuple[int, tuple[int, ...]]  # shape, items


class Slot(NamedTuple):
    """A virtual group in a micro-batch."""

    row: int
    shape: int
    copy: int


@dataclass(frozen=True, slots=True)
class Formulation:
    """The program, and which variable is what."""

    program: Program
    assigned: dict[tuple[int, Slot], int]  # A
    used: dict[Slot, int]  # g


@dataclass(frozen=True, slots=True)
class Proof:
    """The best grouping found, if any is better than what was known, and what none can beat."""

    rows: tuple[tuple[GroupOfItems, ...], ...]
    bound: float  # seconds of the step


def small_enough(problem: Sequences, value: float) -> bool:
    """Whether the exact program can be expected to settle the problem."""
    if len(problem.sizes) > ITEMS or problem.ranks > RANKS:
        return False
    slots = sum(copies(problem, shape) for shape in range(len(problem.shapes)))
    return slots * rows_worth_trying(problem, value) * len(problem.sizes) <= BINARIES


def copies(problem: Sequences, shape: int) -> int:
    """How many groups of a shape a micro-batch can have at most."""
    chosen = problem.shapes[shape]
    return min(problem.pools[chosen.pool].ranks // chosen.degree, len(problem.sizes))


def rows_worth_trying(problem: Sequences, value: float) -> int:
    """More micro-batches than this cost more than `value` with all work in perfect balance, or leave some empty."""
    constant, most = problem.row_constant, len(problem.sizes)
    if constant <= 0:
        return most
    work = make_table(problem).work / problem.ranks
    return max(1, min(most, int((value - problem.step_seconds - work) / constant * (1 + 1e-9) + 1e-9)))


def prove(problem: Sequences, value: float, backend: str = "mathopt-highs") -> Proof:
    """Solve the exact program; `value` is what a known grouping is worth."""
    unit = value / UNITS if value > NO_TIME else 1.0
    formulation = formulate(problem, rows_worth_trying(problem, value), value * (1 + 1e-6), unit)
    solution = solve(formulation.program, backend, effort=EFFORT)
    rows = read(problem, formulation, solution.values) if solution.values is not None else ()
    return Proof(rows, min(max(0.0, solution.bound) * unit + problem.step_seconds, value))


def formulate(problem: Sequences, rows: int, longest: float, unit: float = 1.0) -> Formulation:
    """The program over `rows` micro-batches, of which none lasts longer than `longest`: what would is left out.

    Its times are in units of `unit` seconds.
    """
    b = ProgramBuilder()
    lasts = [b.variable(upper=longest / unit, name=f"C{row}", cost=1.0) for row in range(rows)]
    opened = [b.variable(0, 1, True, problem.row_seconds / unit, f"o{row}") for row in range(rows)]
    slots = [
        Slot(row, number, copy)
        for row in range(rows)
        for number, shape in enumerate(problem.shapes)
        if shape.line.const <= longest
        for copy in range(copies(problem, number))
    ]
    used = {slot: b.variable(0, 1, True, name=f"g{slot}") for slot in slots}
    assigned = {
        (item, slot): b.variable(0, 1, True, name=f"A{item},{slot}")
        for item in problem.sizes
        for slot in slots
        if slot.shape in problem.choices(item) and problem.seconds(slot.shape, (item,)) <= longest
    }
    each_once(b, problem, assigned)
    makespans(b, problem, assigned, used, lasts, unit)
    capacities(b, problem, assigned, used)
    ranks(b, problem, used, opened)
    symmetry(b, used, lasts)
    return Formulation(b.build(), assigned, used)


def each_once(b: ProgramBuilder, problem: Sequences, assigned: dict[tuple[int, Slot], int]) -> None:
    for item in problem.sizes:
        b.row({variable: 1.0 for (k, _), variable in assigned.items() if k == item}, 1.0, 1.0, f"item {item}")


def makespans(
    b: ProgramBuilder,
    problem: Sequences,
    assigned: dict[tuple[int, Slot], int],
    used: dict[Slot, int],
    lasts: list[int],
    unit: float,
) -> None:
    for slot, group in used.items():
        line = problem.shapes[slot.shape].line
        mine = {item: assigned[item, slot] for item in problem.sizes if (item, slot) in assigned}
        seconds = {variable: line.of(problem.sizes[item]) / unit for item, variable in mine.items()}
        b.row({**seconds, group: line.const / unit, lasts[slot.row]: -1.0}, upper=0.0, name=f"makespan {slot}")


def capacities(
    b: ProgramBuilder, problem: Sequences, assigned: dict[tuple[int, Slot], int], used: dict[Slot, int]
) -> None:
    for slot, group in used.items():
        sizes = {assigned[item, slot]: float(s) for item, s in problem.sizes.items() if (item, slot) in assigned}
        room = -float(min(problem.shapes[slot.shape].room, problem.tokens))
        b.row({**sizes, group: room}, upper=0.0, name=f"capacity {slot}")


def ranks(b: ProgramBuilder, problem: Sequences, used: dict[Slot, int], opened: list[int]) -> None:
    for row, variable in enumerate(opened):
        for number, pool in enumerate(problem.pools):
            shapes = {slot: problem.shapes[slot.shape] for slot in used if slot.row == row}
            held = {used[slot]: float(shape.degree) for slot, shape in shapes.items() if shape.pool == number}
            b.row({**held, variable: -float(pool.ranks)}, upper=0.0, name=f"ranks {row} of pool {number}")


def symmetry(b: ProgramBuilder, used: dict[Slot, int], lasts: list[int]) -> None:
    for slot, group in used.items():
        following = used.get(slot._replace(copy=slot.copy + 1))
        if following is not None:
            b.row({group: 1.0, following: -1.0}, lower=0.0, name=f"copies {slot}")
    for one, two in pairwise(lasts):
        b.row({one: 1.0, two: -1.0}, lower=0.0, name="order")


def read(problem: Sequences, formulation: Formulation, values: Floats) -> tuple[tuple[GroupOfItems, ...], ...]:
    """The groups that the values say, empty ones left out."""
    rows: dict[int, list[GroupOfItems]] = {}
    for slot in formulation.used:
        chosen = {
            item for (item, at), variable in formulation.assigned.items() if at == slot and values[variable] > 0.5
        }
        items = tuple(item for item in problem.sizes if item in chosen)
        if items:
            rows.setdefault(slot.row, []).append((slot.shape, items))
    return tuple(tuple(rows[row]) for row in sorted(rows))
