"""`planner import hf`: a config.json on screen, in a file, and refused."""

import json

import pytest
from typer.testing import CliRunner

from planner import files
from planner.cli.app import app
from planner.errors import InputError
from planner.specs.model import Model
from planner.specs.parameters import model_parameters
from tests.hf import configs


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({**configs.LLAVA_7B, "_name_or_path": "llava-hf/llava-1.5-7b-hf"}))
    return tmp_path


def invoke(*words):
    return CliRunner().invoke(app, ["import", *map(str, words)])


def test_the_model_on_stdout_and_what_differs_beside_it(folder):
    done = invoke("hf", folder)
    model = files.parse(done.stdout, Model, "stdout")
    assert model.name == "llava-1.5-7b-hf" and [*model.modules] == ["vision", "llm"]
    assert [(edge.source, edge.target) for edge in model.edges] == [("vision", "llm")]
    assert "the last 1 of the tower's 24 layers" in done.stderr and "(12,596,224 parameters)" in done.stderr
    assert "the source has 7,063,427,072 parameters" in done.stderr


def test_a_file_and_json(folder):
    out = folder / "llava.yaml"
    done = invoke("hf", folder / "config.json", "-o", out, "--json")
    said, model = json.loads(done.stdout), files.read(out, Model)
    assert said["source_parameters"] == 7_063_427_072 and said["file"] == str(out)
    assert said["parameters"] == {"total": model_parameters(model), "active": model_parameters(model)}
    assert (said["modules"]["llm"]["heads"], said["modules"]["llm"]["layers_by_kind"]) == (32, {"dense": 32})
    assert said["source_parameters"] - model_parameters(model) == sum(note["parameters"] for note in said["notes"])
    assert files.parse(json.dumps(said["model"]), Model, "json") == model
    assert {note["kind"] for note in said["notes"]} == {"left out", "assumed"}
    assert f"model written to {out}" in " ".join(done.stderr.split())


def test_what_is_refused_is_not_written(folder):
    (folder / "config.json").write_text(json.dumps({**configs.LLAMA_8B, "mlp_bias": True}))
    done = invoke("hf", folder, "-o", folder / "new.yaml")
    assert isinstance(done.exception, InputError) and done.exception.where.endswith("config.json (mlp_bias)")
    assert not (folder / "new.yaml").exists()


def test_a_form_that_does_not_exist_is_said_before_what_it_lacks(folder):
    done = invoke("hff", folder)
    assert isinstance(done.exception, InputError) and done.exception.where == "FORMAT"
    assert "torch-csv" in done.exception.fix and "hf" in done.exception.fix


@pytest.mark.parametrize(("words", "missing"), [((), "--into"), (("--into", "p.yaml"), "-o")])
def test_an_order_still_needs_a_plan_and_a_place(tmp_path, words, missing):
    done = invoke("torch-csv", tmp_path / "o.csv", *words)
    assert isinstance(done.exception, InputError) and done.exception.where == missing
