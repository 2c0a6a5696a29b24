"""Runs whose steps of several modules are planned meanwhile: each has its own items and feeds, and trains as one
process does, whether it has images or not, and as a plan of the same batches that was made ahead.
"""

from dataclasses import replace

import pytest

from planner import pipeline
from planner.errors import InputError
from planner.files.folder_queue import TAKEN
from planner.launch.processes import launch
from planner.launch.worker import joined_world
from planner.plan.step_files import PlanHead
from planner.runtime import RunOptions
from planner.runtime.execute.step_source import StepInbox
from planner.specs.inputs import JobOptions
from tests.online.several_jobs import (
    FOLDER,
    MIXED,
    ROWS,
    SAMPLES_FILE,
    STREAM_FILES,
    several_head,
    write_several_job,
)
from tests.online.test_several_modules import exhausted
from tests.sample_folders import SAMPLES, write_folder

EXACT = RunOptions(verify=True, dtype="float64")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("data", "layouts"),
    [
        (STREAM_FILES, "overlapping"),
        (FOLDER, "sharded"),
        pytest.param(STREAM_FILES, "together", marks=pytest.mark.soak),
        pytest.param(SAMPLES_FILE, "apart", marks=pytest.mark.soak),
        pytest.param(MIXED, "together", marks=pytest.mark.soak),
    ],
)
@pytest.mark.every(2)
def test_steps_planned_meanwhile_train_as_one_process(tmp_path, data, layouts):
    """Of the verified batches, one of files has nothing for the encoders, and others have it for some ranks."""
    head = several_head(tmp_path, data, layouts)
    options = replace(EXACT, steps=4, base=tmp_path, data=tmp_path / "data" if data == FOLDER else None)
    ran = pipeline.run(head, options, lambda _: None)
    assert len(ran.losses) == 4 and len(ran.plannings) == 3
    assert ran.verified.steps == 4
    assert ran.verified.loss_rel_err <= 1e-12 and ran.verified.grad_rel_err <= 1e-12
    folder = tmp_path / head.then.folder / TAKEN
    plans = [head, *(PlanHead(head).read_plan(folder / str(number)) for number in (1, 2, 3))]
    assert ran.verified.items == sum(len(items) for plan in plans for items in plan.uses.items.values())
    if data in (STREAM_FILES, SAMPLES_FILE):
        assert [bool(plan.uses.items["vit"]) for plan in plans] == [True, True, False, True]


@pytest.mark.soak  # what is planned meanwhile is what is planned ahead: tests/online; and trains exactly: above
def test_losses_are_those_of_a_plan_made_ahead(tmp_path):
    head = several_head(tmp_path)
    online = pipeline.run(head, replace(EXACT, verify=False, steps=3, base=tmp_path), lambda _: None)
    job = write_several_job(tmp_path, planning="ahead")
    plan = pipeline.solve(job, JobOptions(batches=3)).plan
    ahead = pipeline.run(plan, replace(EXACT, verify=False, base=tmp_path), lambda _: None)
    assert online.losses == pytest.approx(ahead.losses, rel=1e-12)


@pytest.mark.soak
def test_a_run_whose_first_batch_has_no_images_trains_later_ones(tmp_path):
    """And one that goes on: its weights and states of encoders that began later are there again."""
    job = write_several_job(tmp_path)
    head = pipeline.solve(job, JobOptions(first_row=2 * ROWS)).plan
    assert not head.uses.items["vit"]
    options = replace(EXACT, base=tmp_path, save=tmp_path / "saved")
    whole = pipeline.run(head, replace(options, steps=3, save=None), lambda _: None)
    assert whole.verified.steps == 3 and whole.verified.grad_rel_err <= 1e-12
    pipeline.run(head, replace(options, steps=2), lambda _: None)
    resumed = pipeline.run(head, replace(options, steps=3, resume=tmp_path / "saved"), lambda _: None)
    assert resumed.losses == pytest.approx(whole.losses[2:], rel=1e-12)
    assert resumed.verified.grad_rel_err <= 1e-12


def fetch_step(worker, head, folder, data):
    with joined_world(worker):
        return StepInbox(worker, head, folder, data).fetch(1).plan


@pytest.mark.slow
def test_a_step_is_compared_with_the_folder_that_is_trained_on(tmp_path):
    """Before its turn, and by sizes alone: a folder with other images than the job's is refused when they come."""
    head = several_head(tmp_path, FOLDER, rows=3)
    step = exhausted(tmp_path, head, until=2)
    (plan,) = launch(fetch_step, 1, head, step.slots.folder, tmp_path / "data")
    assert plan.uses.items["vit"] and plan.uses.feeds["vit"]
    again = exhausted(tmp_path, head, until=2)
    again.slots.reset_taken()  # as for another run
    exhausted(tmp_path, head, until=2)
    others = [*SAMPLES, *SAMPLES[:1] * 12]
    others[3] = (3, [(20, 28)], [27])
    with pytest.raises(InputError, match="image 3 of sample 3 is 48 tokens of `vit`") as refused:
        launch(fetch_step, 1, head, again.slots.folder, write_folder(tmp_path / "other", others))
    assert str(tmp_path / "other") in refused.value.where
