"""Steps planned during a run: the ranks train them all, wait for none, and no process outlives the run."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import pytest

from planner import files, pipeline
from planner.errors import Infeasible, InputError, RunFailed
from planner.files.file_lock import hold_lock, is_locked
from planner.files.folder_queue import MARK, TAKEN, FolderQueue
from planner.launch.processes import launch
from planner.launch.worker import joined_world
from planner.plan.step_files import FAILED_FILE, PLANNER_LOCK, RUN_LOCK, STEP_FILE, PlanHead, StepFile
from planner.runtime import RunOptions
from planner.runtime.execute import step_source
from planner.workflows.tracing import write_measured_trace
from tests.examples import soaked
from tests.online.small_jobs import FILE, ahead_of, head_of

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
STEPS, RUN_STEPS = 6, 500


@pytest.mark.soak
def test_ranks_wait_for_no_step_and_train_as_one_process(tmp_path):
    """The exactness of gradients is that of any run; waiting may happen before the first step is planned, not later."""
    head = head_of(tmp_path, lengths=FILE)
    ran = pipeline.run(head, RunOptions(steps=STEPS, verify=True, dtype="float64", base=tmp_path), lambda _: None)
    assert len(ran.losses) == len(ran.timelines) == STEPS and len(ran.plannings) == STEPS - 1
    assert all(step.exposed_s == 0 for step in ran.plannings[1:])
    assert all(step.busy_s > 0 for step in ran.plannings)
    assert ran.verified.steps == 4 and ran.verified.grad_rel_err <= 1e-12
    folder = tmp_path / head.then.folder
    assert sorted(os.listdir(folder / TAKEN)) == ["1", "2", "3", "4", "5"]
    items = [PlanHead(head).read_plan(folder / TAKEN / str(n)).uses.items for n in range(1, STEPS)]
    assert ran.verified.items == sum(len(of["llm"]) for of in [head.uses.items, *items[:3]])
    assert items[3] == head.uses.items  # four batches in the file, then the first again
    assert not is_locked(folder / PLANNER_LOCK) and not is_locked(folder / RUN_LOCK)
    write_measured_trace(tmp_path / "trace.json", ran)
    assert json.loads((tmp_path / "trace.json").read_text())


@pytest.mark.soak
def test_waiting_for_an_effort_trains_the_same_every_time(tmp_path):
    head = head_of(tmp_path, "{wait: true, look_ahead: 1}")
    made = []
    for _ in range(2):
        ran = pipeline.run(head, RunOptions(steps=4, base=tmp_path), lambda _: None)
        made.append([(tmp_path / head.then.folder / TAKEN / str(n) / "step.yaml").read_bytes() for n in (1, 2, 3)])
        assert len(ran.losses) == 4
    assert made[0] == made[1]


@pytest.mark.soak
def test_a_run_that_goes_on_trains_the_batches_that_are_left(tmp_path):
    head = head_of(tmp_path)
    pipeline.run(head, RunOptions(steps=3, base=tmp_path, save=tmp_path / "saved"), lambda _: None)
    heard = []
    ran = pipeline.run(head, RunOptions(steps=5, verify=True, base=tmp_path, resume=tmp_path / "saved"), heard.append)
    assert [(p.step, p.of) for p in heard] == [(4, 5), (5, 5)]
    assert len(ran.losses) == len(ran.timelines) == len(ran.plannings) == 2
    taken = tmp_path / head.then.folder / TAKEN
    assert [files.read(taken / str(n) / STEP_FILE, StepFile).first_row for n in (3, 4)] == [24 * 3, 24 * 4]
    assert sorted(os.listdir(taken)) == ["2", "3", "4"]
    assert os.listdir(taken / "2") == [MARK]  # it stands for those before
    items = [PlanHead(head).read_plan(taken / str(n)).uses.items["llm"] for n in (3, 4)]
    assert (ran.verified.steps, ran.verified.items) == (2, sum(map(len, items)))


@pytest.mark.slow
def test_a_planner_that_dies_ends_the_run_clearly(tmp_path):
    head = head_of(tmp_path, "{wait: true, look_ahead: 1}", rows=4)  # few steps are planned when it dies

    def kill(progress):
        if progress.step == 2:
            (victim,) = (child for child in multiprocessing_children() if child.name == "planner")
            os.kill(victim.pid, signal.SIGKILL)

    with pytest.raises(RunFailed, match=r"step \d was not planned: the planner has ended") as failed:
        pipeline.run(head, RunOptions(steps=200, base=tmp_path), kill)
    assert str(tmp_path / head.then.folder) in failed.value.where
    assert not multiprocessing_children()


def multiprocessing_children():
    import multiprocessing

    return multiprocessing.active_children()


@pytest.mark.slow
def test_what_a_batch_cannot_is_what_ends_the_run(tmp_path):
    """The planner's own error comes out, not that of a rank that waited for its step."""
    (tmp_path / "lengths.txt").write_text("40\n" * 48 + "100000\n" * 24)
    head = head_of(tmp_path)
    job = (tmp_path / "job.yaml").read_text()
    start = job.index("lengths:")
    (tmp_path / "job.yaml").write_text(job[: start + 9] + FILE + job[job.index("\n", start) :])
    (tmp_path / "lengths.txt").write_text("40\n" * 48 + "100000\n" * 24)
    head = pipeline.solve(str(tmp_path / "job.yaml")).plan
    with pytest.raises((InputError, Infeasible), match="every sample of the batch from sample 48 on"):
        pipeline.run(head, RunOptions(base=tmp_path), lambda _: None)
    assert not multiprocessing_children()
    assert (tmp_path / head.then.folder / FAILED_FILE).read_text().startswith("every sample of the batch")


