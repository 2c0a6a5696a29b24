"""Whatever a job fixes, an answer about it shows nothing that cannot be, or an error says what is wrong.

A part of the drawn jobs runs each time, the first ones; all 2,000 in the soak.
"""

import json
from math import isfinite

import pytest
from typer.testing import CliRunner

from planner.cli.app import app
from planner.errors import PlannerError
from tests.examples import share
from tests.random_layouts import drawn_job

JOBS, BATCHES = 2000, 40
FOUND = (83, 100, 292, 642)  # once ended in an exception, or with less than no bubble
EXACT = 1e-9


def numbers(value, path=""):
    """Every number of an answer, with its way there."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in pairs:
        yield from numbers(each, f"{path}.{key}")
    if isinstance(value, int | float) and not isinstance(value, bool):
        yield path, value


def impossible_figures(said):
    """What of an answer cannot be."""
    seconds = said["step_seconds"]
    yield from (name for name, value in numbers(said) if not isfinite(value) or value < -EXACT)
    yield from (name for name, value in said.get("parts", {}).items() if value > seconds * (1 + EXACT))
    yield from (name for name in ("mfu", "gap") if not 0 <= said[name] <= (1 if name == "mfu" else float("inf")))
    chances = [said["memory"]["chance"], *(stage["chance"] for stage in said.get("stages", ()))]
    yield from (f"chance {each}" for each in chances if not 0 <= each <= 1)
    if "breakdown" in said and sum(said["breakdown"].values()) > seconds * (1 + EXACT):
        yield "breakdown"


def asked(*words):
    """The exit code of a command, whose answer is possible, whose error is somebody's to act on."""
    done = CliRunner().invoke(app, [*map(str, words), "--json"])
    error = done.exception
    if isinstance(error, PlannerError):
        assert error.exit_code in (2, 3) and error.message and error.fix, (words, str(error))
        return error.exit_code
    if error and not isinstance(error, SystemExit):
        raise error
    assert done.exit_code in (0, 3), (words, done.stderr)
    assert not [*impossible_figures(json.loads(done.stdout))], words
    return done.exit_code


def check(seed, folder):
    """One job: what its layouts take, whether they fit, and of the smallest what its plan is."""
    job = drawn_job(seed, folder)
    if asked("predict", job) == 0:
        assert asked("fits", job) == 0
    if "tiny" in (folder / "job.yaml").read_text() and asked("solve", job, "-o", folder / "plan.yaml") == 0:
        assert {asked(verb, folder / "plan.yaml") for verb in ("show", "simulate", "predict")} == {0}


def marks_of(batch):
    return pytest.mark.slow if batch == 0 else pytest.mark.soak


@pytest.mark.parametrize("batch", [pytest.param(each, marks=marks_of(each)) for each in range(BATCHES)])
def test_answers_about_random_layouts_are_possible(tmp_path, batch):
    first, count = batch * JOBS // BATCHES, JOBS // BATCHES
    for seed in range(first, first + share(count)):
        check(seed, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", FOUND)
def test_what_was_found_stays_mended(tmp_path, seed):
    check(seed, tmp_path)
