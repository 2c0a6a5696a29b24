"""What the README says is true: its commands run, its job reads, its tables and its tree are complete."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from planner import files
from planner.specs.job import Job
from planner.strategies import STRATEGIES

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", README, re.DOTALL)


def tour() -> list[Path]:
    """What the README's tree is to name."""
    apart = ("errors.py", "units.py")
    found = sorted((ROOT / "planner").iterdir())
    return [path for path in found if not path.name.startswith("__") and path.name not in apart]


def commands() -> list[str]:
    """The commands of planner in the README's first block, without comments."""
    lines = [line.partition("#")[0].strip() for line in BLOCKS[0][1].splitlines()]
    return [line for line in lines if line.startswith("planner ")]


def test_the_first_commands_run(tmp_path):
    assert commands()
    for command in commands():
        words = [sys.executable, "-m", *shlex.split(command)]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert done.stdout


def test_the_picture_is_there():
    match = re.search(r"!\[.*\]\((docs/.*\.svg)\)", README)
    assert match
    assert (ROOT / match[1]).is_file()


def test_the_job_reads():
    (job,) = [text for language, text in BLOCKS if language == "yaml"]
    assert files.parse(job, Job, "README.md").strategy in STRATEGIES


def test_every_verb_and_strategy_is_in_the_tables():
    from planner.cli.app import app

    for command in app.registered_commands:
        assert command.callback is not None
        name = command.name or command.callback.__name__.replace("_", "-")
        assert f"`planner {name}" in README
    for strategy in STRATEGIES:
        assert f"| `{strategy}` |" in README


@pytest.mark.parametrize("path", tour(), ids=lambda path: path.name)
def test_the_tree_is_complete(path):
    name = path.name if path.is_file() else f"{path.name}/"
    assert re.search(rf"(^|\s){re.escape(name)}\s", README, re.MULTILINE), f"the README's tree lacks {name}"
