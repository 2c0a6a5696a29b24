"""What sources leave unsaid is filled from shipped files: blanks only, each with a citation, and told."""

from dataclasses import replace
from pathlib import Path

import pytest

from planner import files
from planner.published.defaults import Defaults, Fill, defaults, filled
from planner.published.models import found
from planner.published.read import read_case
from planner.published.rows import Unusable
from planner.specs.library import shipped
from planner.specs.parameters import parameters
from tests.published.made import COLUMNS, record

SHIPPED = sorted((shipped() / "published").glob("*.yaml"))


def known(*fills: Fill) -> Defaults:
    return Defaults(format=Defaults.FORMAT, sources=("made",), about="", fills=fills)


def test_blanks_are_filled_and_the_rest_is_kept():
    rule = Fill(fill={"seq_len": "4096", "vpp": "2", "precision": "fp8"}, because="a paper")
    got = filled(record(vpp="None"), known(rule))
    assert got.names == ("vpp",)
    assert (got.row.text("vpp"), got.row.text("seq_len"), got.row.text("precision")) == ("2", "8192", "BF16")


def test_rules_hold_where_whole_cells_match():
    rule = Fill(fill={"vpp": "2"}, where={"gpu": "h100"}, because="a paper")
    assert filled(record(gpu="H100"), known(rule)).names == ("vpp",)
    assert filled(record(gpu="H100 SXM"), known(rule)).names == ()


def test_a_rule_may_replace_drop_and_skip():
    rule = Fill(fill={"recompute": "full"}, replace=True, drop=("step_time_s",), software="fsdp", because="a paper")
    got = filled(record(), known(rule))
    assert (got.row.text("recompute"), got.row.text("step_time_s"), got.software) == ("full", "", "fsdp")
    with pytest.raises(Unusable, match="mistaken in the source") as why:
        filled(record(), known(Fill(skip=True, because="a mistake that the page names")))
    assert why.value.detail == "a mistake that the page names"


def test_cases_tell_what_was_filled():
    source = {"source_id": "fms_fsdp", "framework": "fms-fsdp", "fsdp": "FSDP", "tp": "", "pp": "", "dp": "", "gbs": ""}
    case = read_case(
        record(source, model="Llama2 7b", n_gpus="128", seq_len="", precision="", mbs="2", step_time_s="2")
    )
    assert {"seq_len", "precision", "grad_accum"} <= set(case.defaulted)
    assert (case.software, case.setup.seq, case.setup.batch) == ("fsdp", 4096, 256)


def test_a_source_is_known_by_its_file_too():
    assert defaults(replace(record(source_id=""), file="internevo.csv")).software == "internevo"
    assert defaults(record(source_id="unheard_of")).fills == defaults(record(source_id="another")).fills


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
    module = found(filled(known_row, defaults(known_row)).row).module
    assert parameters(module).total / 1e9 == pytest.approx(billions, rel=0.02)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: Path(path).stem)
def test_shipped_files_fill_columns_that_there_are_and_cite(path):
    read = files.read(path, Defaults)
    assert read.sources
    assert read.about
    for rule in read.fills:
        assert {*rule.fill, *rule.where, *rule.drop} <= set(COLUMNS)
        assert rule.because
        assert rule.fill or rule.drop or rule.skip or rule.software
