"""Cells are read with their types, lines are counted as an editor does, and what is no such file is located."""

import pytest

from planner.errors import InputError
from planner.published.record_files import UnusableRecord, is_published_file, read_records
from tests.published.made_records import COLUMNS, record, write


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("8", 8),
        (" 8.5 ", 8.5),
        ("1,024", 1024),
        ("1,024,000.5", 1024000.5),
        ("~704", 704),
        ("1e3", 1000),
        (".5", 0.5),
        ("43.5 %", 43.5),
        ("", None),
        ("None", None),
    ],
)
def test_numbers_as_tables_write_them(text, value):
    assert record(gbs=text).number("gbs") == value


@pytest.mark.parametrize("text", ["8 (4)", "13,4", "1,0240", "eight", "1e999", "8.7  5", "--3", "9" * 400])
def test_what_is_no_number_is_named(text):
    with pytest.raises(UnusableRecord) as why:
        record(gbs=text).number("gbs")
    assert why.value.reason == "unreadable number"
    assert "gbs" in why.value.detail


def test_counts_are_whole_and_from_one():
    assert record(tp="4.0").count("tp") == 4
    assert record(tp="0").degree("tp") is None
    for text in ("0", "-1", "2.5"):
        with pytest.raises(UnusableRecord):
            record(tp=text).count("tp")


def test_lines_are_where_rows_begin(tmp_path):
    path = write(tmp_path / "a.csv", {"notes": "two\nlines"}, {}, {})
    assert [each.line for each in read_records(path)] == [2, 4, 5]


def test_an_open_quote_is_located_and_hides_no_record(tmp_path):
    path = write(tmp_path / "a.csv", {}, {}, {})
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], '"' + lines[1], *lines[2:]]) + "\n")
    with pytest.raises(InputError) as why:
        [*read_records(path)]
    assert why.value.where.startswith(str(path)) and "CSV" in str(why.value)


def test_a_file_that_lacks_a_needed_column_is_located(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("row_id,source_id,gpu\n1,s,H100\n")
    assert is_published_file(path)
    with pytest.raises(InputError, match="no column model, n_gpus, status") as error:
        list(read_records(path))
    assert error.value.where.endswith("a.csv:1")


def test_other_tables_are_none_of_ours(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("m,n,k,latency\n1,2,3,4\n")
    assert not is_published_file(path)
    path.write_text("")
    assert not is_published_file(path)


def test_what_is_no_text_is_located(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(",".join(COLUMNS).encode() + b"\n\xff\xfe,\n")
    with pytest.raises(InputError, match="not UTF-8") as error:
        list(read_records(path))
    assert error.value.where.endswith("a.csv:2")


def test_a_byte_order_mark_and_capitals_in_the_header_are_no_matter(tmp_path):
    path = write(tmp_path / "a.csv", {})
    path.write_text("\ufeff" + path.read_text().replace("row_id", "Row_ID"))
    assert [each.text("row_id") for each in read_records(path)] == ["made-1"]