def command(path, *options):
    return [sys.executable, "-m", "planner", "run", str(path), "--steps", str(RUN_STEPS), *options]


def in_steps(folder, number, process):
    while not (folder / TAKEN / str(number)).exists():
        assert process.poll() is None
        time.sleep(0.05)


def released(folder):
    """Waits until nobody holds the folder: those who outlive a run would for all of its steps."""
    for name in (PLANNER_LOCK, RUN_LOCK):
        with open(folder / name) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
    assert not (folder / TAKEN / str(RUN_STEPS - 1)).exists(), "somebody outlived the run"


@pytest.mark.slow
@pytest.mark.parametrize("number", soaked([signal.SIGINT, signal.SIGTERM, signal.SIGKILL], [signal.SIGKILL]))
def test_nobody_outlives_a_run_that_is_ended(tmp_path, number):
    head = head_of(tmp_path, rows=4)
    files.write(tmp_path / "plan.yaml", head)
    folder = tmp_path / head.then.folder
    process = subprocess.Popen(command(tmp_path / "plan.yaml"), env=ENVIRONMENT, stderr=subprocess.PIPE, text=True)
    in_steps(folder, 3, process)
    assert is_locked(folder / PLANNER_LOCK) and is_locked(folder / RUN_LOCK)
    process.send_signal(number)
    try:
        _, said = process.communicate()
    finally:
        process.kill()  # all steps would outlive a test that failed
    assert process.returncode == (-number if number == signal.SIGKILL else 128 + number)
    assert "Traceback" not in said
    released(folder)
    assert not [name for name in os.listdir(folder) if name.endswith(".yaml") and name.isdecimal()]


@pytest.mark.soak
def test_under_torchrun_a_planner_beside_it_is_killed_and_goes_on(tmp_path):
    head = head_of(tmp_path)
    path = tmp_path / "plan.yaml"
    files.write(path, head)
    beside = [sys.executable, "-m", "planner.online", str(path)]
    planner = subprocess.Popen(beside, env=ENVIRONMENT)
    run = subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=4", "-m", "planner.runtime",
         str(path), "--steps=8", "--verify", "--dtype=float64"],
        env=ENVIRONMENT, text=True, stdout=subprocess.PIPE,
    )  # fmt: skip
    in_steps(tmp_path / head.then.folder, 0 + 1, run)
    planner.kill()
    planner.wait()
    planner = subprocess.Popen(beside, env=ENVIRONMENT)
    out, _ = run.communicate()
    assert run.returncode == 0
    *steps, summary = map(json.loads, out.splitlines())
    assert [step["step"] for step in steps] == [*range(1, 9)]
    assert summary["verify"]["grad_rel_err"] <= 1e-12
    assert summary["planned"][0] is None and len(summary["planned"]) == 8
    assert planner.wait() == 0  # with the run


