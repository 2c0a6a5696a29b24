"""Every error in a file has its line, column and key path, and a fix."""

import os

import pytest

from planner import files
from planner.errors import InputError
from planner.files.yaml_text import MAX_DEPTH
from planner.plan.plan_file import Plan
from planner.specs.hardware.cluster import Cluster
from planner.specs.job import Job
from planner.specs.model import Model
from tests.plans import sharded_plan

JOB = """\
format: planner.job/1
name: small
model: tiny-decoder
cluster: cpu-4
workload:
  lengths: {from: mix, parts: [{weight: 1, median: 300, sigma: 0.8}]}
  batch_rows: 16
  max_tokens: 2048
degrees: [1, 2, 4]
limits: {tokens_per_rank: 1024}
fix: {items: {3: {degree: 2}}}
"""
# text, what replaces it → place, path, part of the message, part of the fix
WRONG = [
    ("degrees:", "degres:", "9:1", "degres", "unknown key `degres`", "did you mean `degrees`?"),
    ("degrees:", "qqq:", "9:1", "qqq", "unknown key `qqq`", "use one of cluster, degrees"),
    ("sigma: 0.8", "sigma: 0.8, s: 1", "6:69", "workload.lengths.parts[0].s", "`s`", "remove it"),
    ("name: small\n", "", "1:1", "the whole file", "the key `name` is missing", "add `name:` here"),
    ("  batch_rows: 16\n", "", "6:3", "workload", "`batch_rows` is missing", "add `batch_rows:`"),
    ("16", "many", "7:15", "workload.batch_rows", "a whole number, this is `many`", "write a whole"),
    ("16", "'16'", "7:15", "workload.batch_rows", "a whole number, this is the text `16`", "without quotes"),
    ("16", "16.5", "7:15", "workload.batch_rows", "a whole number, this is `16.5`", "write a whole number"),
    ("16", "-16", "7:15", "workload.batch_rows", "a whole number >= 1, this is `-16`", ">= 1"),
    ("16", "9" * 30, "7:15", "workload.batch_rows", "a whole number", "write a whole number"),
    ("0.8", ".nan", "6:64", "workload.lengths.parts[0].sigma", "a number, this is `.nan`", "write a number"),
    ("0.8", ".inf", "6:64", "workload.lengths.parts[0].sigma", "a number, this is `.inf`", "write a number"),
    ("16", "", "7:14", "workload.batch_rows", "a whole number, this is nothing", "write a whole number"),
    ("small", "3", "2:7", "name", "expected text, this is `3`", "write text here"),
    ("{tokens_per_rank: 1024}", "[1024]", "10:9", "limits", "a mapping, this is a list", "a mapping"),
    ("[1, 2, 4]", "{1: 2}", "9:10", "degrees", "expected a list, this is a mapping", "write a list"),
    ("[1, 2, 4]", "[1, x, 4]", "9:14", "degrees[1]", "a whole number, this is `x`", "write a whole number"),
    ("{degree: 2}", "{degree: x}", "11:27", "fix.items[3].degree", "this is `x`", "write a whole number"),
    ("{3: {", "{x: {", "11:15", "fix.items.x", "expected a whole number, this is `x`", "write a whole number"),
    ("{3: {", "{-3: {", "11:15", "fix.items[-3]", "a whole number >= 0, this is `-3`", ">= 0"),
    ("limits:", "sync: never\nlimits:", "10:7", "sync", "`never` is not possible here", "one of micro_batch, step"),
    ("limits:", "sync: steps\nlimits:", "10:7", "sync", "`steps` is not possible", "did you mean `step`?"),
    ("from: mix", "from: mixx", "6:19", "workload.lengths.from", "`mixx` is not possible", "did you mean `mix`?"),
    ("limits:", "name: again\nlimits:", "10:1", "name", "the key `name` occurs twice", "remove one of the two"),
    ("{degree: 2}", "{degree: 2, degree: 3}", "11:30", "fix.items[3].degree", "twice", "remove one"),
    ("small", "&n small\nstrategy: *n", "3:11", "strategy", "aliases (*name) are not supported", "write it out"),
    ("limits:", "? [1]\n: 2\nlimits:", "10:3", "the whole file", "a key must be a word", "a plain key"),
    ("job/1", "job/2", "1:9", "format", "planner.job/2 cannot be read by this version", "upgrade planner"),
    ("job/1", "plan/1", "1:9", "format", "expected a planner.job/1 file, this one says", "format: planner"),
    ("format: planner.job/1\n", "", "1:1", "format", "does not say its format", "begin it with `format: planner"),
    ("limits:", "---\nlimits:", "10:1", None, "a second document begins here", "one document"),
    ("[1, 2, 4]", "[1, 2, 4", "10:7", None, "this is not YAML", "fix the syntax there"),
    ("  batch_rows", "\tbatch_rows", "7:1", None, "this is not YAML", "fix the syntax there"),
    ("small", "sm\x07all", "2:9", None, "the control character U+0007", "remove it"),
    ("small", "sm\0all", "2:9", None, "the control character U+0000", "remove it"),
]  # fmt: skip


def error_of(text, kind=Job):
    with pytest.raises(InputError) as caught:
        files.parse(text, kind, "job.yaml")
    return caught.value


def test_the_job_is_right_as_it_stands():
    assert files.parse(JOB, Job, "job.yaml").name == "small"


