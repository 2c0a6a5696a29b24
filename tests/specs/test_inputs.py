"""A job with all that it names: by shipped name or by path, from its own folder, and every way not to find it."""

from pathlib import Path

import pytest

from planner import files
from planner.errors import InputError
from planner.specs import library
from planner.specs.hardware.cluster import Cluster, device_of_rank, nearest_level
from planner.specs.hardware.profile import Profile
from planner.specs.inputs import JobOptions, load_job
from planner.specs.job import Job
from planner.specs.model import Model
from planner.strategies.plan_drafts import source_file

JOB = """\
format: planner.job/1
name: small
model: {model}
cluster: {cluster}
profile: {profile}
workload: {{lengths: {lengths}, batch_rows: 4, max_tokens: 2048{more}}}
"""
HERE = {
    "model": "tiny-decoder",
    "cluster": "cpu-4",
    "profile": "cpu",
    "lengths": "{from: file, path: rows.txt}",
    "more": "",
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "rows.txt").write_text("5\n6\n7\n8\n9\n10\n11\n12\n")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def job(folder, **fields) -> str:
    (folder / "job.yaml").write_text(JOB.format(**HERE | fields))
    return str(folder / "job.yaml")


def test_names_mean_what_is_shipped_and_paths_lie_beside_the_job(folder, monkeypatch):
    model = (library.shipped_folder() / "models/tiny-vit.yaml").read_text()
    (folder / "mine.yaml").write_text(model.replace("name: tiny-vit", "name: mine"))
    path = job(folder, model="./mine.yaml")
    monkeypatch.chdir("/")
    inputs = load_job(path, JobOptions(batches=2))
    assert (inputs.model.name, inputs.module, inputs.cluster.size, inputs.device.kind) == ("mine", "vision", 4, "cpu")
    assert [batch.items for batch in inputs.batches] == [{0: 5, 1: 6, 2: 7, 3: 8}, {4: 9, 5: 10, 6: 11, 7: 12}]
    assert set(inputs.sources) == {"job", "model", "cluster", "device cpu", "profile", "software", "lengths"}


@pytest.mark.parametrize("lengths", ["512", "{from: fixed, tokens: 512}"])
def test_a_job_of_one_length(folder, lengths):
    assert load_job(job(folder, lengths=lengths), JobOptions()).batches[0].items == dict.fromkeys(range(4), 512)


def test_lengths_of_the_command_line_are_from_where_one_is(folder, monkeypatch):
    (folder / "elsewhere").mkdir()
    (folder / "elsewhere/rows.csv").write_text("tokens\n100\n200\n300\n400\n")
    monkeypatch.chdir(folder / "elsewhere")
    inputs = load_job(job(folder), JobOptions(lengths="rows.csv"))
    assert inputs.batches[0].items == {0: 100, 1: 200, 2: 300, 3: 400}
    assert inputs.sources["lengths"] == folder / "elsewhere/rows.csv"


def test_auto_takes_what_was_measured_here_then_what_is_shipped(folder):
    path = job(folder, profile="auto")
    assert load_job(path, JobOptions()).sources["profile"] == library.shipped_folder() / "devices/cpu.yaml"
    measured = folder / "cache/planner/profiles/cpu.yaml"
    measured.parent.mkdir(parents=True)
    measured.write_text(
        (library.shipped_folder() / "devices/cpu.yaml").read_text().replace("name: cpu", "name: measured")
    )
    assert load_job(path, JobOptions()).profile.name == "measured"
    assert load_job(job(folder, profile="cpu"), JobOptions()).profile.name == "cpu"


@pytest.mark.parametrize(
    ("fields", "message", "fix"),
    [
        ({"model": "tiny"}, "no model is called `tiny`", "tiny-decoder"),
        ({"cluster": "moon"}, "no cluster is called `moon`", "cpu-4"),
        ({"profile": "x" * 300}, "no device is called `x", "cpu"),
        ({"profile": "'nul\\0'"}, "no device is called", "cpu"),
        ({"model": "./none.yaml"}, "cannot read the file", "check the path"),
        ({"model": "./job.yaml"}, "expected a planner.model/1 file", "begin it with"),
        ({"model": "config.json"}, "`config.json` is no model file", "planner import hf config.json"),
        ({"lengths": "{from: file, path: none.txt}"}, "cannot read the file", "check the path"),
        ({"lengths": "{from: distribution, name: moon}"}, "no distribution is called `moon`", "wikipedia"),
        ({"more": ", module: vit"}, "names module `vit`, the model has llm", "name one of them"),
        ({"model": "qwen2.5-vl-7b"}, "names no module, the model has", "name one of them"),
    ],
)  # fmt: skip
def test_what_is_not_there_is_named(folder, fields, message, fix):
    with pytest.raises(InputError) as caught:
        load_job(job(folder, **fields), JobOptions())
    assert message in caught.value.message and fix in caught.value.fix


@pytest.mark.parametrize("kind", [Model, Cluster, Profile, Job])
def test_every_shipped_name_is_found(kind):
    assert library.shipped_names(kind)
    for name in library.shipped_names(kind):
        assert library.read_named(name, kind)[0].name == name


def test_sources_are_said_the_same_from_everywhere(folder, monkeypatch):
    """Shipped files by their place in `profiles`, others from the job's folder; a shipped job has none to be near."""
    inside, outside = library.shipped_folder() / "models/k2-65b.yaml", folder / "data" / "rows.txt"
    outside.parent.mkdir()
    outside.write_text("5\n")
    for place in (folder, Path("/"), library.shipped_folder()):
        monkeypatch.chdir(place)
        assert source_file(inside, folder / "job.yaml").path == "profiles/models/k2-65b.yaml"
        assert source_file(outside, folder / "job.yaml").path == "data/rows.txt"
        assert source_file(outside, folder / "jobs/job.yaml").path == "../data/rows.txt"
        assert source_file(outside, library.shipped_folder() / "jobs/demo-cpu-4.yaml").path == str(outside.resolve())
    assert source_file(outside, folder / "job.yaml").sha256 == files.digest(outside) != files.digest(inside)


def test_ranks_are_numbered_by_kind_and_joined_by_the_nearest_level():
    cluster, _ = library.read_named("a100x64", Cluster)
    assert [nearest_level(cluster, *pair).name for pair in ((0, 7), (7, 8), (8, 15), (0, 63))] == [
        *("node", "cluster", "node", "cluster")
    ]
    two = files.parse(
        "format: planner.cluster/1\nname: c\nsource: s\n"
        "ranks: [{kind: a, count: 2, per_node: 2}, {kind: b, count: 3, per_node: 3}]\n"
        "levels: [{name: n, ranks: 5, gb_per_s: 1, latency_us: 1}]\n",
        Cluster,
        "c",
    )
    assert [device_of_rank(two, rank) for rank in range(5)] == ["a", "a", "b", "b", "b"]
