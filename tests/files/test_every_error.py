"""All that is wrong with a file is said at once, each with its place, and nothing that is right."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import files
from planner.errors import InputError
from planner.plan.plan_file import Plan
from planner.specs.hardware.cluster import Cluster
from planner.specs.hardware.node_cluster import NodeCluster
from planner.specs.job import Job
from planner.specs.model import Model
from tests.examples import examples
from tests.files.test_error_location import JOB, WRONG
from tests.plans import sharded_plan

MANY = """\
format: planner.job/1
nam: small
model: tiny-decoder
cluster: 4
workload:
  lengths: {from: mixx, parts: []}
  batch_row: many
  max_tokens: 0
layout: {zero: 7, dtyp: bf16, recompute: ful}
degres: [1, x]
sequence_length: 8192
limits: {tokens_per_rank: 1024, q: 1}
sync: steps
"""
ALL = [
    ("2:1", "nam", "unknown key `nam`", "did you mean `name`?"),
    ("4:10", "cluster", "expected text, this is `4`", "write text"),
    ("6:19", "workload.lengths.from", "`mixx` is not possible here", "did you mean `mix`?"),
    ("7:3", "workload.batch_row", "unknown key `batch_row`", "did you mean `batch_rows`?"),
    ("7:14", "workload.batch_rows", "expected a whole number, this is `many`", "write a whole number"),
    ("8:15", "workload.max_tokens", "expected a whole number >= 1", ">= 1"),
    ("9:16", "layout.zero", "expected a whole number <= 3", "<= 3"),
    ("9:19", "layout.dtyp", "unknown key `dtyp`", "did you mean `dtype`?"),
    ("9:42", "layout.recompute", "`ful` is not possible here", "did you mean `full`?"),
    ("10:1", "degres", "unknown key `degres`", "did you mean `degrees`?"),
    ("10:13", "degrees[1]", "expected a whole number, this is `x`", "write a whole number"),
    ("11:1", "sequence_length", "unknown key `sequence_length`", "workload: {lengths: 8192"),
    ("12:33", "limits.q", "unknown key `q`", "remove it"),
    ("13:7", "sync", "`steps` is not possible here", "did you mean `step`?"),
]


def errors_of(text, kind=Job) -> tuple[InputError, ...]:
    with pytest.raises(InputError) as caught:
        files.parse(text, kind, "job.yaml")
    return caught.value.errors


def test_all_that_is_wrong_is_said_in_the_order_of_the_file():
    found = errors_of(MANY)
    assert [error.where for error in found] == [f"job.yaml:{place} ({path})" for place, path, _, _ in ALL]
    for error, (_, _, message, fix) in zip(found, ALL, strict=True):
        assert message in error.message and fix in error.fix


def test_as_text_it_is_three_lines_each():
    with pytest.raises(InputError) as caught:
        files.parse(MANY, Job, "job.yaml")
    assert len(str(caught.value).splitlines()) == 3 * len(ALL)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(("old", "new", "place", "path", "message", "fix"), WRONG)
def test_one_thing_that_is_wrong_is_one_error(old, new, place, path, message, fix):
    assert len(errors_of(JOB.replace(old, new, 1))) == 1


def test_missing_keys_are_all_named():
    found = errors_of("format: planner.job/1\nstrategy: best\n")
    assert [error.message for error in found] == [
        f"the key `{key}` is missing" for key in ("name", "model", "cluster", "workload")
    ]


def test_a_law_that_is_broken_is_said_beside_a_typo():
    text = """\
format: planner.model/1
name: m
source: s
modules:
  llm: {kind: decoder, layers: 2, hidden: 10, heads: 3, ffn: 4, vocab: 5}
edgs: []
"""
    law, typo = errors_of(text, Model)
    assert "not divisible by heads" in law.message and "did you mean `edges`?" in typo.fix
    found = errors_of("format: planner.cluster/1\nname: n\nnode: 1\ngpus: x\nnics: y\n", NodeCluster)
    assert [error.where.partition(" ")[2] for error in found] == ["(node)", "(gpus)", "(nics)"]


KEYS = ["name", "model", "cluster", "degrees", "limits", "fix"]


@pytest.mark.slow
@examples(100)
@given(st.sets(st.sampled_from(KEYS), min_size=1))
def test_each_misspelt_key_is_said_once(keys):
    text = JOB
    for key in keys:
        text = text.replace(f"\n{key}:", f"\n{key}{key[-1]}x:", 1)
    assert sorted(error.message for error in errors_of(text)) == sorted(f"unknown key `{k}{k[-1]}x`" for k in keys)


def test_errors_of_a_large_plan_are_few():
    text = files.dump(sharded_plan(4, [[(0, 2), (2, 1)], [(0, 4)]])).replace("ranks:", "rank:")
    assert 1 <= len(errors_of(text, Plan)) <= 20


def test_a_cluster_of_levels_is_not_half_a_law():
    """A wrong value is no reason to say that the levels do not fit."""
    text = (
        "format: planner.cluster/1\nname: c\nsource: s\nranks: [{kind: cpu, count: x, per_node: 4}]\n"
        "levels: [{name: node, ranks: 4, gb_per_s: fast, latency_us: 1}]\n"
    )
    assert [error.message.partition(",")[0] for error in errors_of(text, Cluster)] == [
        "expected a whole number",
        "expected a number",
    ]
