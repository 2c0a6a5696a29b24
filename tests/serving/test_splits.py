"""The space of splits, its bounds, and the best: against every split tried, and against the clock."""

from dataclasses import replace
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.serving import FAMILIES, ORDERS, Question, SplitBounds, best_split, family_splits, greatest
from planner.serving.goodput import WITHIN
from planner.serving.splits import every_split
from planner.simulate.serving import ServingSetup
from planner.specs.service import Service
from tests.examples import examples, soaked
from tests.served import PRICES, drawn, prices

SERVICE = Service(ttft_s=0.4, tpot_s=0.02, percentile=90)
TWO = {
    1: PRICES,
    2: replace(prices((0.007, 6e-6, 6e-10), (0.004, 3e-6, 6e-11), (0.004, 1.3e-5, 1.2e-8), 450_000), tp=2),
}


def question(seed=0, count=60, **fields):
    return Question(tuple(drawn(count, 20.0, seed, **fields)), SERVICE, TWO, ServingSetup())


def test_all_divisions_of_eight_are_there():
    splits = {tuple(share.instances for share in each.shares) for each in every_split("split", 8, (1,))}
    assert len(splits) == comb(7, 2) == 21
    for family in FAMILIES:
        for each in every_split(family, 6, (1, 2, 4)):
            assert each.gpus == 6 and [share.stages for share in each.shares] == [*FAMILIES[family]]


@given(seed=st.integers(0, 10**6), order=st.sampled_from(ORDERS), family=st.sampled_from([*FAMILIES]))
@examples(20)
def test_no_work_is_less_than_its_bound(seed, order, family):
    """Instances are busy with what their requests need for no less time than the bound says, whatever the batches."""
    asked = question(seed, 30)
    asked = replace(asked, service=Service(ttft_s=1e6, tpot_s=1e6, percentile=100))
    for split in [*every_split(family, 4, (1, 2), (16,))][seed % 5 :: 8]:
        bounds = SplitBounds(asked)
        history, first = asked.history(split, order, 50.0), 0
        for share in split.shares:
            numbers = range(first, first + share.instances)
            busy = sum(until - since for who, _, since, until in history.busy if who in numbers)
            assert busy >= bounds.least_work(share, split) * (1 - 1e-9)
            first += share.instances


@pytest.mark.parametrize("family", soaked(("coupled", "split"), ["split"]))
def test_the_best_is_the_best_of_all(family):
    """As if every split were run at every rate, up to what the search for a rate leaves open."""
    asked = question(3)
    splits = [each for each in family_splits(asked, family, 4) if each.answers == 64 and each.tokens != 2048]
    found = best_split(asked, splits, "fifo")
    bounds = SplitBounds(asked)
    long = asked.lasting(max(map(bounds.bound, splits)))
    every = []
    for split in splits:
        rate = greatest(lambda at: long.in_time(split, "fifo", at), 0.0, bounds.bound(split))  # noqa: B023
        every.append(rate * asked.rate)
        assert rate <= bounds.bound(split)
    assert max(every) / (1 + WITHIN) ** 2 <= found.goodput <= max(every) * (1 + WITHIN)
    assert found.goodput <= found.bound and found.tried + found.passed == len(splits)


def test_greatest_finds_a_threshold():
    for threshold in (1e-2, 0.3, 1.0, 7.7, 10.0):
        found = greatest(lambda at: at <= threshold, 0.0, 10.0)  # noqa: B023
        assert threshold / (1 + WITHIN) <= found <= threshold
    assert greatest(lambda at: False, 0.0, 10.0) == 0.0


def test_text_alone_needs_no_encoders():
    asked = question(images=0.0)
    assert not family_splits(asked, "split", 8) and not family_splits(asked, "encoders", 8)
    assert family_splits(asked, "prefill", 8) and not family_splits(question(), "split", 2)
