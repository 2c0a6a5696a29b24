"""One file of each kind as it was read by eye: a mismatch shows what changed."""

from pathlib import Path

import pytest

from planner.targets import LAUNCHERS, TARGETS, Started, starting
from tests.targets.torchtitan_parsers import file_of as torchtitan_file
from tests.targets.trainers_parsers import file_of

GOLDEN = Path(__file__).parent / "golden"


def around(kind: str, to: str, version: str, text: str) -> str:
    """A launcher's file of 64 ranks on nodes of eight."""
    config = TARGETS[to].started.get(version)
    script = starting(config, text, 8, 8) if config else text
    return LAUNCHERS[kind](Started("llama-70b", script, 8, 8, "h100-80gb"))


FILES = {
    "torchtitan.toml": lambda: torchtitan_file("vpp", "0.2"),
    "torchtitan.sh": lambda: torchtitan_file("vpp", "0.3"),
    "deepspeed.json": lambda: file_of("deepspeed", "autotp"),
    "accelerate.yaml": lambda: file_of("accelerate", "hsdp-tp"),
    "torchrun.sh": lambda: around("torchrun", "deepspeed", "0.19", file_of("deepspeed", "autotp")),
    "slurm.sh": lambda: around("slurm", "accelerate", "1.15", file_of("accelerate", "hsdp-tp")),
    "kubernetes.yaml": lambda: around("kubernetes", "torchtitan", "0.3", torchtitan_file("vpp", "0.3")),
}


@pytest.mark.parametrize("name", FILES)
def test_files_are_as_they_were_read(name):
    assert (GOLDEN / name).read_text() == FILES[name]()
