"""Tables are read whole or not at all, and an error says on which line."""

import pytest

from planner.calibrate.kernel_tables import read_table
from planner.errors import InputError
from tests.calibrate.generated_tables import write

NUMBERS = {"m": None, "latency": None}
HEADER = ("m", "kind", "latency")


def test_plain_and_compressed_tables_say_the_same(tmp_path):
    rows = [(1, "a", 0.5), (2, "b", 1.5)]
    tables = [
        read_table(write(tmp_path / name, HEADER, rows), NUMBERS, {"kind": None}) for name in ("t.csv", "t.csv.gz")
    ]
    for table in tables:
        assert table.numbers["m"].tolist() == [1, 2]
        assert table.seconds.tolist() == pytest.approx([0.5e-3, 1.5e-3])
        assert table.only(kind="b").numbers["m"].tolist() == [2]
        assert table.only(kind="b").location(0).endswith(":3")


def test_a_column_that_is_constant_may_be_missing(tmp_path):
    table = read_table(
        write(tmp_path / "t.csv", HEADER, [(1, "a", 1)]), {**NUMBERS, "head_dim": 128.0}, {"dtype": "bf16"}
    )
    assert table.numbers["head_dim"].tolist() == [128.0]
    assert table.words["dtype"].tolist() == ["bf16"]


@pytest.mark.parametrize("bad", [(2, "b"), ("x", "b", 1), (2, "b", 0), (2, "b", "nan"), (2, "b", -1), (2, "b", "inf")])
def test_a_bad_row_is_named_with_its_line(tmp_path, bad):
    path = write(tmp_path / "t.csv", HEADER, [(1, "a", 1), bad])
    with pytest.raises(InputError) as error:
        read_table(path, NUMBERS, {"kind": None})
    assert error.value.where == f"{path}:3"


def test_no_column_no_rows_no_file(tmp_path):
    with pytest.raises(InputError, match="no column `n`"):
        read_table(write(tmp_path / "t.csv", HEADER, [(1, "a", 1)]), {**NUMBERS, "n": None})
    with pytest.raises(InputError, match="no rows"):
        read_table(write(tmp_path / "e.csv", HEADER, []), NUMBERS)
    (tmp_path / "no.csv.gz").write_bytes(b"no archive")
    for name, message in (("missing.csv", "cannot read"), ("no.csv.gz", "no rows")):
        with pytest.raises(InputError, match=message):
            read_table(tmp_path / name, NUMBERS)
