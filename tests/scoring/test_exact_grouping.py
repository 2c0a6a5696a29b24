"""The exact program is as good as trying every grouping, on every back end, in microseconds as in hours."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.costs.cost_lines import CostLine
from planner.costs.packing_problem import GroupShape, PackingProblem, RankPool
from planner.packing.packed_groups import PackedGroup, packing_seconds
from planner.programs import BACKENDS
from planner.scoring.bounds.exact_grouping import formulate, max_micro_batches, small_enough, solve_grouping
from planner.strategies.sequence_groups import pack
from tests.examples import examples, soaked
from tests.groupings import best, one_pool, problems, require_possible

LINES = {1: CostLine(1e-6, 1e-3, 0.01), 2: CostLine(5e-7, 6e-4, 0.02), 4: CostLine(2.5e-7, 3.5e-4, 0.02)}
FREE = {1: CostLine(0.0, 0.01, 0.0), 2: CostLine(0.0, 0.005, 0.0)}
TOYS = {
    "one": one_pool([10], 1, {1: LINES[1]}, 100, micro_batch_seconds=0.1, step_seconds=0.2),
    "two ranks": one_pool(
        {3: 90, 5: 80, 9: 10, 11: 60}, 2, {d: LINES[d] for d in (1, 2)}, 100, micro_batch_seconds=0.05
    ),
    "long and short": one_pool([350, 40, 60], 4, LINES, 100, micro_batch_seconds=0.01),
    "fixed": one_pool([50, 40, 90], 4, LINES, 100, micro_batch_seconds=0.01, fixed={0: 4, 1: 1}),
    "no constants": one_pool([90, 80, 30], 2, FREE, 90),
    "two pools": PackingProblem(
        {0: 90, 1: 80, 2: 30},
        (RankPool(0, 2, 2), RankPool(2, 1, 1)),
        (GroupShape(1, 0, 100, LINES[1]), GroupShape(1, 1, 60, LINES[2]), GroupShape(2, 0, 100, LINES[2])),
        micro_batch_seconds=0.01,
        step_seconds=0.0,
        fixed={1: 1},
    ),
}


def grouping(proof):
    return tuple(tuple(PackedGroup(shape, items) for shape, items in row) for row in proof.micro_batches)


OTHERS = [name for name in BACKENDS if name != "brute"]
USUAL = "mathopt-highs"
OFTEN = ("two ranks", "two pools")  # on every back end; the others on the usual one, and in the soak on all


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "backend"),
    soaked(
        [(name, backend) for name in TOYS for backend in OTHERS],
        [(name, backend) for name in TOYS for backend in OTHERS if name in OFTEN or backend == USUAL],
    ),
)
@pytest.mark.every(3)
def test_every_back_end_finds_the_best_grouping(name, backend):
    problem = TOYS[name]
    least = best(problem)
    proof = solve_grouping(problem, least * 1.1, backend)
    assert proof.bound == pytest.approx(least, rel=1e-6)
    assert packing_seconds(problem, grouping(proof)) == pytest.approx(least, rel=1e-6)


@pytest.mark.slow
@examples(20)
@given(st.sampled_from((1e-6, 1.0, 3600.0)).flatmap(lambda scale: problems(items=4, scale=scale, nodes=False)))
def test_what_is_proven_is_the_best(problem):
    """Where all ranks of a pool are on one node."""
    least = best(problem)
    packed, _ = pack(problem, 2)
    require_possible(problem, packed)
    value = packing_seconds(problem, packed)
    proof = solve_grouping(problem, value)
    assert least * (1 - 1e-5) <= proof.bound <= least * (1 + 1e-7)
    if small_enough(problem, value):
        assert value == pytest.approx(least, rel=1e-6)


@examples(15)
@given(problems(items=4))
def test_what_is_proven_holds_where_nodes_bind(problem):
    least = best(problem)
    packed, _ = pack(problem, 1)
    require_possible(problem, packed)
    assert (
        solve_grouping(problem, packing_seconds(problem, packed)).bound
        <= least * (1 + 1e-7)
        <= packing_seconds(problem, packed) * (1 + 2e-7)
    )


def test_a_grouping_that_no_nodes_can_hold_is_not_taken():
    """Two groups of three lie on six ranks, but not on three nodes of two, where they take two micro-batches."""
    lines = {1: CostLine(0.0, 1.0, 0.0), 3: CostLine(0.0, 0.3, 0.0)}
    sizes = {0: 100, 1: 100}
    free, bound = (one_pool(sizes, 6, lines, 100, fixed={0: 3, 1: 3}, per_node=per_node) for per_node in (6, 2))
    assert [packing_seconds(problem, pack(problem, 2)[0]) for problem in (free, bound)] == pytest.approx([30.0, 60.0])
    assert best(bound) == pytest.approx(60.0)
    assert solve_grouping(bound, 60.0).bound == pytest.approx(30.0)


@given(problems(items=4))
def test_a_tighter_value_leaves_fewer_micro_batches_to_try(problem):
    least = best(problem)
    tight, loose = max_micro_batches(problem, least), max_micro_batches(problem, 2 * least)
    assert 1 <= tight <= loose <= len(problem.sizes)
    assert small_enough(problem, least) or not small_enough(problem, 2 * least)


def test_names_of_the_program_are_its_own():
    program = formulate(TOYS["two ranks"], 2, 10.0).program
    assert len(set(program.names)) == program.variables and len(set(program.row_names)) == program.rows


@pytest.mark.parametrize(("dear", "cap"), [(1e12, 100), (1.0, 2**40), (1e12, 2**40), (0.0, 100), (1e-300, 100)])
def test_absurd_prices_and_rooms_do_no_harm(dear, cap):
    """What costs more than is known to suffice is left out, so that no coefficient outgrows a solver."""
    lines = {1: CostLine(0.0, 1e-4, 0.0), 2: CostLine(dear, dear, dear)}
    problem = one_pool([90, 80, 30], 2, lines, cap)
    value = packing_seconds(problem, pack(problem, 1)[0])
    assert solve_grouping(problem, value).bound == pytest.approx(best(problem), rel=1e-6, abs=1e-200)
