"""What is released: one version everywhere, and a wheel that alone runs the front page's first command."""

import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest
import yaml

import planner
from tests.documents import HOME

PACKAGED = ("planner", "profiles", "pyproject.toml", "build_native.py", "README.md", "LICENSE")


def test_the_version_is_the_citations_and_the_newest_of_the_changelog():
    citation = yaml.safe_load((HOME / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == planner.__version__
    assert f'license = "{citation["license"]}"' in (HOME / "pyproject.toml").read_text(encoding="utf-8")
    released = re.findall(r"^## \[(\d+\.\d+\.\d+)\]", (HOME / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert released[:1] in ([], [planner.__version__])
    assert len({*released}) == len(released)
    for path in ("docs/gate.md", "ci/workflow.yml"):
        named = re.findall(r"(?:@|ref: )v(\d+\.\d+\.\d+)", (HOME / path).read_text(encoding="utf-8"))
        assert {*named} == {planner.__version__}, path


def first_command() -> str:
    """The first command of the front page, about a smaller model on fewer GPUs."""
    command = re.search(r"^\$ (planner .*)$", (HOME / "README.md").read_text(encoding="utf-8"), re.MULTILINE)[1]
    for large, small in (("llama-3-70b", "llama-3-8b"), ("64xh100", "8xh100"), ("--batch 1024", "--batch 64")):
        assert large in command
        command = command.replace(large, small)
    return command


@pytest.mark.slow
def test_a_wheel_alone_runs_the_first_command(tmp_path):
    """In an environment that has planner from the wheel, and of this one no more than what it depends on."""
    pytest.importorskip("hatchling.build")
    source, environment = tmp_path / "source", tmp_path / "environment"
    source.mkdir()
    for name in PACKAGED:
        copy = shutil.copytree if (HOME / name).is_dir() else shutil.copy
        copy(HOME / name, source / name)
    build = "import sys; from hatchling.build import build_wheel; build_wheel(sys.argv[1])"
    subprocess.run([sys.executable, "-c", build, str(tmp_path)], cwd=source, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.startswith(f"planner-{planner.__version__}-")
    venv.create(environment)
    python = environment / "bin/python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*pip, str(wheel)], check=True)
    dependencies = Path(yaml.__file__).parents[1]  # read as plain folders: no editable project is found through them
    variables = {**os.environ, "PYTHONPATH": str(dependencies), "PATH": f"{environment}/bin:{os.environ['PATH']}"}
    where = subprocess.run(
        [python, "-c", "import planner; print(planner.__file__)"],
        env=variables,
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert Path(where.stdout).is_relative_to(environment)
    ran = subprocess.run(first_command(), shell=True, env=variables, cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert "written to" in ran.stdout and [*tmp_path.glob("*/plan.yaml")]
