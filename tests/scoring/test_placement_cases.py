"""Every packing is in one case, at every depth; and no case is bounded above a packing that is in it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.costs.packing_table import PackingTable, packing_table
from planner.packing.packed_groups import Packing, packing_seconds
from planner.scoring.bounds.coupled_bound import (
    COUNTS_DISTINGUISHED,
    CoupledProblem,
    LongGroup,
    PlacementCase,
    placement_case_bound,
    ranks_left,
    root_cases,
    split_case,
    tokens_left,
)
from tests.examples import examples
from tests.groupings import any_packing, problems, simple

LARGE = {"items": 12, "ranks": (1, 2, 4, 6)}
Chance = st.randoms(use_true_random=False)


def contains(case: PlacementCase, table: PackingTable, packed: Packing) -> bool:
    """Whether a packing has so many micro-batches, and the longest sequences sit in it as the case says."""
    number = {item: at for at, item in enumerate(table.items.tolist())}
    micro_batches = set()
    for micro_batch in packed:
        longs = [
            (g.shape, frozenset(number[i] for i in g.items if number[i] < case.sequences_placed)) for g in micro_batch
        ]
        micro_batches.add(frozenset(group for group in longs if group[1]))
    said = {
        frozenset((group.shape, frozenset(group.sequences)) for group in micro_batch) for micro_batch in case.groups
    }
    return said == micro_batches - {frozenset()} and (
        len(packed) == case.micro_batches or (case.or_more and len(packed) > case.micro_batches)
    )


@examples(150)
@given(problems(**LARGE), Chance)
def test_every_packing_is_in_one_case_at_every_depth(problem, chance):
    packed = any_packing(problem, chance)
    table = packing_table(problem)
    cases = list(root_cases(problem, packing_seconds(problem, packed)))
    for depth in range(min(5, len(problem.sizes)) + 1):
        (case,) = [case for case in cases if contains(case, table, packed)]
        assert case.sequences_placed == depth
        cases = list(split_case(table, case)) if depth < len(problem.sizes) else []


@pytest.mark.slow
@examples(150)
@given(problems(**LARGE), Chance)
def test_no_case_is_bounded_above_a_packing_that_is_in_it(problem, chance):
    packed = any_packing(problem, chance)
    table, value = packing_table(problem), packing_seconds(problem, packed)
    relaxed = CoupledProblem(table, float(table.constants.min()))
    cases = list(root_cases(problem, value))
    for depth in range(min(5, len(problem.sizes)) + 1):
        (case,) = [case for case in cases if contains(case, table, packed)]
        assert placement_case_bound(relaxed, case, 2 * value) <= value * (1 + 1e-9)
        cases = list(split_case(table, case)) if depth < len(problem.sizes) else []


@given(problems(**LARGE))
def test_children_are_different_and_possible(problem):
    table = packing_table(problem)
    cases = list(root_cases(problem, 1e3))
    for depth in range(min(3, len(problem.sizes))):
        children = [child for case in cases[:20] for child in split_case(table, case)]
        assert children and len(set(children)) == len(children)
        for child in children:
            assert child.sequences_placed == depth + 1 and (child.or_more or len(child.groups) <= child.micro_batches)
            assert all(min(ranks_left(problem, micro_batch)) >= 0 for micro_batch in child.groups)
            assert all(tokens_left(table, group) >= 0 for micro_batch in child.groups for group in micro_batch)
        cases = children


def test_numbers_of_micro_batches_are_told_apart_until_they_cost_too_much():
    """Each costs two seconds however little it holds; the tokens need two."""
    problem = simple([100] * 4, 2, (1,), cap=100, micro_batch_seconds=2.0)
    assert [(case.micro_batches, case.or_more) for case in root_cases(problem, 7.0)] == [
        (2, False),
        (3, False),
        (4, False),
    ]
    last = list(root_cases(problem, 1e6))[-1]
    assert (last.micro_batches, last.or_more) == (2 + COUNTS_DISTINGUISHED, True)


def test_micro_batches_that_cost_nothing_are_one_case():
    problem = simple([100] * 4, 2, (1,), cap=100)
    assert list(root_cases(problem, 7.0)) == [PlacementCase(2, or_more=True)]


def test_all_places_of_a_sequence_are_named():
    """Beside the longest, with it, or in another micro-batch; on each shape, where there are ranks and room."""
    table = packing_table(simple([60, 50], 3, (1, 2), cap=100))
    narrow, wide = (PlacementCase(2, False, ((LongGroup(shape, (0,)),),)) for shape in (0, 1))
    assert list(split_case(table, PlacementCase(2, or_more=False))) == [narrow, wide]
    on_one, on_two = LongGroup(0, (1,)), LongGroup(1, (1,))
    ((first,),) = narrow.groups
    assert {case.groups for case in split_case(table, narrow)} == {
        ((first, on_one),),
        ((first, on_two),),
        ((first,), (on_one,)),
        ((first,), (on_two,)),
    }
    ((first,),) = wide.groups
    assert {case.groups for case in split_case(table, wide)} == {
        ((first, on_one),),
        ((first,), (on_one,)),
        ((first,), (on_two,)),
        ((LongGroup(1, (0, 1)),),),
    }
