"""The multimodal demo: its usual placements are plans of the same work, and all of it runs and learns."""

from collections import Counter

import pytest

from planner import pipeline
from planner.plan.descriptions import placed_layout
from planner.plan.legal.plan_laws import violations
from planner.plan.plan_file import assignments
from planner.runtime import within_tolerance
from planner.specs.base import with_fields
from planner.workflows.multimodal_demo import (
    STEP_SAMPLES,
    USUAL,
    demo_job,
    multimodal_demo,
    usual_placement,
    with_layouts,
    written_job,
)
from planner.workflows.toy_samples import toy_samples, write_samples

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def decided(tmp_path_factory):
    """Folder, job and plan of a batch, at shipped rates: what this machine does is of no matter here."""
    folder = tmp_path_factory.mktemp("demo")
    write_samples(folder / "samples", toy_samples(2 * STEP_SAMPLES))
    job = with_fields(demo_job(folder, folder / "profile.yaml"), profile="cpu")
    return folder, job, solved(job, folder, 1)


def solved(job, folder, batches):
    return pipeline.decide(written_job(job, folder / "job.yaml", batches)).plan


def work(plan):
    placed = (a for step in plan.steps for each in step.micro_batches for a in assignments(plan, each))
    return Counter((a.module, item) for a in placed for item in a.items)


@pytest.mark.soak
def test_decided_layouts_are_fixed_for_all_batches_as_they_are(decided):
    folder, job, plan = decided
    fixed = with_layouts(job, {name: placed_layout(layout, plan.size) for name, layout in plan.layouts.items()})
    whole = solved(fixed, folder, 2)
    assert whole.layouts == plan.layouts and len(whole.steps) == 2 and not violations(whole)
    assert whole.steps[0].micro_batches == plan.steps[0].micro_batches


def test_usual_placements_are_of_the_same_work_and_none_is_quicker(decided):
    folder, job, plan = decided
    for name, (decoder, encoder) in USUAL.items():
        layouts = {"vision": encoder, "audio": encoder, "llm": decoder}
        usual = solved(with_layouts(job, layouts), folder, 1)
        assert work(usual) == work(plan) and not violations(usual)
        assert usual.outcome.value >= plan.outcome.value, name
        told = usual_placement(job, folder / "job.yaml", name, 1)
        assert told.step_seconds == usual.prediction.step_seconds and told.layouts == layouts


class Heard:
    """Listens to the demo."""

    def __init__(self):
        self.chapters = []

    def begin(self, chapter):
        self.chapters.append(chapter)
        return lambda *_: None

    def training(self, _):
        self.begin("run")
        return lambda _: None

    def end(self, chapter, _):
        assert chapter == self.chapters[-1]


@pytest.mark.soak
def test_all_of_it_runs_and_the_model_learns_what_its_text_does_not_say(tmp_path):
    heard = Heard()
    result = multimodal_demo(tmp_path, heard, steps=12)
    assert heard.chapters == ["samples", "profile", "solve", "simulate", "run", "compare"]
    losses, ran = result.ran.losses, result.ran
    assert len(losses) == 12 and max(losses[-2:]) < 0.7 * result.least_loss < losses[0]
    assert within_tolerance(ran.verified, ran.tolerance) and ran.verified.steps == 12
    assert {each.name for each in ran.kinds if each.predicted and each.measured} >= {"forward", "backward", "update"}
    assert result.solved.plan.prediction.measured_share > 0.5
    assert all(each.step_seconds for each in result.usual)
    for name in ("job.yaml", "fixed.yaml", "plan.yaml", "profile.yaml", "measured.json", "simulated.json"):
        assert (tmp_path / name).is_file()
    assert pipeline.fits(str(tmp_path / "fixed.yaml")).fits
