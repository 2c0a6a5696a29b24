"""Rows of a workload: every kind of file, rounding and dropping, and what is no length."""

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import InputError
from planner.specs.workload.length_sources import (
    Distribution,
    FixedLength,
    LengthsFile,
    LogNormal,
    LogNormalMix,
    Workload,
)
from planner.specs.workload.samples import SampleBatch, read_batches, read_lengths


def workload(path="lengths.txt", rows=3, **fields) -> Workload:
    fields = {"max_tokens": 1000, "lengths": LengthsFile(path=str(path))} | fields
    return Workload(batch_rows=rows, **fields)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("plain.txt", "5\n 17 \n\n3\n"),
        ("windows.txt", "5\r\n17\r\n3\r\n"),
        ("bare.csv", "tokens\n5\n17\n\n3\n"),
        ("columns.csv", 'id,tokens,text\n1,5,a\n2,17,"b, c"\n3,3,d\n'),
        ("excel.csv", "\ufefftokens\n5\n17\n3\n"),
    ],
)
@pytest.mark.parametrize("zipped", [False, True])
def test_a_length_a_line_or_a_column(tmp_path, name, text, zipped):
    path = tmp_path / (name + ".gz" * zipped)
    data = text.encode()
    path.write_bytes(gzip.compress(data) if zipped else data)
    assert read_lengths(path, "tokens") == [5, 17, 3]


@pytest.mark.parametrize(
    ("data", "where", "message"),
    [
        (b"", "", "empty"),
        (b"5\n-3\n", ":2", "`-3` is no length"),
        (b"5\n0\n", ":2", "`0` is no length"),
        (b"-5\n", ":1", "`-5` is no length"),
        (b"5\n--5\n", ":2", "`--5` is no length"),
        (b"5\n1e3\n", ":2", "`1e3` is no length"),
        ("5\n²\n".encode(), ":2", "`²` is no length"),
        (b"5\n" + b"9" * 5000 + b"\n", ":2", "is no length"),
        (b"5\n2000000000\n", ":2", "is no length"),
        (b"words\n5\n", ":1", "no column `tokens`"),
        (b"\n5\n", ":1", "no column `tokens`"),
        (b"id,tokens\n1\n", ":2", "`` is no length"),
        (b"tokens\n\"" + b"5" * 200_000 + b"\"\n", ":2", "this is not CSV"),
        (b"\xff\xfe", ":1", "not a text file"),
    ],
)  # fmt: skip
def test_what_is_no_file_of_lengths(tmp_path, data, where, message):
    path = tmp_path / "lengths.csv"
    path.write_bytes(data)
    with pytest.raises(InputError) as caught:
        read_lengths(path, "tokens")
    assert message in caught.value.message
    assert caught.value.where == f"{path}{where}" and caught.value.fix


@given(st.integers(0, 60), st.integers(0, 255))
def test_a_damaged_gzip_file_is_refused(tmp_path_factory, place, byte):
    whole = gzip.compress(b"tokens\n5\n17\n300\n")
    path = tmp_path_factory.mktemp("gz") / "lengths.csv.gz"
    for data in (whole[:place], whole[:place] + bytes([byte]) + whole[place + 1 :]):
        path.write_bytes(data)
        try:
            assert all(length > 0 for length in read_lengths(path, "tokens"))
        except InputError as error:
            assert str(path) in error.where and error.fix


def test_a_missing_file(tmp_path):
    for path in (tmp_path / "none.csv", tmp_path, tmp_path / "nul\0byte"):
        with pytest.raises(InputError, match="cannot read the file"):
            read_lengths(path, "tokens")


@pytest.fixture
def data(tmp_path):
    (tmp_path / "lengths.txt").write_text("\n".join(map(str, [10, 129, 2000, 128, 1, 1000, 1001])))
    return tmp_path


def test_batches_are_the_next_rows_rounded_up_without_those_too_long(data):
    first, second = read_batches(workload(round_to=128), 2, 0, 0, data)
    assert first == SampleBatch({0: 128, 1: 256}, (2,))
    assert second == SampleBatch({3: 128, 4: 128, 5: 1024}, ())
    (later,) = read_batches(workload(), 1, 4, 0, data)
    assert later == SampleBatch({4: 1, 5: 1000}, (6,))


@pytest.mark.parametrize(
    ("count", "first", "rows", "message"),
    [
        (3, 0, 3, "end at sample 9, the data has 7"),
        (1, 5, 3, "end at sample 8"),
        (1, 2, 1, "every sample of the batch from sample 2 on is longer than 1000 tokens"),
        (10**9, 0, 10**6, "beyond sample"),
    ],
)
def test_batches_that_are_not_there(data, count, first, rows, message):
    with pytest.raises(InputError, match=message) as caught:
        read_batches(workload(rows=rows), count, first, 0, data)
    assert caught.value.where.startswith("workload") and caught.value.fix


@pytest.mark.parametrize(
    "lengths",
    [
        Distribution(name="wikipedia"),
        Distribution(name="github"),
        LogNormalMix(parts=(LogNormal(weight=1, median=300, sigma=1),)),
    ],
)
def test_later_batches_do_not_depend_on_how_many_are_asked_for(lengths, tmp_path):
    drawn = workload(rows=10, lengths=lengths, max_tokens=10**9)
    three = read_batches(drawn, 3, 0, 7, tmp_path)
    assert read_batches(drawn, 1, 20, 7, tmp_path) == three[2:]
    assert read_batches(drawn, 3, 0, 8, tmp_path) != three


@pytest.mark.parametrize("lengths", [8192, FixedLength(tokens=8192)])
def test_all_samples_of_a_fixed_length(lengths, tmp_path):
    """No limit need be said; a lower one drops all, and rounding is as of any length."""
    fixed = Workload(lengths=lengths, batch_rows=3)
    assert [batch.items for batch in read_batches(fixed, 2, 3, 0, tmp_path)] == [
        {3: 8192, 4: 8192, 5: 8192},
        {6: 8192, 7: 8192, 8: 8192},
    ]
    assert read_batches(Workload(lengths=lengths, batch_rows=1, round_to=5000), 1, 0, 0, tmp_path)[0].items == {
        0: 10000
    }
    with pytest.raises(InputError, match="longer than 8191 tokens"):
        read_batches(Workload(lengths=lengths, batch_rows=1, max_tokens=8191), 1, 0, 0, tmp_path)
