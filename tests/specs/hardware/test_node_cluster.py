"""Clusters by what people know: nodes, GPUs and adapters expand to ranks and levels, and say what is assumed."""

import pytest

from planner import files
from planner.errors import InputError
from planner.specs import library
from planner.specs.hardware.cluster import Cluster
from planner.specs.hardware.node_cluster import LINKS, NodeAdapters, NodeGpus
from planner.specs.hardware.profile import Profile
from planner.specs.named_files import read_cluster

HEAD = "format: planner.cluster/1\nname: mine\n"


@pytest.fixture
def expanded(tmp_path):
    def expand(text: str) -> Cluster:
        (tmp_path / "cluster.yaml").write_text(HEAD + text)
        return read_cluster(str(tmp_path / "cluster.yaml"))[0]

    return expand


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("nodes: 8\ngpus: 8xh100\nnics: 8x400Gb\n", "h100x64"),
        ("nodes: 128\ngpus: 8 x h100-80gb\nnics: 8 × 400 Gb/s\n", "h100x1024"),
        ("nodes: 32\ngpus: 8xH100\n", "h100x256"),  # the adapters that are usual with the device
        ("nodes: 1\ngpus: 8xh200\n", "h200x8"),
    ],
)
def test_nodes_expand_to_what_is_shipped(expanded, text, name):
    ours, shipped = expanded(text), read_cluster(name)[0]
    assert (ours.ranks, ours.levels) == (shipped.ranks, shipped.levels)
    assert ours.name == "mine"


def test_the_expanded_form_is_a_cluster_file_like_any_other(expanded, tmp_path):
    cluster = expanded("nodes: 4\ngpus: 8xb200\nnics: 4x400Gb\nusd_per_hour: 3.5\n")
    files.write(tmp_path / "again.yaml", cluster)
    assert read_cluster(str(tmp_path / "again.yaml"))[0] == cluster
    assert cluster.ranks[0].usd_per_hour == 3.5
    assert [level.gb_per_s for level in cluster.levels] == [900, 25]  # four ports for eight ranks


def test_the_source_says_what_is_assumed(expanded):
    source = expanded("source: our rack\nnodes: 2\ngpus: 8xh100\nnics: 1x100Gb\n").source
    assert source.startswith("our rack. ")
    assert "NVLink 4" in source and "NCCL" in source
    assert "latency between nodes assumed" in source and "adapters assumed" not in source
    assert "adapters assumed" in expanded("nodes: 2\ngpus: 8xh100\n").source
    assert "latency in a node assumed" in expanded("nodes: 2\ngpus: 8xgb300\n").source


@pytest.mark.parametrize(
    ("text", "place", "message", "fix"),
    [
        ("nodes: 8\ngpus: 8xh101\n", "4:7 (gpus)", "no device is called `h101`", "did you mean `h100-80gb`?"),
        ("nodes: 8\ngpus: 8xa100\n", "4:7 (gpus)", "`a100` may be", "a100-40gb or a100-80gb"),
        ("nodes: 8\ngpus: h100\n", "4:7 (gpus)", "`h100` is no number of GPUs", "8xh100"),
        ("nodes: 8\ngpus: 0xh100\n", "4:7 (gpus)", "`0xh100` is no number of GPUs", "8xh100"),
        ("nodes: 8\ngpus: 8xh100\nnics: fast\n", "5:7 (nics)", "`fast` is no rate of adapters", "8x400Gb"),
        ("nodes: 8\ngpus: 8xh100\nnics: 8x0Gb\n", "5:7 (nics)", "`8x0Gb` is no rate of adapters", "8x400Gb"),
        ("nodes: 99999\ngpus: 8xh100\n", "1:1 (the whole file)", "799992 ranks", "at most"),
        ("node: 8\ngpus: 8xh100\n", "3:1 (node)", "unknown key `node`", "did you mean `nodes`?"),
        ("nodes: 8\ngpus: 8xcpu\n", "5:1", "says no", "nics"),
    ],
)
def test_what_is_no_cluster(tmp_path, text, place, message, fix):
    path = tmp_path / "cluster.yaml"
    path.write_text(HEAD + text)
    with pytest.raises(InputError) as caught:
        read_cluster(str(path))
    if "cpu" not in text:
        assert caught.value.where.startswith(f"{path}:{place}")
    assert message in caught.value.message and fix in caught.value.fix


def test_rates_are_of_a_node_and_in_bits():
    for text, number, device in (
        ("8xh100", 8, "h100"),
        ("16×MI300X", 16, "mi300x"),
        ("4 x ./Box.yaml", 4, "./Box.yaml"),
    ):
        gpus = NodeGpus.from_file(text)
        assert (gpus.number, gpus.device, gpus.to_file()) == (number, device, text)
    assert {NodeAdapters.from_file(text).gb_per_s for text in ("8x400Gb", "3200 Gbps", "8x50GB/s", "2x1.6Tb")} == {
        400.0
    }


def test_links_are_of_shipped_devices_and_measured_ones_have_a_source():
    linked = [
        name
        for name in library.shipped_names(Profile)
        if library.read_named(name, Profile)[0].device.link_gb_per_s and not name.startswith("measured-")
    ]
    assert sorted(LINKS) == linked
    assert all(bool(link.latency_us) == bool(link.source) for link in LINKS.values())
