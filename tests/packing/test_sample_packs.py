"""Packs of samples keep every budget, hold each sample once, and are as few as a search of all finds, or nearly."""

from itertools import combinations
from math import ceil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.packing.even_packs import PackedLoads, even_packs, mean_shares
from planner.packing.sample_packs import first_fit, pack_samples, packings
from planner.plan.pack_fill import fewest_by_resource, fewest_packs, largest_clash
from tests.examples import examples

FACTOR = 1.5  # of the fewest packs of eight samples: FFD alone, of one resource, is within 11/9 and one more


@st.composite
def problems(draw, most=40, resources=3):
    """Loads (samples, resources) and budgets, of which no sample is above one; zeros among them."""
    budgets = draw(st.lists(st.integers(1, 30), min_size=1, max_size=resources))
    sample = st.tuples(*(st.integers(0, budget) for budget in budgets))
    loads = draw(st.lists(sample, max_size=most))
    return np.array(loads, dtype=np.int64).reshape(len(loads), len(budgets)), np.array(budgets, dtype=np.int64)


def held(loads, packs, count):
    found = np.zeros((count, loads.shape[1]), dtype=loads.dtype)
    np.add.at(found, packs, loads)
    return found


def fewest_of_all(loads, budgets):
    """The fewest packs, by branch and bound over the packs of each sample; new packs are alike, so one is tried."""
    largest_first = sorted(map(tuple, loads.tolist()), key=lambda load: -max(load))
    best = len(largest_first)

    def place(at, packs):
        nonlocal best
        if len(packs) >= best:
            return
        if at == len(largest_first):
            best = len(packs)
            return
        for number, room in enumerate(packs):
            left = tuple(r - amount for r, amount in zip(room, largest_first[at], strict=True))
            if min(left) >= 0:
                place(at + 1, [*packs[:number], left, *packs[number + 1 :]])
        left = tuple(b - amount for b, amount in zip(budgets.tolist(), largest_first[at], strict=True))
        place(at + 1, [*packs, left])

    place(0, [])
    return best


@given(problems())
@examples(200)
def test_every_sample_is_in_one_pack_and_no_pack_is_above_a_budget(problem):
    loads, budgets = problem
    for packs in (pack_samples(loads, budgets), *packings(loads, budgets)):
        count = packs.max(initial=-1) + 1
        assert packs.shape == (len(loads),) and {*packs.tolist()} == {*range(count)}
        assert (held(loads, packs, count) <= budgets).all()
        assert count >= fewest_packs(loads, budgets)


@given(problems(), st.randoms(use_true_random=False))
@examples(100)
def test_the_order_of_samples_changes_no_count_and_the_same_samples_give_the_same_packs(problem, chance):
    loads, budgets = problem
    turned = [*range(len(loads))]
    chance.shuffle(turned)
    packs = pack_samples(loads, budgets)
    assert pack_samples(loads[turned], budgets).max(initial=-1) == packs.max(initial=-1)
    assert pack_samples(loads.copy(), budgets.copy()).tobytes() == packs.tobytes()
    assert fewest_packs(loads[turned], budgets) == fewest_packs(loads, budgets)


@given(problems(most=8))
@examples(200)
def test_few_samples_have_as_many_packs_as_a_search_of_all_finds_within_a_factor(problem):
    loads, budgets = problem
    fewest, count = fewest_of_all(loads, budgets), pack_samples(loads, budgets).max(initial=-1) + 1
    assert fewest_packs(loads, budgets) <= fewest <= count <= FACTOR * fewest


