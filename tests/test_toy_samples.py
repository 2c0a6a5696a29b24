"""The toy data set can be learned, and only by who looks and listens."""

import json
import math
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from planner import files
from planner.cli.app import app
from planner.plan.join_plans import join_plans
from planner.plan.plan_file import Prices
from planner.specs.base import with_fields
from planner.specs.inputs import JobOptions, load_job
from planner.strategies.static.layouts_plan import plan_together
from planner.workflows.toy_samples import BEGIN, END, FIRST_COLOUR, text_entropy, toy_samples, write_samples

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "docs" / "examples" / "shapes-and-tones"
STEPS, LAST, ROWS = 24, 6, 32
MANY, ONE = "llm: {dp: 4, zero: 1}", "llm: {dp: 4, zero: 1, micro_batch: 8}"  # micro-batches of a step: the same sums


def planner(folder: Path, *words: str) -> dict:
    """What a verb answers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        done = CliRunner().invoke(app, [*words, "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_what_is_left_to_guess_by_hand():
    assert text_entropy([[0, 1], [0, 1]]) == 0.0
    assert text_entropy([[0, 1, 5], [0, 2, 5], [0, 3, 5], [0, 4, 5]]) == pytest.approx(math.log(4) / 2)
    assert text_entropy([[0, 1, 2], [0, 1, 3]]) == pytest.approx(math.log(2) / 2)


def test_more_samples_continue_fewer_and_a_seed_gives_the_same_bytes(tmp_path):
    few, many = toy_samples(5, 3), toy_samples(9, 3)
    for one, other in zip(few, many, strict=False):
        assert one.words == other.words and one.words[0] == BEGIN and one.words[-1] == END
        assert len(one.words) == 2 + len(one.images) + len(one.clips)
        for kind in ("images", "clips"):
            assert all(map(np.array_equal, getattr(one, kind), getattr(other, kind)))
    for name in ("one", "other"):
        write_samples(tmp_path / name, many)
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "other" / path.name).read_bytes()
    assert [each.words for each in toy_samples(9, 4)] != [each.words for each in many]


def test_the_colour_of_an_image_is_its_word():
    """Red has most of its value in the first channel, and so on: what the model is to find out."""
    for sample in toy_samples(40):
        for image, word in zip(sample.images, sample.words[1:], strict=False):
            if word < FIRST_COLOUR + 3:
                assert image.mean((0, 1)).argmax() == word - FIRST_COLOUR


@pytest.mark.slow
def test_the_verb_writes_what_the_example_plans(tmp_path):
    said = planner(tmp_path, "samples", "samples", "--count", "64")
    assert said["samples"] == 64 and said["text_entropy"] == text_entropy([each.words for each in toy_samples(64)])
    for name in ("model.yaml", "job.yaml"):
        (tmp_path / name).write_text((EXAMPLE / name).read_text())
    batch = load_job(str(tmp_path / "job.yaml"), JobOptions()).batches[0]
    assert len(batch.items) == ROWS and len(batch.streams["vision"]) > 8 and len(batch.streams["audio"]) > 4
    assert planner(tmp_path, "predict", "job.yaml")["step_seconds"] > 0


# ------------------------------------------------------------------------------------------------------------- training


def write_plan(path: Path, job: Path) -> Path:
    """A plan of many batches without prices: each step has samples that no step before has seen."""
    inputs = load_job(str(job), JobOptions(batches=STEPS))
    plan = join_plans([plan_together(replace(inputs, batches=(batch,))) for batch in inputs.batches])
    files.write(path, with_fields(plan, uses=with_fields(plan.uses, prices=Prices(profile="none"))))
    return path


TRAINING = ("--learning-rate", "1e-2", "--schedule", "cosine", "--warmup", "4", "--clip", "1", "--betas", "0.9", "0.95")


JOBS = {"samples": "job.yaml", "text": "text-job.yaml"}


@pytest.fixture(scope="module")
def losses(tmp_path_factory):
    """A function: of each step, with images and sound (`samples`), or of the decoder alone on the same `text`."""
    folder, count = tmp_path_factory.mktemp("toy"), str(STEPS * ROWS)
    planner(folder, "samples", "samples", "--count", count)
    model, job = ((EXAMPLE / name).read_text() for name in ("model.yaml", "job.yaml"))
    assert MANY in job
    (folder / "model.yaml").write_text(model)
    (folder / "job.yaml").write_text(job.replace(MANY, ONE))
    (folder / "text").mkdir()
    for name in ("tokens.npy", "offsets.npy"):
        (folder / "text" / name).write_bytes((folder / "samples" / name).read_bytes())
    (folder / "text.yaml").write_text(
        f"{model[: model.index('  vision:')]}{model[model.index('  llm:') : model.index('edges:')]}"
    )
    job = job.replace("model.yaml", "text.yaml").replace("path: samples", "path: text")
    (folder / "text-job.yaml").write_text(f"{job[: job.index('fix:')]}fix: {{layouts: {{{ONE}}}}}\n")

    @cache
    def losses_on(data: str, steps: int = STEPS) -> list[float]:
        plan = write_plan(folder / f"{data}.plan.yaml", folder / JOBS[data])
        words = ("--data", data, "--no-ledger", "--steps", str(steps))
        return planner(folder, "run", plan.name, *words, *TRAINING)["losses"]

    return losses_on


def least_losses() -> list[float]:
    """Of each batch what whoever knows its texts by heart cannot do without."""
    texts = [each.words for each in toy_samples(STEPS * ROWS)]
    return [text_entropy(texts[at : at + ROWS]) for at in range(0, len(texts), ROWS)]


@pytest.mark.soak
def test_a_model_learns_from_images_and_sound_what_their_text_does_not_say(losses):
    """On samples that it has not seen before: its loss is far below that of any model of their text alone."""
    seen, least = losses("samples"), least_losses()
    assert len(seen) == STEPS and seen[0] > least[0]
    for loss, bound in zip(seen[-LAST:], least[-LAST:], strict=True):
        assert loss < 0.6 * bound
    assert sum(seen[-LAST:]) < 0.35 * sum(least[-LAST:])
    assert sum(seen[-LAST:]) < 0.35 * sum(losses("text")[-LAST:])


@pytest.mark.slow
def test_a_model_of_the_text_alone_does_not(losses):
    for loss, bound in zip(losses("text", LAST), least_losses()[:LAST], strict=True):
        assert loss >= bound


@pytest.mark.soak
def test_the_example_that_is_planned_batch_by_batch_trains_the_same(tmp_path):
    """Its first losses are those of all batches planned ahead, and of one process."""
    planner(tmp_path, "samples", "samples", "--count", str(4 * ROWS))
    for name in ("model.yaml", "job.yaml", "per-batch.yaml"):
        (tmp_path / name).write_text((EXAMPLE / name).read_text())
    planner(tmp_path, "solve", "per-batch.yaml", "-o", "head.yaml")
    planner(tmp_path, "solve", "job.yaml", "-o", "plan.yaml", "--batches", "4")
    words = ("--data", "samples", "--no-ledger", "--dtype", "float64", "--verify", "--steps", "4")
    head, ahead = (planner(tmp_path, "run", name, *words) for name in ("head.yaml", "plan.yaml"))
    assert len(head["losses"]) == 4 and head["losses"] == pytest.approx(ahead["losses"], rel=1e-12)
    for said in (head, ahead):
        assert said["verify"]["steps"] == 4 and said["verify"]["grad_rel_err"] <= 1e-12
