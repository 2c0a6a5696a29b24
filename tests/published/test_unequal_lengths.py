"""Sequences of unequal lengths: equal ones stand for them that have as many tokens and pairs of tokens."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.costs import LayoutColumns
from planner.published.read_published import read_case
from planner.published.record_files import UnusableRecord
from planner.published.unequal_lengths import UnequalLengths, moments, unequal_lengths
from planner.specs.workload.distributions import draw_lengths
from tests.published.made_records import record


def case(**cells: str):
    return read_case(record(task="Pre-Training (variable-length)", **cells))


@given(st.lists(st.integers(1, 10**5), min_size=1, max_size=50), st.integers(1, 8))
def test_equal_sequences_have_as_many_tokens_and_pairs(lengths, pipelines):
    sizes = np.array(lengths, dtype=float)
    mean, equal = sizes.mean(), (sizes * sizes).sum() / sizes.sum()
    at = LayoutColumns(ranks=float(pipelines), seq=mean, batch=float(len(sizes)), cross_reads=0.5, cross_pairs=0.5)
    (found,) = UnequalLengths(mean, (equal,), None, False).columns(at)
    assert found.batch * found.seq == pytest.approx(sizes.sum())
    assert found.batch * found.seq**2 == pytest.approx((sizes**2).sum())
    assert found.micro_batches == pytest.approx(at.micro_batches)
    assert found.cross_pairs * (sizes**2).sum() == pytest.approx(0.5 * mean * sizes.sum())


@given(st.integers(1, 64), st.integers(1, 10**6), st.integers(1, 8))
def test_packs_hold_the_longest_and_all_of_a_replica(batch, longest, pipelines):
    at = LayoutColumns(ranks=float(pipelines), seq=longest / 3, batch=float(batch * pipelines))
    (found,) = UnequalLengths(longest / 3, (longest / 2,), longest, True).columns(at)
    packs = float(found.micro_batches)
    assert packs == pytest.approx(round(packs)) and packs >= batch / 3 * (1 - 1e-9)
    assert found.micro_batch * found.seq <= longest * (1 + 1e-9)


@pytest.mark.parametrize("name", ["wikipedia", "github"])
def test_moments_are_those_of_drawn_lengths(name):
    drawn = np.array([length for length in draw_lengths(name, 400_000, 0) if length <= 32768], dtype=float)
    mean, equal = moments(name, 32768)
    assert mean == pytest.approx(drawn.mean(), rel=0.02)
    assert equal == pytest.approx((drawn**2).sum() / drawn.sum(), rel=0.02)


def test_between_a_mean_and_a_maximum_both_are_possible():
    found = case(seq_len="mean 2,048, max 8K")
    setups = (found.setup, *found.other_setups)
    assert [float(setup.seq) for setup in setups] == [2048, 8192]
    assert {float(setup.batch * setup.seq) for setup in setups} == {16 * 2048}


@pytest.mark.parametrize("text", ["mean 2048, max 8192", "2048 (mean), 8192 (max)", "avg 2K up to 8K"])
def test_a_mean_and_a_maximum_are_read_in_many_spellings(text):
    found = unequal_lengths(record(seq_len=text))
    assert (found.mean, found.longest) == (2048, 8192)


def test_one_length_and_packs_of_one_are_equal():
    assert unequal_lengths(record()) is None
    assert unequal_lengths(record(task="variable-length", seq_len="8192", other_settings="packing")) is None


def test_samples_a_second_are_of_the_mean_length():
    found = case(seq_len="mean 2048, max 8192", step_time_s="", samples_per_s="8")
    assert found.seconds == pytest.approx(16 / 8)


def test_a_named_data_set_has_known_lengths():
    short, long = (case(seq_len=f"max {most}", other_settings="dataset Wikipedia") for most in ("1K", "32K"))
    assert short.setup.seq < long.setup.seq < 32768
    assert short.setup.batch * short.setup.seq < long.setup.batch * long.setup.seq


@pytest.mark.parametrize(
    ("cells", "reason", "detail"),
    [
        ({"seq_len": "max 8192"}, "sequences of different lengths", "neither their mean nor a data set"),
        ({"seq_len": "1K-32K"}, "sequences of different lengths", "neither their mean nor a data set"),
        ({"seq_len": "8192"}, "sequences of different lengths", "neither their mean nor a data set"),
        ({"seq_len": "max 192K", "framework": "FlexSP"}, "strategy without a closed form", "sequence_groups"),
        (
            {"seq_len": "max 192K", "other_settings": "dataset GitHub", "tp": "", "pp": "", "dp": "", "cp": ""},
            "layout not stated",
            "sequences of up to 196608 tokens",
        ),
    ],
)
def test_what_is_missing_is_said(cells, reason, detail):
    with pytest.raises(UnusableRecord) as why:
        case(**cells)
    assert why.value.reason == reason and detail in why.value.detail
