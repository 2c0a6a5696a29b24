"""Cells that a record leaves blank follow from its others, or are usual for its model, and then are assumed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.published.implied_cells import usual_length, with_implied_cells
from planner.published.read_published import read_case
from planner.published.record_files import UnusableRecord
from tests.published.made_records import record

SILENT = {"step_time_s": "", "tokens_per_s_per_gpu": "9000"}


@given(st.integers(1, 64), st.sampled_from([1024, 2048, 8192, 65536]), st.sampled_from([8, 16, 256]))
def test_figures_of_one_step_give_back_its_numbers(sequences, seq, ranks):
    rate = sequences * seq / 2.0
    rates = {"tokens_per_s_total": f"{rate}", "tokens_per_s_per_gpu": f"{rate / ranks}", "step_time_s": "2.0"}
    full = record(rates, n_gpus=str(ranks), seq_len=str(seq), gbs=str(sequences))
    for name in ("n_gpus", "seq_len"):
        filled, assumed = with_implied_cells(full.with_cells({name: ""}))
        assert filled.text(name) == full.text(name) and not assumed


def test_ranks_follow_from_nodes_and_from_degrees():
    assert with_implied_cells(record(n_gpus="", dp="", other_settings="ran on 4 nodes"))[0].text("n_gpus") == "32"
    assert with_implied_cells(record(n_gpus=""))[0].text("n_gpus") == "16"  # tp 4, pp 2, dp 2
    assert with_implied_cells(record(n_gpus="", dp=""))[0].text("n_gpus") == ""


@pytest.mark.parametrize(
    ("model", "seq"), [("Llama 3.1 8B", 8192), ("Llama 30B", 2048), ("Llama-2 7B", 4096), ("Qwen3-30B-A3B", 4096)]
)
def test_a_length_that_nobody_says_is_that_of_pretraining_and_assumed(model, seq):
    silent = record(model=model, family="", seq_len="", step_time_s="2.0")
    assert usual_length(silent) == seq
    assert with_implied_cells(silent)[1] == ("seq_len",)


def test_the_least_sharded_layout_that_fits_stands_for_one_that_is_not_stated():
    small = read_case(record(SILENT, tp="", pp="", dp="", mbs="", gbs="64", n_gpus="64"))
    large = read_case(
        record(
            SILENT,
            tokens_per_s_per_gpu="900",
            model="Llama 3.1 70B",
            tp="",
            pp="",
            dp="",
            mbs="",
            gbs="64",
            n_gpus="64",
        )
    )
    assert "layout" in small.assumed and "layout" in large.assumed
    assert small.setup.tp * small.setup.pp < large.setup.tp * large.setup.pp
    sharded = read_case(record(SILENT, framework="torchtitan", tp="", pp="", dp="", gbs="", n_gpus="64"))
    assert (sharded.setup.zero, sharded.setup.tp) == (3, 1)


def test_a_stated_layout_stays():
    assert read_case(record(SILENT)).setup.tp == 4
    assert "layout" not in read_case(record(SILENT)).assumed


def test_seconds_without_a_batch_tell_nothing_and_rates_do():
    with pytest.raises(UnusableRecord, match="batch not stated"):
        read_case(record(mbs="", gbs=""))
    assert "gbs" in read_case(record(SILENT, mbs="", gbs="")).assumed