def one_rank(worker, head, folder, case):
    """An inbox whose planner never was, or is alive and gives nothing."""
    step_source.PLANNER_START_S, step_source.STEP_TIMEOUT_S = 0.2, 0.4
    with joined_world(worker):
        inbox = step_source.StepInbox(worker, head, folder)
        with inbox.locked(0):
            if case == "stuck":
                with hold_lock(folder / PLANNER_LOCK, ""):
                    inbox.fetch(1)
            inbox.fetch(1)


@pytest.mark.slow
@pytest.mark.parametrize(("case", "says"), [("none", "there is no planner"), ("stuck", "the planner is running")])
def test_a_rank_does_not_wait_for_ever(tmp_path, case, says):
    with pytest.raises(RunFailed, match=says):
        launch(one_rank, 1, head_of(tmp_path), tmp_path / "steps", case)


def ends_early(worker, head, folder, case):
    """One step, while the next never comes: its planner is slow, or has failed."""
    step_source.PLANNER_START_S = 0.0
    with (
        joined_world(worker),
        hold_lock(folder / PLANNER_LOCK, "") if case == "slow" and not worker.rank else nullcontext(),
    ):
        inbox = step_source.StepInbox(worker, head, folder)
        with inbox.locked(0):
            own = [step_source.StepTasks(())]
            step = next(inbox.steps(own, 0, 2))
            if case != "slow" and not worker.rank:
                inbox.fetching.join()
                assert isinstance(inbox.fetching.error, RunFailed)
            inbox.cancel_fetch()
            return step == own[0], case != "slow" or inbox.fetching.error is None


@pytest.mark.slow
@pytest.mark.parametrize("case", ["slow", "failed"])
def test_a_run_that_ends_early_wants_no_further_step(tmp_path, case):
    assert launch(ends_early, 2, head_of(tmp_path), tmp_path / "steps", case) == [(True, True)] * 2


def take_two(worker, head, folder):
    with joined_world(worker):
        inbox = step_source.StepInbox(worker, head, folder)
        found = [inbox.fetch(1)]
        with pytest.raises(InputError, match="follows another plan"):
            inbox.fetch(2)
        return found


@pytest.mark.slow
def test_what_is_taken_is_checked(tmp_path):
    head = head_of(tmp_path)
    ahead = ahead_of(tmp_path, head)
    while ahead.advance():
        pass
    slot = tmp_path / "steps/2/step.yaml"
    slot.write_text(slot.read_text().replace(PlanHead(head).digest, "f" * 16))
    ((step,),) = launch(take_two, 1, head, tmp_path / "steps")
    assert step.planned_s > 0 and step.tasks and FolderQueue(tmp_path / "steps").next(1) == 3


def wait_for_it(worker, head, folder):
    """The planner lives and is late with one step of two."""
    with joined_world(worker), hold_lock(folder / PLANNER_LOCK, ""):
        inbox = step_source.StepInbox(worker, head, folder)
        (folder / "2").rename(folder / "late")
        early, late = step_source.StepFetch(inbox, 1), step_source.StepFetch(inbox, 2)
        early.join()
        join = late.join
        late.join = lambda: ((folder / "late").rename(folder / "2"), join())  # it comes once it is waited for
        return early.result().waited_s, late.result().waited_s


@pytest.mark.slow
def test_waiting_is_measured_and_what_is_there_is_not_waited_for(tmp_path):
    head = head_of(tmp_path)
    ahead = ahead_of(tmp_path, head)
    while ahead.advance():
        pass
    ((there, waited),) = launch(wait_for_it, 1, head, tmp_path / "steps")
    assert there == 0.0 < waited


def test_data_without_an_end_needs_a_number_of_steps(tmp_path):
    with pytest.raises(InputError, match="nothing says how many steps"):
        pipeline.run(head_of(tmp_path), RunOptions(base=tmp_path), lambda _: None)


@pytest.mark.slow
def test_two_runs_do_not_share_a_folder(tmp_path):
    head = head_of(tmp_path)
    folder = tmp_path / head.then.folder
    with hold_lock(folder / PLANNER_LOCK, ""), pytest.raises(InputError, match="another planner writes steps"):
        pipeline.run(head, RunOptions(steps=3, base=tmp_path), lambda _: None)
