"""A share is one number however it is written, in files and options; a bare number above one is none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import files
from planner.errors import InputError
from planner.specs.base import share_of
from planner.specs.check_file import CheckFile
from planner.units import parse_share
from tests.examples import examples


def read(text: str) -> float | None:
    return files.parse(f"format: planner.check/1\nvalue: {text}\n", CheckFile, "check.yaml").value


@examples(60)
@given(st.decimals(0, 100, places=3))
def test_percent_and_number_are_the_same_share_of(hundredths):
    whole, bare = f"{hundredths:f}", f"{float(hundredths) / 100:.9f}"
    for text in (f"{whole}%", f"{whole} %"):
        assert read(text) == parse_share(text) == share_of(text, "offload") == pytest.approx(read(bare), abs=1e-9)
    assert parse_share(bare) == read(bare) == float(bare)


@examples(60)
@given(st.integers(2, 100))
def test_a_bare_number_above_one_is_refused_with_what_was_meant(number):
    fix = f"{number}%, where percent are meant"
    for asked in (lambda: read(f"{number}"), lambda: share_of(f"{number}", "offload")):
        with pytest.raises(InputError) as refused:
            asked()
        assert refused.value.fix == fix
    with pytest.raises(ValueError, match=fix):
        parse_share(f"{number}")


@pytest.mark.parametrize("text", ["", "%", "-1%", "1e-2", "three", "3%%", "0.03 or so", "٣%"])
def test_what_is_no_share_is_refused(text):
    with pytest.raises(ValueError, match="is no share"):
        parse_share(text)


def test_more_than_the_whole_is_no_share_of_a_file_or_a_layout():
    with pytest.raises(InputError, match=r"expected a number <= 1\.0"):
        read("101%")
    with pytest.raises(InputError, match="more than the whole"):
        share_of("101%", "offload")


def test_text_that_looks_like_a_percentage_stays_text_where_it_is_quoted():
    with pytest.raises(InputError, match="expected a number"):
        read("'3%'")
