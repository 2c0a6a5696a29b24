"""The exact program is as good as trying every grouping, on every back end, in microseconds as in hours."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.costs.lines import Line
from planner.costs.sequences import Sequences
from planner.packing.packed import PackedGroup, worth
from planner.solve import BACKENDS
from planner.strategies.sequence_groups import pack
from planner.verify.exact import formulate, prove, rows_worth_trying, small_enough
from tests.groupings import best, problems

LINES = {1: Line(1e-6, 1e-3, 0.01), 2: Line(5e-7, 6e-4, 0.02), 4: Line(2.5e-7, 3.5e-4, 0.02)}
FREE = {1: Line(0.0, 0.01, 0.0), 2: Line(0.0, 0.005, 0.0)}
TOYS = {
    "one": Sequences({0: 10}, 1, (1,), {1: LINES[1]}, 100, 0.1, 0.2, {}),
    "two ranks": Sequences({3: 90, 5: 80, 9: 10, 11: 60}, 2, (1, 2), {d: LINES[d] for d in (1, 2)}, 100, 0.05, 0.0, {}),
    "long and short": Sequences({0: 350, 1: 40, 2: 60}, 4, (1, 2, 4), LINES, 100, 0.01, 0.0, {}),
    "fixed": Sequences({0: 50, 1: 40, 2: 90}, 4, (1, 2, 4), LINES, 100, 0.01, 0.0, {0: 4, 1: 1}),
    "no constants": Sequences({0: 90, 1: 80, 2: 30}, 2, (1, 2), FREE, 90, 0.0, 0.0, {}),
}  # fmt: skip


def grouping(proof):
    return tuple(tuple(PackedGroup(degree, items) for degree, items in row) for row in proof.rows)


@pytest.mark.parametrize("backend", [name for name in BACKENDS if name != "brute"])
@pytest.mark.parametrize("name", TOYS)
def test_every_back_end_finds_the_best_grouping(name, backend):
    problem = TOYS[name]
    least = best(problem)
    proof = prove(problem, least * 1.1, backend)
    assert proof.bound == pytest.approx(least, rel=1e-6)
    assert worth(problem, grouping(proof)) == pytest.approx(least, rel=1e-6)


@settings(max_examples=15)
@given(st.sampled_from((1e-6, 1.0, 3600.0)).flatmap(lambda scale: problems(items=4, scale=scale)))
def test_what_is_proven_is_the_best(problem):
    least = best(problem)
    packed, _ = pack(problem, 2)
    value = worth(problem, packed)
    proof = prove(problem, value)
    assert least * (1 - 1e-5) <= proof.bound <= least * (1 + 1e-7)
    if small_enough(problem, value):
        assert value == pytest.approx(least, rel=1e-6)


@given(problems(items=4))
def test_a_tighter_value_leaves_fewer_micro_batches_to_try(problem):
    least = best(problem)
    tight, loose = rows_worth_trying(problem, least), rows_worth_trying(problem, 2 * least)
    assert 1 <= tight <= loose <= len(problem.sizes)
    assert small_enough(problem, least) or not small_enough(problem, 2 * least)


def test_names_of_the_program_are_its_own():
    program = formulate(TOYS["two ranks"], 2, 10.0).program
    assert len(set(program.names)) == program.variables and len(set(program.row_names)) == program.rows


@pytest.mark.parametrize(("dear", "cap"), [(1e12, 100), (1.0, 2**40), (1e12, 2**40), (0.0, 100), (1e-300, 100)])
def test_absurd_prices_and_rooms_do_no_harm(dear, cap):
    """What costs more than is known to suffice is left out, so that no coefficient outgrows a solver."""
    lines = {1: Line(0.0, 1e-4, 0.0), 2: Line(dear, dear, dear)}
    problem = Sequences({0: 90, 1: 80, 2: 30}, 2, (1, 2), lines, cap, 0.0, 0.0, {})
    value = worth(problem, pack(problem, 1)[0])
    assert prove(problem, value).bound == pytest.approx(best(problem), rel=1e-6, abs=1e-200)
