"""Schedules of mixes: each mix once with all its steps, others between them, and what is no schedule."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import InputError
from planner.specs.workload.mix_schedule import distinct_mixes, mix_share, mixes_between, parse_mixes
from tests.examples import examples

PARTS = st.lists(st.tuples(st.integers(0, 20), st.integers(1, 20), st.integers(1, 5000)), min_size=1, max_size=6)


def written(parts, numbered=True):
    return ",".join(f"{many}:{few}" + (f"={steps}" if numbered else "") for many, few, steps in parts)


@examples(200)
@given(PARTS)
def test_a_schedule_keeps_all_steps_and_each_mix_once(parts):
    schedule = parse_mixes(written(parts))
    assert [(part.mix, part.steps) for part in schedule] == [(f"{a}:{b}", n) for a, b, n in parts]
    once = distinct_mixes(schedule)
    assert len({part.share for part in once}) == len(once)
    assert sum(part.steps or 0 for part in once) == sum(n for _, _, n in parts)
    assert {part.share for part in once} == {part.share for part in schedule}


@examples(200)
@given(PARTS)
def test_mixes_between_rise_and_have_the_given_ones_among_them(parts):
    schedule = parse_mixes(written(parts, numbered=False))
    found = mixes_between(schedule)
    shares = [part.share for part in found]
    assert shares == sorted({*shares}) and {part.share for part in schedule} <= {*shares}
    assert (shares[0], shares[-1]) == (min(p.share for p in schedule), max(p.share for p in schedule))
    for part in found:
        assert mix_share(part.mix) == pytest.approx(part.share, abs=1e-12)
    if shares[-1] - shares[0] >= 0.08:
        assert len(found) >= 8
        assert max(b - a for a, b in pairwise(shares)) <= max(0.011, (shares[-1] - shares[0]) / 8 + 1e-9)


def test_tenths_are_written_as_people_write_them():
    assert [part.mix for part in mixes_between(parse_mixes("1:9,9:1"))] == [f"{n}:{10 - n}" for n in range(1, 10)]
    assert [part.mix for part in mixes_between(parse_mixes("5:5"))] == ["5:5"]
    assert [part.mix for part in mixes_between(parse_mixes("1:1,5:5"))] == ["1:1"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1:9,", "`` is no mix"),
        ("9to1", "`9to1` is no mix"),
        ("0:0", "both shares of the mix 0:0 are 0"),
        ("1:9=2000,5:5", "5:5 has no number of steps"),
        ("1:9=none", "`none` is no number of steps"),
        ("1:9=-3", "`-3` is no number of steps"),
        ("1:9=nan", "`nan` is no number of steps"),
    ],
)
def test_what_is_no_schedule_is_refused_with_a_fix(text, message):
    with pytest.raises(InputError) as error:
        parse_mixes(text)
    assert error.value.message.startswith(message) and error.value.where == "--mixes" and error.value.fix
