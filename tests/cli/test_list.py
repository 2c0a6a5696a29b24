"""`planner list` names all that is shipped, a line each, and completion knows the same names."""

import json

import pytest
from typer.testing import CliRunner

from planner.cli import options
from planner.cli.app import app
from planner.specs.library import shipped_folder
from planner.workflows.shipped_lists import LISTS

FOLDERS = ["jobs", "clusters", "devices", "models", "software"]


def said(*words: str, code: int = 0) -> str:
    done = CliRunner().invoke(app, ["list", *words])
    assert done.exit_code == code, done.output
    return done.stdout


@pytest.mark.parametrize("kind", LISTS)
@pytest.mark.every(3)
def test_a_line_for_each_with_what_it_is_and_its_source(kind):
    listed = json.loads(said(kind, "--json"))[kind]
    assert listed and all(each["name"] and each["what"] and each["source"] for each in listed)
    assert all("\n" not in text for each in listed for text in (each["name"], each["what"], each["source"]))
    lines = said(kind).splitlines()
    assert [line.split()[0] for line in lines] == [each["name"] for each in listed]
    assert all(each["source"] in line for each, line in zip(listed, lines, strict=True))  # in a pipe nothing is cut


@pytest.mark.parametrize("kind", FOLDERS)
def test_what_is_in_a_folder_is_listed(kind):
    names = sorted(path.stem for path in (shipped_folder() / kind).glob("*.yaml"))
    assert [each["name"] for each in json.loads(said(kind, "--json"))[kind]] == names


def test_an_unknown_kind_names_the_others():
    done = CliRunner().invoke(app, ["list", "model"])
    assert done.exit_code == 2


@pytest.mark.parametrize("kind", LISTS)
@pytest.mark.every(3)
def test_completion_knows_the_names(kind):
    names = [each["name"] for each in json.loads(said(kind, "--json"))[kind]]
    assert options.names(kind, "") == sorted(names)
    assert options.names(kind, names[0][:3]) == sorted(name for name in names if name.startswith(names[0][:3]))
