"""One profile for each kind of rank: measured here, shipped, or named where its device is the one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import files
from planner.errors import InputError
from planner.specs import library
from planner.specs.base import with_fields
from planner.specs.hardware.cluster import entries_of_kind, entry_name, entry_of_kind
from planner.specs.hardware.profile import CollectiveCosts, CollectivePoint, ModuleCosts, PassCosts, PassFit, Profile
from planner.specs.inputs import JobOptions, load_job

JOB = """\
format: planner.job/1
name: small
model: llama-3-8b
cluster: ./cluster.yaml
profile: {}
workload: {{lengths: {{from: file, path: rows.txt}}, batch_rows: 4, max_tokens: 2048}}
"""
CLUSTER = """\
format: planner.cluster/1
name: two kinds
source: made up
ranks: [{kind: h100-80gb, count: 2, per_node: 2}, {kind: a100-40gb, count: 2, per_node: 2}]
levels: [{name: all, ranks: 4, gb_per_s: 25, latency_us: 10}]
"""
WIRES = {"p2p": CollectiveCosts(source="measured", spread=0.1, points=(CollectivePoint(ranks=2, gb_per_s=1),))}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "rows.txt").write_text("5\n6\n7\n8\n")
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def job(folder, profile="auto") -> str:
    (folder / "job.yaml").write_text(JOB.format(profile))
    return str(folder / "job.yaml")


def measured(kind: str, milliseconds: float) -> Profile:
    """A profile as if it had been made on such a rank."""
    passes = PassCosts(both=PassFit(ms=milliseconds))
    costs = {"llama-3-8b/llm": ModuleCosts(source="measured", spread=0.1, layer=passes)}
    return with_fields(library.read_named(kind, Profile)[0], modules=costs, collectives=WIRES)


def test_each_kind_has_what_was_measured_here_else_what_is_shipped(folder):
    assert load_job(job(folder), JobOptions()).profile.modules == {}
    own = library.cache_folder() / "a100-40gb.yaml"
    files.write(own, measured("a100-40gb", 3.0))
    inputs = load_job(job(folder), JobOptions())
    assert set(inputs.profile.modules) == {"llama-3-8b/llm@a100-40gb"}
    assert set(inputs.profile.collectives) == {"p2p@a100-40gb"}
    assert inputs.sources["profile a100-40gb"] == own
    assert inputs.sources["profile h100-80gb"] == library.shipped_folder() / "devices/h100-80gb.yaml"


def test_a_named_profile_holds_for_the_kinds_whose_device_it_states(folder):
    files.write(folder / "mine.yaml", with_fields(measured("a100-40gb", 3.0), name="mine"))
    inputs = load_job(job(folder, "./mine.yaml"), JobOptions())
    assert set(inputs.profile.modules) == {"llama-3-8b/llm@a100-40gb"}
    assert inputs.profile.name == "h100-80gb, mine"
    assert inputs.sources["profile a100-40gb"] == folder / "mine.yaml"


def test_a_named_profile_of_another_device_is_refused_where_there_are_several_kinds(folder):
    with pytest.raises(InputError, match="made on none of h100-80gb, a100-40gb") as caught:
        load_job(job(folder, "h200"), JobOptions())
    assert "(profile)" in caught.value.where and "auto" in caught.value.fix


NAMES = st.sampled_from(["llm", "vit", "gpt-7b/llm"])
KINDS = st.sampled_from(["a", "b", "./c.yaml"])


@given(st.dictionaries(st.tuples(NAMES, KINDS), st.integers()))
def test_entries_of_several_kinds_come_apart_as_they_were_put_together(table):
    among = {kind for _, kind in table}
    joined = {entry_name(name, kind, among): value for (name, kind), value in table.items()}
    assert len(joined) == len(table)
    for kind in among:
        own = {name: value for (name, at), value in table.items() if at == kind}
        assert entries_of_kind(joined, kind) == own
        assert all(entry_of_kind(joined, name, kind) == value for name, value in own.items())