def test_nearly_all_packings_of_few_samples_are_the_fewest():
    chance, exact = np.random.default_rng(5), 0
    for _ in range(300):
        loads = chance.integers(0, 61, (8, 2))
        exact += pack_samples(loads, np.array([100, 100])).max() + 1 == fewest_of_all(loads, np.array([100, 100]))
    assert exact >= 297


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])  # of samples with images
def test_thousands_of_samples_are_within_a_hundredth_of_the_bound(share):
    chance = np.random.default_rng(1)
    patches = np.where(chance.random(3000) < share, chance.integers(300, 8000, 3000), 0)
    loads = np.stack([chance.integers(20, 2000, 3000) + patches // 4, patches], axis=1)
    for budgets in (np.array([8192, 20_000]), np.array([16384, 49_200])):
        assert pack_samples(loads, budgets).max() + 1 <= ceil(1.01 * fewest_packs(loads, budgets))


def test_blocks_of_packs_find_what_a_look_at_every_pack_finds():
    """First fit, over more packs than a block has, and over more blocks without room than are tried one by one."""
    chance = np.random.default_rng(2)
    full = np.array([[10, 0], [0, 10]] * 700)
    loads = np.concatenate([full, chance.integers(0, 7, (700, 2)), [[0, 0]]])
    order, rooms, places = np.arange(len(loads)), [], []
    for load in loads.tolist():
        at = next((at for at, room in enumerate(rooms) if room[0] >= load[0] and room[1] >= load[1]), len(rooms))
        if at == len(rooms):
            rooms.append([10, 10])
        rooms[at] = [rooms[at][0] - load[0], rooms[at][1] - load[1]]
        places.append(at)
    assert first_fit(loads, np.array([10, 10]), order).tolist() == places and len(rooms) > 700


def test_a_sample_above_a_budget_is_named():
    with pytest.raises(ValueError, match="sample 1 alone"):
        pack_samples(np.array([[1, 1], [1, 5]]), np.array([4, 4]))


# ------------------------------------------------------------------------------------------------------------ the bound


@given(st.lists(st.integers(0, 40), max_size=15), st.integers(40, 60))
@examples(200)
def test_the_bound_of_one_resource_is_l2(sizes, budget):
    positive = [size for size in sizes if size]
    best = 0
    for k in range(budget // 2 + 1):
        alone = [size for size in positive if size > budget - k]
        large = [size for size in positive if budget / 2 < size <= budget - k]
        small = sum(size for size in positive if k <= size <= budget / 2)
        best = max(best, len(alone) + len(large) + max(0, ceil((small - len(large) * budget + sum(large)) / budget)))
    assert fewest_by_resource(np.array(sizes, dtype=np.int64), budget) == best >= ceil(sum(sizes) / budget)


@given(problems(most=12, resources=2))
@examples(100)
def test_a_clash_is_of_samples_of_which_no_two_go_together(problem):
    loads, budgets = problem
    clashing = {(i, j) for i, j in combinations(range(len(loads)), 2) if (loads[i] + loads[j] > budgets).any()}
    size = largest_clash(loads, budgets)
    sets = combinations(range(len(loads)), size)
    assert size < 2 or any(all(pair in clashing for pair in combinations(chosen, 2)) for chosen in sets)


def test_samples_that_clash_over_different_budgets_are_counted_together():
    loads, budgets = np.array([[6, 5], [6, 5], [5, 6], [5, 6]]), np.array([10, 10])
    assert [fewest_by_resource(loads[:, at], 10) for at in (0, 1)] == [3, 3]
    assert fewest_packs(loads, budgets) == pack_samples(loads, budgets).max() + 1 == 4


def test_large_numbers_do_not_overflow():
    loads = np.full((1000, 1), 10**9)
    assert fewest_packs(loads, np.array([10**18])) == 1
    assert fewest_packs(loads, np.array([10**9])) == 1000 == pack_samples(loads, np.array([10**9])).max() + 1


def test_no_sample_needs_no_pack_and_one_of_nothing_needs_one():
    assert fewest_packs(np.zeros((0, 2), dtype=np.int64), np.array([5, 5])) == 0
    assert fewest_packs(np.zeros((3, 2), dtype=np.int64), np.array([5, 5])) == 1


# ----------------------------------------------------------------------------------------------------------- even loads


@given(problems(resources=2), st.integers(1, 6), st.integers(0, 4))
@examples(150)
def test_even_packs_keep_budgets_and_exchanges_lower_the_squares(problem, modules, more):
    loads, budgets = problem
    packs = pack_samples(loads, budgets)
    count = int(packs.max(initial=0)) + 1 + more
    seconds = np.random.default_rng(modules).random((len(loads), modules)) * (np.arange(modules) > 0)
    spread = even_packs(loads, budgets, seconds, count)
    for start in (packs, *(() if spread is None else (spread,))):
        assert (held(loads, start, count) <= budgets).all()
        level = PackedLoads(start, loads, seconds, count).level(budgets)
        assert (held(loads, level, count) <= budgets).all() and level.shape == packs.shape
        shares = mean_shares(seconds, count)
        before, after = (float((held(shares, each, count) ** 2).sum()) for each in (start, level))
        assert after <= before + 1e-9


def test_two_kinds_of_load_are_even_at_once():
    """Half of the samples load the LLM alone: packs get as much of both, where the LLM's time alone leaves half."""
    chance = np.random.default_rng(0)
    images = np.where(np.arange(400) % 2, chance.random(400), 0.0)
    seconds = np.stack([chance.random(400) + images, 4 * images], axis=1)
    loads, budgets = np.ones((400, 1), dtype=np.int64), np.array([80])
    spread = even_packs(loads, budgets, seconds, 10)
    assert spread is not None
    level = PackedLoads(spread, loads, seconds, 10).level(budgets)
    assert held(mean_shares(seconds, 10), level, 10).max() < 1.02


def test_even_packs_say_where_there_is_no_room():
    assert even_packs(np.array([[3], [3], [3]]), np.array([5]), np.ones((3, 1)), 2) is None
