"""What sources leave unsaid is filled from shipped files: blanks only, each with a citation, and told."""

from dataclasses import replace
from pathlib import Path

import pytest

from planner import files
from planner.published.read_published import read_case
from planner.published.record_files import UnusableRecord
from planner.published.source_defaults import FillRule, SourceDefaults, defaults_of_source, fill_defaults
from planner.published.trained_model import model_of_record
from planner.specs.library import shipped_folder
from planner.specs.parameters import parameter_counts
from tests.published.made_records import COLUMNS, record

SHIPPED = sorted((shipped_folder() / "published").glob("*.yaml"))


def known(*fills: FillRule) -> SourceDefaults:
    return SourceDefaults(format=SourceDefaults.FORMAT, sources=("made",), about="", fills=fills)


def test_blanks_are_filled_and_the_rest_is_kept():
    rule = FillRule(fill={"seq_len": "4096", "vpp": "2", "precision": "fp8"}, because="a paper")
    got = fill_defaults(record(vpp="None"), known(rule))
    assert got.filled_columns == ("vpp",)
    assert (got.record.text("vpp"), got.record.text("seq_len"), got.record.text("precision")) == ("2", "8192", "BF16")


def test_rules_hold_where_whole_cells_match():
    rule = FillRule(fill={"vpp": "2"}, where={"gpu": "h100"}, because="a paper")
    assert fill_defaults(record(gpu="H100"), known(rule)).filled_columns == ("vpp",)
    assert fill_defaults(record(gpu="H100 SXM"), known(rule)).filled_columns == ()


def test_a_rule_may_replace_drop_and_skip():
    rule = FillRule(fill={"recompute": "full"}, replace=True, drop=("step_time_s",), software="fsdp", because="a paper")
    got = fill_defaults(record(), known(rule))
    assert (got.record.text("recompute"), got.record.text("step_time_s"), got.software) == ("full", "", "fsdp")
    with pytest.raises(UnusableRecord, match="mistaken in the source") as why:
        fill_defaults(record(), known(FillRule(skip=True, because="a mistake that the page names")))
    assert why.value.detail == "a mistake that the page names"


def test_a_rule_may_add_words_to_a_cell():
    rule = FillRule(add={"other_settings": "no prefetch", "notes": "seen"}, because="a file")
    got = fill_defaults(record(other_settings="bf16 gradients", notes=""), known(rule))
    assert (got.record.text("other_settings"), got.record.text("notes")) == ("bf16 gradients; no prefetch", "seen")
    assert got.filled_columns == ("other_settings", "notes")


def test_cases_tell_what_was_filled():
    source = {"source_id": "fms_fsdp", "framework": "fms-fsdp", "fsdp": "FSDP", "tp": "", "pp": "", "dp": "", "gbs": ""}
    case = read_case(
        record(source, model="Llama2 7b", n_gpus="128", seq_len="", precision="", mbs="2", step_time_s="2")
    )
    assert {"seq_len", "precision", "grad_accum"} <= set(case.defaulted)
    assert (case.software, case.setup.seq, case.setup.batch) == ("fsdp", 4096, 256)


def test_a_source_is_known_by_its_file_too():
    assert defaults_of_source(replace(record(source_id=""), file="internevo.csv")).software == "internevo"
    assert (
        defaults_of_source(record(source_id="unheard_of")).fills
        == defaults_of_source(record(source_id="another")).fills
    )


@pytest.mark.parametrize(
    ("cells", "billions"),
    [
        ({"model": "mpt-30b", "family": "mpt"}, 30.0),
        ({"model": "13b", "family": "mpt"}, 12.9),
        ({"model": "MPT-7B", "family": ""}, 6.65),
        ({"model": "Grok1 314b", "family": "grok"}, 314),
    ],
)
def test_models_with_no_file_have_shapes_whoever_ran_them(cells, billions):
    known_row = record(cells, source_id="unheard_of")
    module = model_of_record(fill_defaults(known_row, defaults_of_source(known_row)).record).module
    assert parameter_counts(module).total / 1e9 == pytest.approx(billions, rel=0.02)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: Path(path).stem)
def test_shipped_files_fill_columns_that_there_are_and_cite(path):
    read = files.read(path, SourceDefaults)
    assert read.sources
    assert read.about
    for rule in read.fills:
        assert {*rule.fill, *rule.add, *rule.where, *rule.drop} <= set(COLUMNS)
        assert rule.because
        assert rule.fill or rule.add or rule.drop or rule.skip or rule.software
