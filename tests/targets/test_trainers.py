"""DeepSpeed's and Accelerate's files in both directions; and what their own parsers said of them holds of those now."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from planner.errors import InputError
from planner.targets import LAUNCHERS, TARGETS, Started, arguments_of, canonical, runtime_script, starting
from tests.targets.launches import launch
from tests.targets.parser_runs import VERDICTS
from tests.targets.trainers_parsers import (
    LAUNCHES,
    LLAMA_8B,
    MODELS,
    MUTATIONS,
    file_of,
    jobs,
    mutated,
    read,
    refused_here,
)

SAID = {to: json.loads((VERDICTS / f"{to}.json").read_text()) for to in LAUNCHES}
CASES = [(to, name) for to, launches in LAUNCHES.items() for name in launches]


@pytest.mark.parametrize(("to", "name"), CASES)
def test_the_file_is_the_one_that_was_accepted_with_every_setting(to, name):
    """Else `make parsers` is to be run again."""
    said, layout = SAID[to]["launches"][name], canonical(LAUNCHES[to][name]).layout
    assert said["sha256"] == hashlib.sha256(file_of(to, name).encode()).hexdigest()[:16]
    assert "error" not in said and said["lost"] == [] and said["dp"] == layout.dp * layout.replica


@pytest.mark.parametrize("to", LAUNCHES)
def test_every_launch_was_judged_and_every_mutation_refused(to):
    assert SAID[to]["parser"] == TARGETS[to].checked and len(LAUNCHES[to]) >= 20
    assert SAID[to]["launches"].keys() == LAUNCHES[to].keys()
    for name, said in SAID[to]["launches"].items():
        assert said["refused"].keys() == MUTATIONS[to].keys() and all(said["refused"].values()), name


@pytest.mark.parametrize(("to", "name"), CASES)
def test_a_file_and_what_its_script_has_are_the_launch_that_it_was_written_of(to, name):
    own = canonical(LAUNCHES[to][name])
    if own.module not in [canonical(launch(each, 1, 1, 1, zero=0)).module for each in MODELS.values()]:
        return
    found = read(to, file_of(to, name), own).launch
    assert found.layout == own.layout and (found.tokens, found.sequences) == (own.tokens, own.sequences)


@pytest.mark.parametrize("to", LAUNCHES)
def test_mutations_are_refused_here(to):
    name = next(iter(LAUNCHES[to]))
    text, own = file_of(to, name), LAUNCHES[to][name]
    assert not refused_here(to, text, own)
    for kind in MUTATIONS[to]:
        assert refused_here(to, mutated(text, kind, to), own), kind


@pytest.mark.parametrize(
    ("to", "changes", "field"),
    [
        ("deepspeed", {"replica": 2}, "layout.dp"),
        ("deepspeed", {"cp": 2}, "layout.ulysses"),
        ("deepspeed", {"dtype": "fp8"}, "layout.dtype"),
        ("accelerate", {"zero": 1}, "layout.zero"),
        ("accelerate", {"recompute": "selective"}, "layout.recompute"),
    ],
)
def test_what_no_setting_says_is_refused_by_its_field(to, changes, field):
    with pytest.raises(InputError) as found:
        arguments_of(TARGETS[to], launch(LLAMA_8B, 8, 4096, 64, **{"zero": 3, **changes}), TARGETS[to].versions[0])
    assert found.value.where == field


@pytest.mark.parametrize("to", LAUNCHES)
def test_what_the_script_has_is_asked_for_by_name(to):
    own = LAUNCHES[to][next(iter(LAUNCHES[to]))]
    known = {"ranks": own.ranks, "per_node": own.per_node, "blackwell": False}
    from planner.targets import read_target

    with pytest.raises(InputError) as found:
        read_target(TARGETS[to], file_of(to, next(iter(LAUNCHES[to]))), "x.yaml", {}, lambda command: known)
    assert found.value.fix == "--set model=llama-3-8b"


def test_jobs_of_kubernetes_are_those_that_were_accepted():
    said = json.loads((VERDICTS / "kubernetes.json").read_text())
    assert {name: [hashlib.sha256(text.encode()).hexdigest()[:16], "accepted"] for name, text in jobs().items()} == said


@pytest.mark.parametrize("kind", LAUNCHERS)
@pytest.mark.parametrize("nodes", [1, 8])
def test_a_launcher_starts_the_file_with_its_holes_filled(kind, nodes, tmp_path):
    """What the words of torchrun are given is run: the file is written as it is but for holes, and nothing else of it
    is read by a shell.
    """
    from planner.targets.launchers import ConfigFile

    text = 'name = "$HOLE"\nother = "$(touch broken) `touch broken` $PATH \\\\"\n'
    config = ConfigFile(".toml", '"$CONFIG"', {"HOLE": "a hole"})
    script = starting(config, text, nodes, 8)
    file = LAUNCHERS[kind](Started("My plan", script, nodes, 8, "h100-80gb"))
    if kind == "slurm":
        assert f"#SBATCH --nodes={nodes}\n" in file and "#SBATCH --job-name=my-plan\n" in file
    if kind != "torchrun":
        assert "\n".join(script.splitlines()[:3]) in "\n".join(line.strip() for line in file.splitlines())
        return
    stub = tmp_path / "torchrun"
    stub.write_text('#!/bin/sh\nfor last; do :; done\ncp "$last" "$SEEN"\n')
    stub.chmod(0o755)
    seen = tmp_path / "seen"
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SEEN": str(seen), "HOLE": "filled", "NODE_RANK": "0"}
    environment["MASTER_ADDR"] = "node-0"
    subprocess.run(["bash", "-c", file], env=environment, cwd=tmp_path, check=True)
    assert seen.read_text() == text.replace("$HOLE", "filled") and not (tmp_path / "broken").exists()


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [1, 8])
def test_torchrun_reads_its_line(nodes):
    from torch.distributed.run import config_from_args, parse_args

    lines = runtime_script(nodes, 8).replace('"$NODE_RANK"', "0").replace('"$MASTER_ADDR"', "node-0").splitlines()
    line = next(line for line in lines if line.startswith("torchrun ")).replace('"${MASTER_PORT:-29500}"', "29500")
    config, _, words = config_from_args(
        parse_args([*line.removesuffix("\\").split()[1:], "-m", "planner.runtime", "plan"])
    )
    assert (config.min_nodes, config.max_nodes, config.nproc_per_node) == (nodes, nodes, 8)
    assert words[-2:] == ["planner.runtime", "plan"]


@pytest.mark.parametrize("kind", ["torchrun", "slurm"])
def test_scripts_are_clean(kind, tmp_path):
    target = TARGETS["deepspeed"]
    script = starting(target.started["0.19"], file_of("deepspeed", "zero-3"), 8, 8)
    file = tmp_path / "launch.sh"
    file.write_text(LAUNCHERS[kind](Started("zero-3", script, 8, 8, "h100-80gb")))
    subprocess.run([str(Path(sys.executable).with_name("shellcheck")), str(file)], check=True)
