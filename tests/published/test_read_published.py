"""Every record is a case or is skipped with a reason, exactly once; nothing that a cell may hold escapes."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import InputError
from planner.published.published_case import PublishedCase
from planner.published.read_published import read_case, read_published, unique_cases
from planner.published.record_files import UnusableRecord, read_records
from tests.examples import examples
from tests.published.made_records import COLUMNS, record, write

CELLS = st.one_of(
    st.text(max_size=12),
    st.sampled_from(
        ["", "0", "1", "8", "-1", "1e18", "9" * 5000, "none", "8 (4)", "full", "FSDP2", "oom", "1/0", "٣", "²"]
    ),
    st.integers(-(10**20), 10**20).map(str),
    st.floats().map(str),
)


def test_rows_of_a_folder(tmp_path):
    write(tmp_path / "b.csv", {}, {"model": "Jamba 1.5"}, {"gpu": "TPU v5p"})
    write(tmp_path / "a.csv", {"step_time_s": "2.5"})
    (tmp_path / "other.csv").write_text("m,n,k\n1,2,3\n")
    (tmp_path / "notes.md").write_text("no table")
    cases, skipped = read_published(tmp_path)
    assert [(case.origin.file, case.origin.line) for case in cases] == [("a.csv", 2), ("b.csv", 2)]
    assert [(each.origin.file, each.origin.line, each.reason) for each in skipped] == [
        ("other.csv", 1, "file not of the schema"),
        ("b.csv", 3, "layers of a kind that is not described"),
        ("b.csv", 4, "no profile of the device"),
    ]


def test_a_case(tmp_path):
    write(tmp_path / "a.csv", {"interconnect": "8x400 Gb/s", "other_settings": "TP overlap", "task": "LoRA"})
    (case,), _ = read_published(tmp_path)
    assert (case.device, case.software, case.seconds, case.oom) == ("h100-80gb", "nemo", 2.0, False)
    assert (case.network.ranks_per_node, case.network.between_gb_per_s) == (8, 50)
    assert case.module.adapters.parts == ("qkv",)
    assert "tp overlap" in case.settings_text
    assert case.device_bytes is None
    assert (case.origin.source, case.origin.record_id, case.origin.group_id) == ("made", "made-1", "made")


def test_a_table_of_another_manner():
    """FSDP on boards named in lower case, sizes as models' names, utilization alone as what was measured."""
    cells = {
        "framework": "llm-foundry", "family": "mpt", "model": "30b", "seq_len": "2048", "gpu": "h100_80gb",
        "n_gpus": "64", "tp": "", "pp": "", "cp": "", "dp": "", "fsdp": "FULL_SHARD", "recompute": "True",
        "precision": "amp_bf16", "gbs": "1024", "mbs": "8", "grad_accum": "2", "step_time_s": "", "mfu_pct": "40",
        "hfu_pct": "53",
    }  # fmt: skip
    case = read_case(record(cells))
    assert (case.setup.pipelines, case.setup.zero, case.setup.micro_batches, case.setup.full_recompute) == (64, 3, 2, 1)
    flops = 1024 * 2048 * 6 * 29.6e9  # a little less than it is, without attention
    assert case.seconds == pytest.approx(flops / (0.4 * 989.4e12 * 64), rel=0.1)
    assert case.software == "fsdp"


def test_a_board_with_other_memory_is_told():
    assert read_case(record(gpu="H100 96GB")).device_bytes == 96e9


def test_one_measurement_printed_twice_counts_once(tmp_path):
    write(tmp_path / "a.csv", {}, {"other_settings": "the same"}, {"step_time_s": "2.1"}, {"date_or_version": "later"})
    cases, skipped = read_published(tmp_path)
    assert len(cases) == 3
    assert [(each.reason, each.detail) for each in skipped] == [("printed twice", "as made-1")]


def test_a_folder_without_such_files_is_refused(tmp_path):
    with pytest.raises(InputError, match="no CSV file here"):
        read_published(tmp_path)
    with pytest.raises(InputError, match="not a directory"):
        read_published(tmp_path / "none")


def test_too_many_cells_are_named(tmp_path):
    path = write(tmp_path / "a.csv", {})
    path.write_text(path.read_text().rstrip() + ",and more\n")
    _, (skipped,) = read_published(tmp_path)
    assert skipped.reason == "unreadable row"


