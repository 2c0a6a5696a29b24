"""What Megatron-LM's own parser said of exported files holds of those that are exported now."""

import csv
import hashlib
import json
import re

import pytest

from planner.plan.mesh.rank_mesh import groups_over
from planner.plan.plan_file import Layout
from planner.specs.base import with_fields
from planner.specs.layers.head_widths import kv_heads
from planner.specs.parallelism import MESH_DIMS
from planner.targets import TARGETS, canonical, encoder_layout, layout_of
from tests.targets.examples_of_others import LIST
from tests.targets.launches import LAUNCHES
from tests.targets.parser_runs import VERDICTS
from tests.targets.parsers import MUTATIONS, mutated, refused_here, run_script, script_of

SAID = json.loads((VERDICTS / "megatron.json").read_text())
# Dims of the plan's mesh that Megatron's groups are over: data ranks are there one dim.
GROUPS = {"tp": ("tp",), "cp": ("cp",), "pp": ("pp",), "dp": ("dp", "replica"), "dp-cp": ("cp", "dp", "replica")}


def test_every_launch_was_judged_by_the_release_that_files_name():
    assert SAID["parser"] == TARGETS["megatron"].checked
    assert SAID["launches"].keys() == LAUNCHES.keys() and len(LAUNCHES) >= 40


def groups_of(layout: Layout, prefix: str) -> dict[str, list[tuple[int, ...]]]:
    """The groups of ranks that a plan's layout has, as Megatron lists them."""
    order = layout.rank_order.split("-")
    order += [dim for dim in MESH_DIMS if dim not in order]
    full = with_fields(layout, rank_order="-".join(order))
    return {
        f"{prefix}{name}": sorted({tuple(ranks) for ranks in groups_over(full, dims).values()})
        for name, dims in GROUPS.items()
    }


@pytest.mark.parametrize("name", LAUNCHES)
def test_the_file_is_the_one_that_was_accepted_and_derives_what_the_plan_says(name):
    """Else `make parsers` is to be run again. No argument was dropped or changed on the way."""
    said, launch = SAID["launches"][name], canonical(LAUNCHES[name])
    assert said["sha256"] == hashlib.sha256(script_of(name).encode()).hexdigest()[:16]
    layout = layout_of(launch)
    assert "error" not in said and said["changed"] == []
    replicas = layout.dp * layout.replica
    assert said["dp"] == replicas
    assert said["micro_batches"] == launch.sequences // (replicas * layout.micro_batch)
    assert said["vpp"] == layout.vpp
    next_token = launch.module.layers - (launch.module.predicted_tokens - 1)
    assert (said["layers"], said["ffn"]) == (next_token, launch.module.ffn)
    assert launch.module.latent or said["kv_heads"] in (kv_heads(launch.module), None)
    groups = groups_of(layout, "")
    if launch.encoders and launch.encoders.apart:
        groups |= groups_of(encoder_layout(launch), "encoder ")
    assert said["groups"] == hashlib.sha256(json.dumps(groups).encode()).hexdigest()[:16]


# A line, perhaps with its argument; the program that is started; or the layout of the job that the file became.
PLACE = r":\d+(:\d+)?( \(|\)$)|files are read that start|\(fix\.layouts"


def test_launch_files_of_others_were_priced_or_refused_with_what_is_not_known():
    """None is read by half: each refusal names a line, an argument, or the program that it starts."""
    with LIST.open(newline="") as listed:
        ends = [*csv.DictReader(listed)]
    assert len({each["sha256"] for each in ends}) >= 20
    assert sum(each["ended"] == "priced" for each in ends) >= 20
    for each in ends:
        assert (each["ended"], bool(each["about"])) in (("priced", False), ("refused", True)), each["file"]
        assert each["ended"] == "priced" or re.search(PLACE, each["about"]), each


def test_every_mutation_was_refused_by_that_parser_or_here():
    for name, said in SAID["launches"].items():
        assert said["refused"].keys() == MUTATIONS.keys()
        assert all(said["refused"].values()), name


@pytest.mark.parametrize("name", ["dense-vpp", "moe-fine"])
def test_mutations_are_refused_here(name, tmp_path):
    argv, _, _ = run_script(script_of(name), tmp_path)
    assert not refused_here(argv, name)
    for kind, how in MUTATIONS.items():
        assert refused_here(mutated(argv, *how), name), kind


@pytest.mark.parametrize(
    ("name", "connections"), [("dense-vpp", "1"), ("dense-vpp-blackwell", ""), ("dense", ""), ("dense-zero-3", "")]
)
def test_one_queue_a_device_where_exchanges_must_keep_their_order(name, connections, tmp_path):
    _, environment, ranks = run_script(script_of(name), tmp_path)
    assert environment.get("CUDA_DEVICE_MAX_CONNECTIONS", "") == connections
    assert ranks == LAUNCHES[name].ranks


@pytest.mark.parametrize("name", ["dense-host", "dense-host-kinds", "experts-host-kinds"])
def test_activations_are_offloaded_by_the_way_that_the_argument_insists_on(name, tmp_path):
    argv, environment, _ = run_script(script_of(name), tmp_path)
    assert ("--fine-grained-activation-offloading" in argv) == (environment.get("NVTE_CPU_OFFLOAD_V1") == "1")
