"""Every packing is in one case, at every depth; and no case is bounded above a packing that is in it."""

from hypothesis import given
from hypothesis import strategies as st

from planner.costs.step.table import Table, make_table
from planner.packing.packed import Packed, worth
from planner.verify.cases import MICRO_BATCHES, Case, Held, left, room, roots, split
from planner.verify.coupled import Whole, seconds
from tests.examples import examples
from tests.groupings import any_packing, problems, simple

LARGE = {"items": 12, "ranks": (1, 2, 4, 6)}
Chance = st.randoms(use_true_random=False)


def contains(case: Case, table: Table, packed: Packed) -> bool:
    """Whether a packing has so many micro-batches, and the longest sequences sit in it as the case says."""
    number = {item: at for at, item in enumerate(table.items.tolist())}
    micro_batches = set()
    for micro_batch in packed:
        longs = [(g.shape, frozenset(number[i] for i in g.items if number[i] < case.depth)) for g in micro_batch]
        micro_batches.add(frozenset(group for group in longs if group[1]))
    said = {frozenset((group.shape, frozenset(group.longs)) for group in micro_batch) for micro_batch in case.groups}
    return said == micro_batches - {frozenset()} and (
        len(packed) == case.rows or (case.more and len(packed) > case.rows)
    )


@examples(150)
@given(problems(**LARGE), Chance)
def test_every_packing_is_in_one_case_at_every_depth(problem, chance):
    packed = any_packing(problem, chance)
    table = make_table(problem)
    cases = list(roots(problem, worth(problem, packed)))
    for depth in range(min(5, len(problem.sizes)) + 1):
        (case,) = [case for case in cases if contains(case, table, packed)]
        assert case.depth == depth
        cases = list(split(table, case)) if depth < len(problem.sizes) else []


@examples(150)
@given(problems(**LARGE), Chance)
def test_no_case_is_bounded_above_a_packing_that_is_in_it(problem, chance):
    packed = any_packing(problem, chance)
    table, value = make_table(problem), worth(problem, packed)
    relaxed = Whole(table, float(table.constants.min()))
    cases = list(roots(problem, value))
    for depth in range(min(5, len(problem.sizes)) + 1):
        (case,) = [case for case in cases if contains(case, table, packed)]
        assert seconds(relaxed, case, 2 * value) <= value * (1 + 1e-9)
        cases = list(split(table, case)) if depth < len(problem.sizes) else []


@given(problems(**LARGE))
def test_children_are_different_and_possible(problem):
    table = make_table(problem)
    cases = list(roots(problem, 1e3))
    for depth in range(min(3, len(problem.sizes))):
        children = [child for case in cases[:20] for child in split(table, case)]
        assert children and len(set(children)) == len(children)
        for child in children:
            assert child.depth == depth + 1 and (child.more or len(child.groups) <= child.rows)
            assert all(min(left(problem, micro_batch)) >= 0 for micro_batch in child.groups)
            assert all(room(table, group) >= 0 for micro_batch in child.groups for group in micro_batch)
        cases = children


def test_numbers_of_micro_batches_are_told_apart_until_they_cost_too_much():
    """Each costs two seconds however little it holds; the tokens need two."""
    problem = simple([100] * 4, 2, (1,), cap=100, row_seconds=2.0)
    assert [(case.rows, case.more) for case in roots(problem, 7.0)] == [(2, False), (3, False), (4, False)]
    last = list(roots(problem, 1e6))[-1]
    assert (last.rows, last.more) == (2 + MICRO_BATCHES, True)


def test_micro_batches_that_cost_nothing_are_one_case():
    problem = simple([100] * 4, 2, (1,), cap=100)
    assert list(roots(problem, 7.0)) == [Case(2, more=True)]


def test_all_places_of_a_sequence_are_named():
    """Beside the longest, with it, or in another micro-batch; on each shape, where there are ranks and room."""
    table = make_table(simple([60, 50], 3, (1, 2), cap=100))
    narrow, wide = (Case(2, False, ((Held(shape, (0,)),),)) for shape in (0, 1))
    assert list(split(table, Case(2, more=False))) == [narrow, wide]
    on_one, on_two = Held(0, (1,)), Held(1, (1,))
    ((first,),) = narrow.groups
    assert {case.groups for case in split(table, narrow)} == {
        ((first, on_one),),
        ((first, on_two),),
        ((first,), (on_one,)),
        ((first,), (on_two,)),
    }
    ((first,),) = wide.groups
    assert {case.groups for case in split(table, wide)} == {
        ((first, on_one),),
        ((first,), (on_one,)),
        ((first,), (on_two,)),
        ((Held(1, (0, 1)),),),
    }