@pytest.mark.parametrize(("old", "new", "place", "path", "message", "fix"), WRONG)
def test_an_error_says_where_what_and_how_to_mend_it(old, new, place, path, message, fix):
    error = error_of(JOB.replace(old, new, 1))
    assert error.where.startswith(f"job.yaml:{place}")
    assert path is None or error.where.endswith(f"({path})")
    assert message in error.message
    assert fix in error.fix
    assert len(str(error).splitlines()) == 3


def test_null_is_a_value_like_any_other():
    assert files.parse(JOB.replace("1024", "null"), Job, "job.yaml").limits.tokens_per_rank is None


@pytest.mark.parametrize(
    ("text", "value"),
    [("1e3", 1000.0), ("1_000", None), ("0x10", None), ("on", None), ("+2", 2), (".5", 0.5), ("1.", 1.0), ("-0", 0)],
)
def test_numbers_are_those_of_yaml_1_2(text, value):
    written = JOB.replace("sigma: 0.8", f"sigma: {text}")
    if value is None:
        assert "expected a number" in error_of(written).message
    else:
        assert files.parse(written, Job, "job.yaml").workload.lengths.parts[0].sigma == value


@pytest.mark.parametrize("text", ["[" * 200_000, "a: " + "{b: " * 5000, "- " * 5000, "[" * 60 + "]" * 60])
def test_depth_is_refused_and_exhausts_nothing(text):
    assert error_of(text).message == "the file is nested too deeply"


def test_a_nest_within_the_limit_is_no_error_of_its_own():
    assert "expected" in error_of(JOB + "profile: " + "[" * (MAX_DEPTH - 1) + "]" * (MAX_DEPTH - 1)).message


@pytest.mark.parametrize(("text", "message"), [("", "empty"), ("# nothing\n", "empty"), ("word", "not a planner file")])
def test_what_is_no_file_of_ours(text, message):
    error = error_of(text)
    assert message in error.message and "begin it with `format: planner.job/1`" in error.fix


def test_files_that_cannot_be_read(tmp_path):
    (tmp_path / "binary.yaml").write_bytes(b"a: 1\nb: \xff\xfe")
    for path, message, where in (
        (tmp_path / "none.yaml", "No such file", "none.yaml"),
        (tmp_path, "this is a folder", str(tmp_path)),
        (tmp_path / "binary.yaml", "it is not UTF-8", "binary.yaml:2"),
        ("nul\0byte", "null byte", "nul"),
        ("x" * 5000, "File name too long", "xxx"),
    ):
        with pytest.raises(InputError) as caught:
            files.read(path, Job)
        assert message in caught.value.message and where in caught.value.where and caught.value.fix


def test_a_rule_of_a_spec_is_located_too():
    module = "{kind: decoder, layers: 1, hidden: 10, heads: 3, ffn: 1, vocab: 1}"
    error = error_of(f"format: planner.model/1\nname: m\nsource: s\nmodules:\n  llm:\n    {module}\n", Model)
    assert (error.where, error.message) == ("job.yaml:6:5 (modules.llm)", "hidden 10 is not divisible by heads 3")
    assert error.fix == "change one, or set head_dim"
    ranks, level = "{kind: cpu, count: 8, per_node: 8}", "{name: n, ranks: 4, gb_per_s: 1, latency_us: 1}"
    cluster = f"format: planner.cluster/1\nname: c\nsource: s\nranks: [{ranks}]\nlevels: [{level}]\n"
    error = error_of(cluster, Cluster)
    assert error.where.startswith("job.yaml:1:1") and "connects 4 of 8 ranks" in error.message
    assert error.fix == "let it connect all"


def test_the_hidden_key_is_found_among_many():
    """msgspec says `$.uses.items[...][...]`; the place is found without reading the file once for every key."""
    sizes = ", ".join(f"{i}: 9" for i in range(20_000))
    text = files.dump(sharded_plan(4, [[(0, 4)]])).replace("{0: 16}", f"{{{sizes}}}")
    error = error_of(text.replace("17333: 9", "17333: x"), Plan)
    assert error.where.endswith("(uses.items.llm[17333])") and "this is `x`" in error.message


def test_writing_is_whole_or_not_at_all(tmp_path):
    path = tmp_path / "deep" / "file.yaml"
    files.write(path, {"a": 1})
    assert path.read_text() == "a: 1\n"
    (tmp_path / "file").write_text("")
    for target in (tmp_path / "file" / "under.yaml", tmp_path / "deep"):
        with pytest.raises(InputError, match="cannot write"):
            files.write(target, {"a": 2})
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["deep", "file", "file.yaml"]
    assert os.stat(path).st_mode & 0o777 == 0o644


def test_a_pipe_is_written_to_and_never_replaced(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    files.write_text(pipe, "format: x\n")
    assert os.read(reader, 100) == b"format: x\n"
    os.close(reader)
    assert pipe.is_fifo()


def test_where_a_link_leads_is_written(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "file")
    files.write_text(tmp_path / "link", "one\n")
    files.write_text(tmp_path / "link", "two\n")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "file").read_text() == "two\n"


def test_a_byte_order_mark_is_no_part_of_a_file(tmp_path):
    (tmp_path / "a").write_bytes(b"\xef\xbb\xbfformat: x\n")
    assert files.read_text(tmp_path / "a") == "format: x\n"


def test_a_job_where_a_plan_is_wanted_says_how_to_make_one(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text("format: planner.job/1\nname: j\n")
    with pytest.raises(InputError, match=r"expected a planner\.plan/1 file") as refused:
        files.read(path, Plan)
    assert refused.value.fix == f"planner solve {path}"
