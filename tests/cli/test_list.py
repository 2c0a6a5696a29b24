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


def test_models_say_their_parameters_to_the_last_one():
    models = {each["name"]: each for each in json.loads(said("models", "--json"))["models"]}
    assert models["llama-3-8b"]["parameters"] == models["llama-3-8b"]["active"] == 8_030_261_248
    assert "8,030,261,248" in models["llama-3-8b"]["what"]
    assert models["qwen3-30b-a3b"]["active"] < models["qwen3-30b-a3b"]["parameters"]
    assert "llm" in models["qwen2.5-vl-7b"]["what"]


def test_an_unknown_kind_names_the_others():
    done = CliRunner().invoke(app, ["list", "model"])
    assert done.exit_code == 2


@pytest.mark.parametrize("kind", LISTS)
def test_completion_knows_the_names(kind):
    names = [each["name"] for each in json.loads(said(kind, "--json"))[kind]]
    assert options.names(kind, "") == sorted(names)
    assert options.names(kind, names[0][:3]) == sorted(name for name in names if name.startswith(names[0][:3]))


def test_completion_of_numbers_of_gpus():
    assert options.counted_devices("64xh100") == ["64xh100-80gb"]
    assert options.counted_devices("8xh100,512xa100-8") == ["8xh100,512xa100-80gb"]
    assert options.counted_devices("h100") == options.counted_devices("") == []