@examples(300)
@given(st.dictionaries(st.sampled_from(COLUMNS), CELLS, max_size=6))
def test_no_cell_escapes(cells):
    try:
        assert isinstance(read_case(record(cells)), PublishedCase)
    except UnusableRecord as why:
        assert why.reason


@examples(40)
@given(st.lists(st.dictionaries(st.sampled_from(COLUMNS), CELLS, max_size=4), max_size=8))
def test_each_row_comes_out_once(tmp_path_factory, rows):
    path = write(tmp_path_factory.mktemp("rows") / "a.csv", *rows)
    read = [each.origin.line for each in unique_cases([path])]
    assert read == [each.line for each in read_records(path)]


@examples(60)
@given(st.binary(max_size=200))
def test_files_of_any_bytes_are_read_or_located(tmp_path_factory, tail):
    path = tmp_path_factory.mktemp("bytes") / "a.csv"
    path.write_bytes(",".join(COLUMNS).encode() + b"\n" + tail)
    try:
        list(unique_cases([path]))
    except InputError as error:
        assert str(path) in error.where


@pytest.fixture(scope="module")
def published(shared):
    return read_published(shared / "published")


@pytest.mark.soak
def test_shared_rows_are_all_accounted_for(published, shared):
    cases, skipped = published
    folder = shared / "published"
    places = Counter((each.origin.file, each.origin.line) for each in [*cases, *skipped])
    assert set(places.values()) == {1}
    for path in folder.glob("*.csv"):
        lines = [line for file, line in places if file == path.name]
        header = path.read_text().split("\n", 1)[0]
        assert len(lines) == (len(list(read_records(path))) if header.startswith("row_id,source_id") else 1)


@pytest.mark.slow
def test_shared_sources_that_are_predicted(published):
    used = Counter(case.origin.file for case in published[0])
    least = {
        "korthikanti2022.csv": 9, "dgxc.csv": 140, "internevo.csv": 70, "torchtitan_2024.csv": 13, "torchtitan.csv": 32,
        "mbridge.csv": 145, "mbridge_ablation.csv": 11, "nemo_perf_summary.csv": 43, "moe_modelzoo.csv": 17,
        "laer_moe.csv": 96, "xtuner_moe.csv": 16, "xtuner_sp.csv": 14, "bigscience_v100.csv": 100, "fms_fsdp.csv": 8,
        "narayanan2021_table1.csv": 10, "nemo_launcher.csv": 11, "megatron_lm_golden.csv": 400,
    }  # fmt: skip
    assert {file: used[file] for file, count in least.items() if used[file] < count} == {}


@pytest.mark.slow
def test_shared_cases_are_sound(published):
    for case in published[0]:
        made = case.setup
        assert made.pipelines == int(made.pipelines) >= 1
        assert made.micro_batches == int(made.micro_batches) >= 1
        assert made.edp == int(made.edp) >= 1
        assert case.oom or case.seconds or case.memory_bytes


@pytest.mark.slow
def test_what_the_seconds_of_flops_say_where_both_are_printed(shared):
    """NVIDIA's pages print tokens and TFLOP/s: seconds from either agree, so each source's count is understood."""
    folder = shared / "published"
    off = []
    for name in ("mbridge.csv", "nemo_perf_summary.csv", "moe_modelzoo.csv"):
        for each in read_records(folder / name):
            timed = each.text("tokens_per_s_per_gpu") or each.text("step_time_s")
            if not (timed and each.text("tflops_per_gpu") and each.text("task") == "Pre-Training"):
                continue
            try:
                printed = read_case(each).seconds
                counted = read_case(each.with_cells({"tokens_per_s_per_gpu": "", "step_time_s": ""})).seconds
            except UnusableRecord:
                continue
            off.append(abs(counted / printed - 1))
    assert sorted(off)[len(off) // 2] < 0.01
    assert sorted(off)[int(len(off) * 0.9)] < 0.02


@pytest.mark.parametrize(
    "cells",
    [{"mfu_pct": "0.45", "step_time_s": ""}, {"peak_mem": "300", "mem_unit": "GB"}],
    ids=["a fraction for percent", "more than the device has"],
)
def test_figures_that_cannot_be_are_named(tmp_path, cells):
    write(tmp_path / "made.csv", cells)
    cases, skipped = read_published(tmp_path)
    assert not cases and [one.reason for one in skipped] == ["impossible figures"]
