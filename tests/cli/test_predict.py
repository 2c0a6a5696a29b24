"""`planner predict`: seconds, their parts and where they come from, of a layout that is fixed."""

import json
from math import sqrt

import pytest
from typer.testing import CliRunner

from planner import pipeline
from planner.cli.app import app
from planner.scoring.objective_value import sample_tokens
from planner.specs import library
from planner.specs.model import Model
from planner.specs.shapes import step_flops
from tests.static_jobs import small_cluster, static_job

PARTS = ["compute", "tp", "cp", "ep", "pp", "bubble", "dp", "update", "overhead"]


@pytest.fixture
def job(tmp_path):
    def write(fixed="tp: 2, pp: 2", sizes=(4096,) * 16, ranks=8):
        return static_job(tmp_path, "llama-3-8b", small_cluster(tmp_path, "h100-80gb", ranks), sizes, fixed)

    return write


def invoke(*words):
    return CliRunner().invoke(app, ["predict", *words])


def test_one_json_object(job):
    done = invoke(job(), "--json")
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    (layout,) = said["layouts"].values()
    assert {name: layout[name] for name in ("tp", "pp", "dp", "zero", "recompute", "micro_batch", "schedule")} == {
        "tp": 2, "pp": 2, "dp": 2, "zero": 1, "recompute": "none", "micro_batch": 1, "schedule": "1f1b",
    }  # fmt: skip
    assert [*said["parts"]] == PARTS
    assert sum(said["parts"].values()) == pytest.approx(said["closed_form_seconds"])
    assert said["step_seconds"] == pytest.approx(said["closed_form_seconds"], rel=0.01)
    low, high = said["interval_seconds"]
    assert low < said["step_seconds"] < high and said["step_seconds"] == pytest.approx(sqrt(low * high))
    assert said["bound"] <= said["step_seconds"] and said["bound_of"] == "layout" and said["alternatives"] == []
    assert 0 <= said["memory"]["chance"] < 1 and 0 < said["memory"]["peak_gib"] < 80
    assert said["tokens_per_second"] == pytest.approx(16 * 4096 / said["step_seconds"])
    assert 0 < said["mfu"] < 1 and said["parts"]["cp"] == said["parts"]["ep"] == 0
    assert set(said["sources"]) == {"compute", "exchange", "overlap, overhead", "memory"}


@pytest.mark.parametrize(("fixed", "code"), [("tp: 2, pp: 2", 0), ("tp: 1, pp: 1, zero: 0", 3)])
def test_what_does_not_fit_is_said_first_and_by_the_exit_code(job, fixed, code):
    path = job(fixed)
    done = invoke(path)
    assert done.exit_code == code == CliRunner().invoke(app, ["fits", path]).exit_code
    assert done.stdout.startswith("DOES NOT FIT: the fullest rank would hold") == (code == 3)
    said = invoke(path, "--json")
    assert said.exit_code == code and json.loads(said.stdout)["fits"] == (code == 0)


UNLIKE = (8192, 512, 512, 512, 4096, 1024, 256, 128)


@pytest.mark.parametrize(("sizes", "told"), [((4096,) * 16, False), (UNLIKE, True)])
def test_parts_that_take_time_and_what_simulating_adds(job, sizes, told):
    path = job("tp: 2, pp: 2", sizes)
    said, found = invoke(path).stdout, pipeline.predict(path)
    rows = {line.split("  ")[0] for line in said.splitlines()}
    taking = {name for name, seconds in found.parts.items() if seconds > 1e-3 * found.scores[0].step_seconds}
    assert rows & {*PARTS} >= taking and not rows & {name for name in PARTS if found.parts[name] == 0}
    assert ("simulation adds" in rows) == ("wait for those with more" in " ".join(said.split())) == told


def test_varied_lengths_are_simulated_as_they_are(job):
    found = pipeline.predict(job("tp: 2, pp: 2", (8192, 512, 512, 512, 4096, 1024, 256, 128)))
    assert found.scores[0].step_seconds != pytest.approx(found.closed_seconds, rel=1e-3)
    assert sample_tokens(found.plan, [0]) == 8192 + 3 * 512 + 4096 + 1024 + 256 + 128


def test_a_layout_that_does_not_come_out_even(job):
    done = invoke(job("tp: 2, pp: 2, micro_batch: 3"))
    assert done.exit_code != 0
    assert "are no multiple of dp" in str(done.exception)


def test_layers_narayanan_counts():
    """96·B·s·l·h²·(1 + s/6h + V/16lh), less a quarter that recomputes, and half of attention, which is causal (arXiv
    2104.04473, equation 3).
    """
    module = library.read_named("gpt3-175b", Model)[0].modules["llm"]
    s, h, layers, vocab = 2048, module.hidden, module.layers, module.vocab
    known = 72 * s * layers * h**2 * (1 + s / (12 * h) + vocab / (12 * layers * h))
    assert step_flops(module, (s,)) == pytest.approx(known, rel=2e-3)
