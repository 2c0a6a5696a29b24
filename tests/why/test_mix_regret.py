"""Regret over mixes against brute force, on tables of any seconds; and restarts against counting steps."""

from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.specs.workload.mix_schedule import MixPart
from planner.why.mix_regret import (
    expected_regret,
    least_seconds,
    quickest,
    ranking,
    regrets,
    worst_regret,
)
from planner.why.restarts import MixPoint, best_changes, from_mix, steps_to_repay, switches
from tests.examples import examples

SECONDS = st.one_of(st.none(), st.floats(0.5, 8.0), st.sampled_from([1.0, 2.0, 3.0]))


@st.composite
def tables(draw):
    """What some layouts take at some mixes, of which each has layouts that fit; and steps of each mix."""
    mixes = draw(st.integers(1, 4))
    table = draw(st.lists(st.tuples(*[SECONDS] * mixes), min_size=1, max_size=6))
    table.insert(draw(st.integers(0, len(table))), tuple(draw(st.floats(0.5, 8.0)) for _ in range(mixes)))
    return table, draw(st.lists(st.floats(0.5, 5000.0), min_size=mixes, max_size=mixes))


@examples(200)
@given(tables())
def test_regret_is_never_negative_and_none_for_the_quickest(found):
    table, _ = found
    least = least_seconds(table)
    for seconds in table:
        assert all(each is None or each >= 0.0 for each in regrets(seconds, least))
    for at, number in enumerate(quickest(table)):
        assert regrets(table[number], least)[at] == 0.0


@examples(200)
@given(tables(), st.sampled_from(["worst", "expected"]))
def test_the_chosen_layouts_have_the_least_regret_of_all_that_fit(found, by):
    table, weights = found
    best = [min(each for each in of_mix if each is not None) for of_mix in zip(*table, strict=True)]
    whole = [seconds for seconds in table if None not in seconds]
    chosen = table[ranking(table, weights, by)[0]]
    assert chosen in whole

    def regret(seconds):
        if by == "worst":
            return max(each / least for each, least in zip(seconds, best, strict=True)) - 1
        return (
            sum(w * each for w, each in zip(weights, seconds, strict=True))
            / sum(w * least for w, least in zip(weights, best, strict=True))
            - 1
        )

    assert regret(chosen) == pytest.approx(min(map(regret, whole)), abs=1e-12)


@examples(200)
@given(tables())
def test_more_mixes_never_lower_the_worst_regret_of_the_same_layouts(found):
    table, weights = found
    worst = []
    for count in range(1, len(weights) + 1):
        fewer = [seconds[:count] for seconds in table]
        chosen = fewer[ranking(fewer, weights[:count], "worst")[0]]
        worst.append(worst_regret(chosen, least_seconds(fewer)))
    assert all(before <= after for before, after in pairwise(worst))


@examples(200)
@given(tables(), st.sampled_from(["worst", "expected"]), st.randoms())
def test_the_order_of_candidates_does_not_matter(found, by, random):
    table, weights = found
    other = random.sample(table, len(table))
    for first, second in zip(ranking(table, weights, by), ranking(other, weights, by), strict=True):
        for measure in (worst_regret, lambda s, least: expected_regret(s, least, weights)):
            one, two = measure(table[first], least_seconds(table)), measure(other[second], least_seconds(other))
            assert (one is None) == (two is None) and (one is None or one == pytest.approx(two, abs=1e-12))


@examples(100)
@given(tables())
def test_the_expected_regret_lies_between_none_and_the_worst(found):
    table, weights = found
    least = least_seconds(table)
    for seconds in table:
        worst, expected = worst_regret(seconds, least), expected_regret(seconds, least, weights)
        assert (worst is None) == (expected is None) == (None in seconds)
        assert worst is None or expected is None or -1e-12 <= expected <= worst + 1e-12


# ------------------------------------------------------------------------------------------------------------ restarts


def point(share: float, kept: float | None, least: float) -> MixPoint:
    regret = None if kept is None else kept / least - 1
    return MixPoint(mix=f"{share:g}", share=share, kept_seconds=kept, least_seconds=least, regret=regret, quickest=0)


