"""Files are read up to what their kind may have, whatever they unpack to; and the page about them says how much."""

import gzip
import re

import pytest

from planner.errors import InputError
from planner.files import bounded_read, read_csv, read_head, read_json, read_text
from planner.files.bounded_read import TABLE, TEXT, FileKind, read_bytes
from planner.files.yaml_text import MAX_DEPTH, load_yaml
from planner.models.checkpoints.safetensors_files import HEADER_BYTES
from planner.units import byte_size
from tests.documents import DOCS
from tests.hostile_files import limited
from tests.house import ROOT
from tests.sources import named

ELSEWHERE = {  # what is read otherwise: files of the system, of this process, and of the package
    *("programs/cbc.py", "programs/solver_process.py", "runtime/execute/training_loop.py", "launch/hangs.py"),
    *("launch/task_board.py", "profiling/measurement_context.py", "report/page.py", "files/bounded_read.py"),
    *("runtime/state/kept_features.py", "runtime/checkpoint/checkpoint_index.py", "runtime/measure/metrics_file.py"),
    *("specs/workload/token_folder.py", "graphs/read_graph.py"),  # which ask first whether it is a regular file
}
READS = re.compile(
    r"(?<!os\.)(?<!_)\bopen\([^\"]*(\)|\"r)|(?<!files)\.read_(text|bytes)\(|gzip\.(open|decompress)|np\.load\(|csv\.reader"
)
SMALL = FileKind("small file", 100, records=5)


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_as_much_as_a_kind_may_have_is_read_and_no_more(tmp_path, pack):
    for size in (0, 1, 99, 100):
        (tmp_path / "file").write_bytes(pack(b"x" * size))
        assert read_bytes(tmp_path / "file", SMALL) == b"x" * size
        assert read_head(tmp_path / "file", 7) == b"x" * min(7, size)
    (tmp_path / "file").write_bytes(pack(b"x" * 101))
    with pytest.raises(InputError, match="a small file of more than 100 B is not read"):
        read_bytes(tmp_path / "file", SMALL)


def test_records_are_counted_and_what_is_no_text_has_its_line(tmp_path):
    path = tmp_path / "table.csv"
    path.write_bytes(b"a\n" * 6)
    assert [*read_csv(path, SMALL)] == [(line, ["a"]) for line in range(1, 7)]
    path.write_bytes(b"a\n" * 7)
    with pytest.raises(InputError, match="more than 5 records") as refused:
        [*read_csv(path, SMALL)]
    assert refused.value.where == f"{path}:7"
    path.write_bytes(b"a\nb\n\xff\n")
    for read in (lambda: [*read_csv(path)], lambda: read_text(path)):
        with pytest.raises(InputError, match="not UTF-8") as refused:
            read()
        assert refused.value.where == f"{path}:3"


@pytest.mark.soak
def test_dense_files_are_refused_in_little_memory(tmp_path):
    """Of as many values as there is room for: mappings of mappings, lists, deep ones, distinct keys."""
    texts = [
        b"[" + b"[]," * 10**7 + b"]",
        b"[" * 49 + b"1," * 10**6 + b"]" * 49,
        b"".join(b"%d: {},\n" % k for k in range(10**6)),
    ]
    for text in (*texts, b"{" + texts[2] + b"}", b"[" + b'{"":{}},' * 4 * 10**6 + b"]"):
        (tmp_path / "file").write_bytes(text)
        for read in (lambda: load_yaml(read_text(tmp_path / "file"), "x"), lambda: read_json(tmp_path / "file", "fix")):
            with limited(), pytest.raises(InputError):
                read()


def test_the_page_has_the_limits():
    page = (DOCS / "trust.md").read_text()
    kinds = {each.name: each for each in vars(bounded_read).values() if isinstance(each, FileKind)}
    told = re.findall(r"^\| ([\w. ]+) \| .* \| ([\d.]+ MiB) \| (no|may be) \| ([\d,]*) ?\|$", page, re.MULTILINE)
    assert {name for name, *_ in told} == {*kinds} - {bounded_read.WHOLE.name}
    for name, most, packed, records in told:
        kind = kinds[name]
        assert (most, packed == "may be") == (byte_size(kind.most), kind.gzipped)
        assert not records or records == f"{kind.records:,}"
    assert f"safetensors file has {byte_size(HEADER_BYTES)}" in page and f"nested {MAX_DEPTH} deep" in page
    assert TABLE.records and not TEXT.gzipped


def test_nobody_else_reads_files():
    found = {named(path) for path in ROOT.rglob("*.py") if READS.search(path.read_text())}
    assert {name.removeprefix("planner/") for name in found} == ELSEWHERE
