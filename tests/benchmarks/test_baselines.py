"""Baselines are possible packings, and what each is known for holds; ours is never worse on batches of its kind."""

import random
from itertools import combinations_with_replacement, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.baselines import BASELINES
from benchmarks.baselines.best_fit import best_fit_bins
from benchmarks.baselines.dhp import widened
from benchmarks.baselines.flexsp import blast, fewest_chunks, flexsp
from benchmarks.baselines.flexsp_program import bucket_ends, formulate, solve_micro_batch
from benchmarks.baselines.karmarkar_karp import partition
from benchmarks.baselines_table import ours, require_legal
from planner.costs.cost_lines import CostLine
from planner.costs.packing_problem import GroupShape, PackingProblem, RankPool
from planner.packing.packed_groups import PackedGroup, makespan, packing_seconds
from planner.programs import solve
from planner.scoring.bounds.step_bounds import packing_bound
from tests.examples import examples

NODE = 8


def problem_of(sizes, ranks, cap=1000, degrees=(1, 2, 4, 8, 16), const=0.1) -> PackingProblem:
    """Compute spread over the degree; exchanges that slow groups down beyond a node."""
    shapes = tuple(
        GroupShape(d, 0, cap, CostLine(1e-7 / d, (1e-4 + (4e-4 if d > NODE else 1e-5 if d > 1 else 0)) / d, const))
        for d in degrees
        if d <= ranks
    )
    return PackingProblem(dict(enumerate(sizes)), (RankPool(0, ranks, NODE),), shapes, 0.01, 0.02, {})


@st.composite
def problems(draw) -> PackingProblem:
    ranks = draw(st.sampled_from((1, 2, 4, 8, 16, 32)))
    widest = min(ranks, 16)
    sizes = draw(st.lists(st.integers(1, 1000 * widest), min_size=1, max_size=30))
    least = draw(st.sampled_from([d for d in (1, 2, 4) if d <= ranks]))
    degrees = tuple(d for d in (1, 2, 4, 8, 16) if d >= least)
    return problem_of(sizes, ranks, degrees=degrees, const=draw(st.sampled_from((0.0, 0.1, 5.0))))


def log_normal(ranks: int, seed: int) -> PackingProblem:
    chance = random.Random(seed)
    widest = 1000 * min(ranks, 16)
    return problem_of([min(widest, max(1, int(chance.lognormvariate(5.5, 1.3)))) for _ in range(8 * ranks)], ranks)


@pytest.mark.slow
@pytest.mark.parametrize("name", BASELINES)
@examples(60)
@given(problems())
def test_packings_are_possible_and_above_the_bound(name, problem):
    packed = BASELINES[name](problem)
    assert packed is not None
    require_legal(problem, packed, name)
    assert packing_seconds(problem, packed) >= packing_bound(problem, packing_seconds(problem, packed)).seconds * (
        1 - 1e-9
    )
    assert packed == BASELINES[name](problem)


@examples(8)
@given(problems())
def test_flexsp_is_possible_and_above_the_bound(problem):
    packed = flexsp(problem, seconds=0.5)
    if packed is not None:
        require_legal(problem, packed, "FlexSP")
        assert packing_seconds(problem, packed) >= packing_bound(problem, packing_seconds(problem, packed)).seconds * (
            1 - 1e-9
        )


@pytest.mark.parametrize("ranks", [8, 32])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.every(3)
def test_ours_is_no_worse_than_any_of_them(ranks, seed):
    problem = log_normal(ranks, seed)
    packed = ours(problem)
    assert packed is not None
    for name, baseline in BASELINES.items():
        other = baseline(problem)
        assert other is not None and packing_seconds(problem, packed) <= packing_seconds(problem, other) * (1 + 1e-9), (
            name
        )


def test_what_holds_nothing_packs_nothing():
    """The balanced one is asked elsewhere."""
    problem = problem_of([5000], 4)
    for name in ("static degree", "best-fit homogeneous", "Karmarkar-Karp", "Megatron hybrid CP", "DHP"):
        assert BASELINES[name](problem) is None


def test_best_fit_takes_the_fullest_bin_that_has_room():
    assert best_fit_bins(problem_of([60, 50, 40, 50], 1), [0, 1, 2, 3], 100) == [(0, 2), (1, 3)]