@examples(200)
@given(st.floats(0.5, 2.0), st.floats(1e-3, 1.0), st.floats(0.0, 900.0))
def test_a_restart_is_repaid_after_as_many_steps_as_counting_gives(least, saved, restart):
    needed = steps_to_repay(point(0.5, least + saved, least), restart)
    assert needed is not None
    gain = (least + saved) - least
    assert needed * gain >= restart * (1 - 1e-12)
    assert needed == 0 or (needed - 1) * gain < restart


def test_what_saves_nothing_is_never_repaid_and_what_cannot_run_at_once():
    assert steps_to_repay(point(0.5, 1.0, 1.0), 0.0) is None
    assert steps_to_repay(point(0.5, None, 1.0), 600.0) == 0


@examples(200)
@given(st.lists(st.floats(0.0, 0.5), min_size=1, max_size=8), st.floats(1.0, 500.0), st.floats(0.1, 100.0))
def test_from_a_mix_on_each_further_mix_repays_too(saved, steps, restart):
    points = [point(0.1 * at, 1.0 + each, 1.0) for at, each in enumerate(saved)]
    repays = [each * steps >= restart for each in ((p.kept_seconds or 0.0) - 1.0 for p in points)]
    first = next((at for at in range(len(points)) if all(repays[at:])), None)
    near = any(abs(each * steps - restart) < 1e-9 * restart + steps for each in saved)
    found = from_mix(points, steps, restart)
    if not near:
        assert found == (None if first is None else points[first].mix)
    assert from_mix(points, None, restart) is None


@pytest.mark.parametrize("turned", [False, True])
def test_a_switch_looks_at_the_mixes_on_its_way(turned):
    """Regret grows with the share of images: with 100 steps, 9.5 s are repaid from a saving of 95 ms a step on."""
    points = {at / 10: point(at / 10, 1.0 + at / 50, 1.0) for at in range(1, 10)}
    few, many = MixPart(mix="0.1", share=0.1, steps=100), MixPart(mix="0.9", share=0.9, steps=100)
    (found,) = switches((many, few) if turned else (few, many), points, 9.5)
    if turned:
        assert (found.repays, found.from_mix, found.repaid_after) == (False, None, 475)
    else:
        assert (found.repays, found.from_mix, found.repaid_after) == (True, "0.5", 53)


@st.composite
def schedules(draw):
    """A schedule over the mixes of a table, some of them more than once, and a restart."""
    table, _ = draw(tables())
    mixes = [MixPart(mix=str(at), share=at / 10) for at in range(len(table[0]))]
    order = draw(st.lists(st.integers(0, len(mixes) - 1), min_size=1, max_size=4))
    steps = [draw(st.integers(1, 50)) for _ in order]
    parts = [MixPart(mix=str(at), share=at / 10, steps=n) for at, n in zip(order, steps, strict=True)]
    whole = sorted(table, key=lambda seconds: None in seconds)  # the chosen ones fit everywhere
    return parts, mixes, whole[:4], draw(st.floats(0.0, 60.0))


@examples(200)
@given(schedules())
def test_the_best_changes_are_the_best_of_all_sequences(found):
    schedule, mixes, table, restart = found
    places = [int(part.mix) for part in schedule]

    def run(layouts):
        each = [(table[n][at], part.steps) for n, at, part in zip(layouts, places, schedule, strict=True)]
        changed = sum(before != after for before, after in pairwise(layouts))
        return None if any(s is None for s, _ in each) else sum(s * n for s, n in each) + restart * changed

    every = [run(layouts) for layouts in product(range(len(table)), repeat=len(schedule))]
    best = best_changes(schedule, mixes, table, restart)
    assert best is not None
    assert best.least_seconds == pytest.approx(min(each for each in every if each is not None), rel=1e-12)
    assert run(best.layouts) == pytest.approx(best.least_seconds, rel=1e-12)
    assert best.restarts == sum(before != after for before, after in pairwise(best.layouts))
    assert best.kept_seconds == pytest.approx(run((0,) * len(schedule)), rel=1e-12)


def test_without_steps_there_is_no_run_to_plan():
    mixes = [MixPart(mix="1:9", share=0.1), MixPart(mix="9:1", share=0.9)]
    assert best_changes(mixes, mixes, [(1.0, 2.0)], 600.0) is None
