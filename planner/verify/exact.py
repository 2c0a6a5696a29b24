"""The exact program of grouping sequences, for problems small enough to be settled: it proves, and it can improve.

With A_kpm: sequence k on virtual group p (a degree and a copy of it) of micro-batch m; g_pm: the group is used;
C_m: how long the micro-batch lasts; o_m: it is used (FlexSP's MILP, arXiv 2412.01523, over all micro-batches together):

    min  Σ_m C_m + row·o_m + step
    Σ_pm A_kpm = 1                                   every sequence once                  each_once
    β_p g_pm + Σ_k (q_p s_k² + l_p s_k) A_kpm ≤ C_m     the micro-batch outlasts its groups   makespans
    Σ_k s_k A_kpm ≤ cap·d_p·g_pm                     tokens, on open groups only          capacities
    Σ_p d_p g_pm ≤ N·o_m                             ranks                                ranks
    g_pm ≥ g_(p+1)m in a degree, C_m ≥ C_(m+1)         of equal solutions, one              symmetry
"""

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

from planner.costs.lines import Line
from planner.costs.sequences import Sequences, cheapest
from planner.solve import Program, ProgramBuilder, solve
from planner.solve.program import Floats

ITEMS, RANKS, BINARIES = 8, 8, 120  # beyond these nothing is proven in reasonable time
UNITS = 1000.0  # of time in a step: solvers' tolerances are absolute, so microseconds would drown in them
NO_TIME = 1e-100  # seconds: less cannot be divided by

GroupOfItems = tuple[int, tuple[int, ...]]  # degree, items


class Slot(NamedTuple):
    """A virtual group in a micro-batch."""

    row: int
    degree: int
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
    slots = sum(min(problem.ranks // degree, len(problem.sizes)) for degree in problem.degrees)
    rows = rows_worth_trying(problem, value)
    return len(problem.sizes) <= ITEMS and problem.ranks <= RANKS and slots * rows * len(problem.sizes) <= BINARIES


def rows_worth_trying(problem: Sequences, value: float) -> int:
    """More micro-batches than this cost more than `value` with all work in perfect balance, or leave some empty."""
    constant = min(line.const for line in problem.lines.values()) + problem.row_seconds
    most = len(problem.sizes)
    if constant <= 0:
        return most
    work = sum(cheapest(problem, item, per_rank=False) for item in problem.sizes) / problem.ranks
    return max(1, min(most, int((value - problem.step_seconds - work) / constant * (1 + 1e-9) + 1e-9)))


def prove(problem: Sequences, value: float, backend: str = "mathopt-highs", effort: int = 3) -> Proof:
    """Solve the exact program; `value` is what a known grouping is worth."""
    unit = value / UNITS if value > NO_TIME else 1.0
    formulation = formulate(in_units(problem, unit), rows_worth_trying(problem, value), value / unit * (1 + 1e-6))
    solution = solve(formulation.program, backend, effort=effort)
    rows = read(problem, formulation, solution.values) if solution.values is not None else ()
    return Proof(rows, min(max(0.0, solution.bound) * unit + problem.step_seconds, value))


def in_units(problem: Sequences, unit: float) -> Sequences:
    """The same problem with times in units of so many seconds."""
    lines = {
        degree: Line(line.quad / unit, line.lin / unit, line.const / unit) for degree, line in problem.lines.items()
    }
    return replace(problem, lines=lines, row_seconds=problem.row_seconds / unit)


def formulate(problem: Sequences, rows: int, longest: float) -> Formulation:
    """The program over `rows` micro-batches, of which none lasts longer than `longest`: what would is left out."""
    b = ProgramBuilder()
    lasts = [b.variable(upper=longest, name=f"C{row}", cost=1.0) for row in range(rows)]
    opened = [b.variable(0, 1, True, problem.row_seconds, f"o{row}") for row in range(rows)]
    slots = [
        Slot(row, degree, copy)
        for row in range(rows)
        for degree in problem.degrees
        if problem.lines[degree].const <= longest
        for copy in range(min(problem.ranks // degree, len(problem.sizes)))
    ]
    used = {slot: b.variable(0, 1, True, name=f"g{slot}") for slot in slots}
    assigned = {
        (item, slot): b.variable(0, 1, True, name=f"A{item},{slot}")
        for item in problem.sizes
        for slot in slots
        if slot.degree in problem.choices(item) and problem.seconds(slot.degree, (item,)) <= longest
    }
    each_once(b, problem, assigned)
    makespans_and_capacities(b, problem, assigned, used, lasts)
    ranks(b, problem, used, opened)
    symmetry(b, used, lasts)
    return Formulation(b.build(), assigned, used)


def each_once(b: ProgramBuilder, problem: Sequences, assigned: dict[tuple[int, Slot], int]) -> None:
    for item in problem.sizes:
        b.row({variable: 1.0 for (k, _), variable in assigned.items() if k == item}, 1.0, 1.0, f"item {item}")


def makespans_and_capacities(
    b: ProgramBuilder,
    problem: Sequences,
    assigned: dict[tuple[int, Slot], int],
    used: dict[Slot, int],
    lasts: list[int],
) -> None:
    for slot, group in used.items():
        line = problem.lines[slot.degree]
        mine = {item: assigned[item, slot] for item in problem.sizes if (item, slot) in assigned}
        sizes = {variable: problem.sizes[item] for item, variable in mine.items()}
        seconds = {variable: line.quad * size * size + line.lin * size for variable, size in sizes.items()}
        b.row({**seconds, group: line.const, lasts[slot.row]: -1.0}, upper=0.0, name=f"makespan {slot}")
        room = -float(min(problem.cap * slot.degree, problem.tokens))
        b.row({**{v: float(size) for v, size in sizes.items()}, group: room}, upper=0.0, name=f"capacity {slot}")


def ranks(b: ProgramBuilder, problem: Sequences, used: dict[Slot, int], opened: list[int]) -> None:
    for row, variable in enumerate(opened):
        held = {group: float(slot.degree) for slot, group in used.items() if slot.row == row}
        b.row({**held, variable: -float(problem.ranks)}, upper=0.0, name=f"ranks {row}")


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
            rows.setdefault(slot.row, []).append((slot.degree, items))
    return tuple(tuple(rows[row]) for row in sorted(rows))