@given(st.lists(st.integers(1, 40), min_size=1, max_size=7), st.integers(1, 3))
def test_largest_differencing_partitions_and_is_within_its_bound(weights, parts):
    """For two parts largest differencing is within 7/6 of the best (Fischetti and Martello 1987)."""
    bins = partition(dict(enumerate(map(float, weights))), parts)
    assert sorted(item for held in bins for item in held) == list(range(len(weights)))
    assert len(bins) <= parts and all(bins)
    sums = [sum(weights[item] for item in held) for held in bins]
    if parts == 2:
        best = min(
            max(sum(w for w, side in zip(weights, sides, strict=True) if side == k) for k in (0, 1))
            for sides in product((0, 1), repeat=len(weights))
        )
        assert max(sums) <= best * 7 / 6 + 1e-9


def test_largest_differencing_of_the_textbook_case():
    """8, 7, 6, 5, 4 in two: differences 8−7, 6−5, then 4−1, 3−1 leave 2, so 16 and 14."""
    bins = partition(dict(enumerate([8.0, 7.0, 6.0, 5.0, 4.0])), 2)
    assert sorted(sum((8, 7, 6, 5, 4)[item] for item in held) for held in bins) == [14, 16]


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=3), st.integers(3, 6))
def test_dhp_gives_ranks_as_trying_all_degrees_would(sizes, ranks):
    problem = problem_of(sizes, 2 * ranks, degrees=(1, 2, 3, 4, 5))
    row = [PackedGroup(0, (item,)) for item in problem.sizes]
    wide = widened(problem, row)
    assert sum(problem.shapes[group.shape].degree for group in wide) <= problem.ranks
    best = min(
        max(problem.seconds(shape, group.items) for shape, group in zip(shapes, row, strict=True))
        for shapes in product(range(len(problem.shapes)), repeat=len(row))
        if sum(problem.shapes[shape].degree for shape in shapes) <= problem.ranks
    )
    assert makespan(problem, tuple(wide)) == pytest.approx(best)


@given(st.lists(st.integers(1, 100), min_size=1, max_size=8), st.integers(1, 4))
def test_buckets_add_as_few_tokens_as_any_choice_of_ends(sizes, count):
    ends = bucket_ends(sorted(sizes), count)

    def added(chosen) -> int:
        return sum(min((end for end in chosen if end >= size), default=10**9) - size for size in sizes)

    assert ends == sorted(set(ends)) and len(ends) <= count and set(ends) <= set(sizes)
    assert added(ends) == min(added(chosen) for chosen in combinations_with_replacement(sizes, count))


@given(st.lists(st.integers(1, 500), min_size=1, max_size=9), st.integers(1, 4))
def test_the_blaster_cuts_by_length_and_its_largest_chunk_is_least(sizes, count):
    problem = problem_of(sizes, 4)
    chunks = blast(problem, count)
    falling = [sizes[item] for chunk in chunks for item in chunk]
    assert falling == sorted(sizes, reverse=True) and len(chunks) <= count and all(chunks)
    cuts = combinations_with_replacement(range(len(sizes) + 1), count - 1)
    least = min(max(sum(falling[a:b]) for a, b in zip((0, *ends), (*ends, len(sizes)), strict=True)) for ends in cuts)
    assert max(sum(sizes[item] for item in chunk) for chunk in chunks) == least
    assert all(
        sum(sizes[i] for i in chunk) <= problem.micro_batch_tokens for chunk in blast(problem, fewest_chunks(problem))
    )


@examples(15)
@given(st.lists(st.integers(1, 1500), min_size=1, max_size=4))
def test_the_program_of_a_micro_batch_is_brute_force_on_few_sequences(sizes):
    problem = problem_of(sizes, 2, cap=5000, degrees=(1, 2))
    row = solve_micro_batch(problem, 5.0)
    assert row is not None
    choices = [((0, 0), (0, 1)), ((1, 0),)]  # two groups of one rank, or one of two
    best = min(
        max(problem.seconds(p, tuple(i for i, at in enumerate(where) if at == (p, copy))) for p, copy in set(where))
        for slots in choices
        for where in product(slots, repeat=len(sizes))
    )
    assert makespan(problem, tuple(row)) == pytest.approx(best, rel=1e-6)
    assert solve(formulate(problem).program).objective * 1e-3 == pytest.approx(best, rel=1e-6)


def test_an_impossible_packing_is_refused():
    problem = problem_of([900, 900], 2)
    full = ((PackedGroup(0, (0,), 0), PackedGroup(0, (1,), 0)),)
    for packed, why in (
        (((PackedGroup(0, (0,), 0),),), "once"),
        (full, "two groups"),
        (((PackedGroup(0, (0, 1), 0),),), "memory"),
    ):
        with pytest.raises(ValueError, match=why):
            require_legal(problem, packed, "it")
