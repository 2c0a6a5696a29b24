"""The compiled fill is the plain one, bit for bit; what either fills is possible and keeps to its durations."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from planner.costs.cost_lines import CostLine
from planner.costs.packing_table import packing_table
from planner.packing.fill import FILL_LIBRARY, PackingArrays, fill, fill_compiled, fill_in_python
from planner.packing.packed_groups import makespan, packing_seconds
from planner.packing.rank_placement import make_nodes
from tests.examples import examples
from tests.groupings import any_packing, one_pool, problems, require_possible, simple

LARGE = {"items": 60, "ranks": (1, 3, 8, 16)}


def order(spans):
    """Micro-batches, longest first."""
    return np.array(
        sorted(range(len(spans)), key=lambda micro_batch: (-spans[micro_batch], micro_batch)), dtype=np.int64
    )


def same(one: PackingArrays | None, other: PackingArrays | None) -> bool:
    if one is None or other is None:
        return one is other
    pairs = zip(arrays(one), arrays(other), strict=True)
    return all(a.dtype == b.dtype and a.tobytes() == b.tobytes() for a, b in pairs)


def arrays(filled: PackingArrays):
    return filled.group_of, filled.shape, filled.micro_batch, filled.first_rank, filled.seconds


@st.composite
def filled_problems(draw):
    """Durations of some possible packing, of too few micro-batches, too tight, or far from anything."""
    problem = draw(problems(**LARGE))
    some = any_packing(problem, draw(st.randoms(use_true_random=False)))
    makespans = [makespan(problem, micro_batch) for micro_batch in some] + [0.0] * draw(st.integers(0, 2))
    stretched = [span * draw(st.sampled_from((0.9, 1.0, 1.0, 1.1, 3.0))) for span in makespans]
    return problem, np.array(draw(st.permutations(stretched))[: draw(st.integers(1, len(stretched)))])


@pytest.mark.slow
@pytest.mark.skipif(FILL_LIBRARY is None, reason="the fill is not compiled here")
@examples(400)
@given(filled_problems())
@example((simple([7], 1, (1,)), np.array([7.0])))
@example((simple([7], 1, (1,)), np.array([np.nextafter(7.0, 0)])))
@example((simple([5] * 40, 8, (1, 2, 4, 8), cap=10, per_node=4), np.array([5.0, 5.0, 2.5])))
@example((one_pool([3, 3, 1], 3, {1: CostLine(), 2: CostLine(), 3: CostLine()}, per_node=2), np.array([0.0])))
def test_compiled_and_plain_give_the_same_bits(given):
    problem, spans = given
    table, nodes = packing_table(problem), make_nodes(problem)
    assert same(fill_compiled(table, nodes, spans, order(spans)), fill_in_python(table, nodes, spans, order(spans)))


@examples(200)
@given(filled_problems())
def test_what_is_filled_is_possible_and_keeps_to_its_durations(given):
    problem, spans = given
    filled = fill(packing_table(problem), make_nodes(problem), spans)
    if filled is None:
        return
    packed = filled.to_packing()
    require_possible(problem, packed)
    assert filled.step_seconds() == pytest.approx(packing_seconds(problem, packed), rel=1e-9)
    assert (filled.makespans() <= spans * (1 + 1e-9) + 1e-12).all()
    assert sorted(filled.makespans()[filled.makespans() > 0]) == pytest.approx(
        sorted(last for micro_batch in packed if (last := makespan(problem, micro_batch)) > 0), rel=1e-9
    )


@given(problems(**LARGE))
def test_endless_durations_take_whatever_one_item_to_a_micro_batch_would(problem):
    """A micro-batch for each item is room enough for all."""
    spans = np.full(len(problem.sizes), 1e6)
    assert fill(packing_table(problem), make_nodes(problem), spans)


def test_a_sequence_goes_where_it_leaves_the_least():
    """Best fit: 30 beside 60 fills a group of 90 or so better than it fills one with 50 in it."""
    problem = simple([60, 50, 30], 2, (1,))
    filled = fill(packing_table(problem), make_nodes(problem), np.array([100.0]))
    assert [group.items for group in filled.to_packing()[0]] == [(0, 2), (1,)]


def test_of_equal_groups_the_first_is_taken_and_of_equal_shapes_the_narrow_one():
    problem = one_pool([4, 4, 2, 2], 4, {1: CostLine(0.0, 1.0), 2: CostLine(0.0, 1.0)})
    filled = fill(packing_table(problem), make_nodes(problem), np.array([6.0]))
    assert [(group.shape, group.items, group.first_rank) for group in filled.to_packing()[0]] == [
        (0, (0, 2), 0),
        (0, (1, 3), 1),
    ]
