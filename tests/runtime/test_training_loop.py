"""Training by a plan is training in one process: the same optimizer, schedule and clipping, whatever the layout."""

import json
import math
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch.nn.utils import clip_grad_norm_

from planner.errors import InputError, RunFailed
from planner.files import write
from planner.launch.processes import launch
from planner.launch.worker import joined_world
from planner.models.build import build, init_weights
from planner.models.inputs.training_items import synthetic_batch
from planner.runtime import RunOptions, StepResult, TrainingOptions, run
from planner.runtime.checkpoint.checkpoint_index import file_digest, read_index
from planner.runtime.execute import training_loop as executing
from planner.runtime.execute.early_stop import EarlyStop
from planner.runtime.execute.training_loop import MEASURED_STEPS, prepare_executor, train, train_steps
from planner.runtime.measure.gpu_memory import make_memory_snapshot
from planner.runtime.measure.metrics_file import metrics_writer
from planner.runtime.state import full_tensors
from planner.specs.base import with_fields
from planner.specs.layers.components import Experts
from tests.examples import soaked
from tests.runtime.ranks_by_hand import run_ranks
from tests.runtime.test_several_modules import joined as several
from tests.runtime.test_several_modules import layout
from tests.runtime.training_worlds import DECODER, asked_for, spread

ROOT = Path(__file__).parents[2]
SIZE, STEPS, SEED = 4, 4, 5
TRAINING = TrainingOptions(0.01, schedule="cosine", warmup=2, clip=2.0, betas=(0.9, 0.95), decay=0.1)
APART = [[(0, 1), (2, 3)], [(0, 1, 2, 3)], [(2, 3)]]
TIED = with_fields(DECODER, tied=True)
MOE = with_fields(DECODER, moe=Experts(experts=8, topk=2, ffn=16))
PLANS = {
    "zero 3": spread(SIZE, dp=4, zero=3, rows=APART),
    "zero 0": spread(SIZE, dp=4, zero=0, rows=APART),
    "replicas": spread(SIZE, replica=2, dp=2, zero=2, rows=APART),
    "pp": spread(SIZE, pp=2, dp=2, zero=1, rows=[[(0, 2), (1, 3)], [(0, 2)], [(1, 3)]]),
    "pp, zero 3": spread(SIZE, dp=2, pp=2, rank_order="pp-dp", vpp=2, zero=3, rows=[[(0, 1, 2, 3)]] * 4),
    "tied ends": spread(SIZE, TIED, pp=2, tp=2, zero=0),
    "tp": spread(SIZE, dp=2, tp=2, zero=1),
    "experts with biases": spread(SIZE, with_fields(MOE, bias="all"), dp=4, zero=2, rows=APART),
    "experts": spread(SIZE, MOE, dp=4, zero=1, ep=2, rows=APART),
}


# ------------------------------------------------------------------------------------------------------- one process


def alone(plan, training, steps):
    """Norms before clipping, and the weights after each step, of torch's own way to train."""
    spec = plan.uses.models["llm"]
    model = build(spec, dtype=torch.float64)
    init_weights(model, SEED)
    named = dict(model.named_parameters())
    others = [weight for name, weight in named.items() if weight.dim() < 2 or name.split("_")[-1] == "bias"]
    matrices = [weight for weight in named.values() if not any(weight is other for other in others)]
    groups = [{"params": matrices, "weight_decay": training.decay}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1.0, betas=training.betas)
    items, norms = plan.uses.items["llm"], []
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = expected_rate(training, step, steps)
        optimizer.zero_grad()
        for item in items.items():
            (model(synthetic_batch(spec, [item], SEED)) / sum(items.values())).backward()
        norms.append(clip_grad_norm_(model.parameters(), training.clip or math.inf).item())
        optimizer.step()
    return norms, {name: weight.detach() for name, weight in named.items()}


def expected_rate(training, step, steps):
    """As torch's schedulers have it, one after the other."""
    if step < training.warmup:
        return training.learning_rate * (step + 1) / training.warmup
    weight = torch.zeros(1, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=training.learning_rate)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps - training.warmup)
    for _ in range(step - training.warmup):
        optimizer.step()
        scheduler.step()
    return scheduler.get_last_lr()[0]


def trained_here(worker, plans, options):
    """Of each plan: its run, and its weights at the end."""
    results = {}
    with joined_world(worker, timeout_s=60):
        for name, plan in plans.items():
            executor = prepare_executor(worker, plan, options)
            result = train_steps(executor, options, EarlyStop(worker, None), make_memory_snapshot(worker, None))
            found = full_tensors.full_weights(
                executor.local
            )  # as arrays: a tensor would be a file that its process has to keep
            results[name] = result, {name: values.numpy() for of in found.values() for name, values in of.items()}
    return results


# ------------------------------------------------------------------------------------------------- the same, spread out


@pytest.fixture(scope="module")
def results(request, tmp_path_factory):
    metrics = tmp_path_factory.mktemp("runs") / "metrics.jsonl"
    options = RunOptions(steps=STEPS, verify=True, seed=SEED, training=TRAINING, metrics=metrics)
    asked = asked_for(request, "name") or OFTEN[:1]
    return launch(trained_here, SIZE, {name: PLANS[name] for name in asked}, options)[0], metrics


OFTEN = ("pp, zero 3", "tied ends", "experts with biases")
every = pytest.mark.parametrize("name", soaked(PLANS, OFTEN))


@pytest.mark.slow
@every
def test_norms_and_weights_are_those_of_one_process(results, name):
    (run, weights), norms_and_weights = results[0][name], alone(PLANS[name], TRAINING, STEPS)
    norms, want = norms_and_weights
    assert [step.grad_norm for step in run.steps] == pytest.approx(norms, rel=1e-12)
    assert max(norms) > TRAINING.clip > min(norms)  # some steps were clipped, others were not
    assert weights.keys() == want.keys()
    for parameter, values in want.items():
        error = (torch.from_numpy(weights[parameter]) - values).norm() / values.norm()
        assert error <= 1e-12, (parameter, error)


@pytest.mark.slow
@every
def test_clipping_does_not_disturb_verification(results, name):
    verified = results[0][name][0].verify
    assert (verified.loss_rel_err <= 1e-12, verified.grad_rel_err <= 1e-12) == (True, True), verified


@pytest.mark.slow
@every
def test_the_norm_of_gradients_is_in_the_record_of_no_update(results, name):
    updates = [m for step in results[0][name][0].steps for m in step.measured if "/update/" in m.id]
    assert updates and all((m.sent_bytes, m.comm) == (0, 0.0) for m in updates)


@pytest.mark.slow
def test_weights_that_no_item_went_through_stay_whatever_the_zero_stage():
    """The second step of three has no image: no decay and no momentum move the encoder, as in one process."""
    plans = {f"zero {zero}": without_images(zero) for zero in (0, 1, 3)}
    options = RunOptions(steps=3, seed=SEED, training=TrainingOptions(0.01, decay=0.1))
    found = {name: weights for name, (_, weights) in launch(trained_here, 2, plans, options)[0].items()}
    first, *others = found.values()
    assert "patch.weight" in first
    for weights in others:
        for name, values in first.items():
            assert abs(weights[name] - values).max() <= 1e-12, name
    _, alone = launch(trained_here, 1, {"alone": without_images(0, 1)}, options)[0]["alone"]
    for name, values in alone.items():
        assert abs(first[name] - values).max() <= 1e-12, name


def without_images(zero, size=2):
    """Steps with an image and without."""
    layouts = {name: layout(name, range(size), dp=size, zero=zero) for name in ("llm", "vit")}
    ranks = tuple(range(size))
    rows = [{"vit": {ranks: (0,)}, "llm": {ranks: (0,)}}, {"llm": {ranks: (1,)}}]
    plan = several(layouts, rows, items={"llm": {0: 23, 1: 17}, "vit": {0: 16}}, feeds={"vit": {0: 0}})
    step = plan.steps[0]
    return with_fields(plan, steps=tuple(with_fields(step, micro_batches=(row,)) for row in step.micro_batches))


@pytest.mark.slow
@pytest.mark.parametrize("clip", [1.0, None])
def test_gradients_that_are_no_numbers_end_the_run(clip, tmp_path):
    options = RunOptions(steps=3, training=TrainingOptions(1e30, clip=clip), metrics=tmp_path / "metrics.jsonl")
    with pytest.raises(RunFailed, match=r"the norm of gradients is (nan|inf) in step [23]") as raised:
        run(two_ranks(), options, lambda _: None)
    assert "lower the learning rate" in raised.value.fix


@pytest.mark.slow
def test_metrics_are_lines_that_agree_with_the_results(results):
    lines = [json.loads(line) for line in results[1].read_text().splitlines()]
    steps = [(number, step) for run, _ in results[0].values() for number, step in enumerate(run.steps, 1)]
    assert len(lines) == len(steps)
    for line, (number, step) in zip(lines, steps, strict=True):
        assert line == {
            "step": number,
            "loss": step.loss,
            "grad_norm": step.grad_norm,
            "learning_rate": TRAINING.learning_rate_at(number - 1, STEPS),
            "tokens": step.tokens,
            "seconds": step.seconds,
            "tokens_per_s": step.tokens / step.seconds,
            "loading_seconds": step.loading,
            "peak_bytes": None,
            "memory_bytes": None,
        }


# ---------------------------------------------------------------------------------------------------- before the last


def reasons(worker):
    """What all ranks agree on: nothing; a signal to either of two; the watch of the first, and not of the second."""
    with joined_world(worker, timeout_s=60):
        found = []
        for asked, late in ((None, None), (0, None), (1, None), (None, 0), (None, 1), (1, 0)):
            ending = EarlyStop(worker, 1e-9 if late == worker.rank else None)
            ending.received = "interrupt" if asked == worker.rank else None
            found.append(ending.agree().reason)
        return found


@pytest.mark.slow
def test_all_ranks_agree_when_to_end():
    assert launch(reasons, 2) == [["steps", "interrupt", "interrupt", "time", "steps", "interrupt"]] * 2


@pytest.mark.slow
def test_a_run_ends_when_its_time_is_over():
    result = run(two_ranks(), RunOptions(steps=1000, max_seconds=1e-9), lambda _: None)
    assert (len(result.steps), result.stop_reason) == (1, "time")


@pytest.fixture
def heeded(number):
    """The signal, which is not ignored here, as SIGHUP is under nohup: a run would not end by it."""
    before = signal.getsignal(number)
    if before is signal.SIG_IGN:
        signal.signal(number, signal.SIG_DFL)
    yield number
    signal.signal(number, before)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "reason"),
    soaked(
        [(signal.SIGINT, "interrupt"), (signal.SIGTERM, "terminate"), (signal.SIGHUP, "hangup")],
        [(signal.SIGTERM, "terminate")],
    ),
)
def test_a_run_that_is_interrupted_gives_what_it_came_to(heeded, reason, tmp_path):
    """And saves it, although a checkpoint is being written whenever the signal comes."""
    heard = []

    def interrupt(progress):
        heard.append(progress.loss)
        if progress.step == 3:
            os.kill(os.getpid(), heeded)

    before = signal.getsignal(heeded)
    result = run(two_ranks(), RunOptions(steps=100_000, save=tmp_path, save_every=1), interrupt)
    assert result.stop_reason == reason and 3 <= len(result.steps) < 50_000
    index = read_index(tmp_path)
    assert index.steps == len(result.steps)
    assert all(file_digest(tmp_path / index.states / name) == digest for name, digest in index.digests.items())
    assert [step.loss for step in result.steps] == heard
    assert signal.getsignal(heeded) is before
    assert not multiprocessing.active_children()


@pytest.mark.slow
def test_options_under_torchrun(tmp_path):
    write(tmp_path / "plan.yaml", two_ranks())
    options = ["--steps=3", "--schedule=linear", "--warmup=1", "--clip=0.1", "--betas", "0.8", "0.9",
               "--weight-decay=0", "--learning-rate=0.5", f"--metrics={tmp_path / 'metrics.jsonl'}"]  # fmt: skip
    done, other = run_ranks(2, tmp_path / "plan.yaml", *options)
    assert (done.returncode, other) == (0, (0, "", "")), done.stderr
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["learning_rate"] for line in lines] == [0.5, 0.5, 0.25]
    summary = json.loads(done.stdout.splitlines()[-1])
    assert summary["losses"] == [line["loss"] for line in lines] and summary["ended"] == "steps"
    assert summary["steps_before"] == 0


@pytest.mark.slow
def test_a_scheduler_may_signal_every_process_and_the_run_is_saved(tmp_path):
    """As Slurm does; torchrun passes it on to its workers."""
    write(tmp_path / "plan.yaml", two_ranks())
    command = [sys.executable, "-m", "planner", "run", tmp_path / "plan.yaml", "--steps=100000", "--no-ledger",
               f"--save={tmp_path / 'saved'}", f"--metrics={tmp_path / 'metrics.jsonl'}"]  # fmt: skip
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, env=environment, stdout=-1, stderr=-1, text=True, start_new_session=True)
    try:
        while process.poll() is None and len(lines_of(tmp_path / "metrics.jsonl")) < 2:
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGTERM)
        said, errors = process.communicate()
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 128 + signal.SIGTERM, errors
    assert "SIGTERM" in said and "to resume:" in said
    assert read_index(tmp_path / "saved").steps == len(lines_of(tmp_path / "metrics.jsonl"))


def lines_of(path):
    return path.read_text().splitlines() if path.is_file() else []


def interrupted_while_it_loads(worker, plan, options):
    """Ctrl-C on one of two ranks before the first step."""
    if worker.rank:
        load = executing.RankState.__init__

        def interrupted(*given):
            os.kill(os.getpid(), signal.SIGINT)
            load(*given)

        executing.RankState.__init__ = interrupted
    with joined_world(worker, timeout_s=60):
        return train(worker, plan, options)


@pytest.mark.slow
def test_a_run_that_is_interrupted_while_it_loads_ends_behind_its_first_step():
    result, _ = launch(interrupted_while_it_loads, 2, two_ranks(), RunOptions(steps=3))
    assert (len(result.steps), result.stop_reason) == (1, "interrupt")


@pytest.mark.slow
def test_records_of_the_last_steps_are_kept():
    steps = run(two_ranks(), RunOptions(steps=MEASURED_STEPS + 3), lambda _: None).steps
    assert [bool(step.measured) for step in steps] == [False] * 3 + [True] * MEASURED_STEPS


def two_ranks():
    return spread(2, dp=2, zero=1, rows=[[(0, 1)]], dtype="float32")


# --------------------------------------------------------------------------------------------------- schedule, file


@pytest.mark.parametrize("schedule", ["constant", "cosine", "linear"])
@pytest.mark.parametrize("warmup", [0, 1, 5])
def test_the_rate_rises_to_its_highest_and_falls_to_nothing(schedule, warmup):
    rates = [TrainingOptions(0.5, schedule, warmup).learning_rate_at(step, 20) for step in range(21)]
    assert rates[: warmup + 1] == pytest.approx([0.5 * (step + 1) / warmup for step in range(warmup)] + [0.5])
    assert all(later <= earlier for earlier, later in pairwise(rates[warmup:]))
    assert rates[20] == pytest.approx(0.5 if schedule == "constant" else 0.0)


def test_a_metrics_file_is_continued(tmp_path):
    path = tmp_path / "metrics.jsonl"
    step = StepResult(loss=math.nan, tokens=6, seconds=2.0, measured=(), peak_bytes=(5, 7), grad_norm=1.5)
    for number in (1, 2):
        with metrics_writer(path) as note:
            note(number, step)
            assert len(path.read_text().splitlines()) == number  # there as soon as the step is over
    path.write_text(path.read_text() + '{"step": 3, "lo')  # cut off
    with metrics_writer(path) as note:
        note(3, step)
    first, second, cut, third = path.read_text().splitlines()
    assert [json.loads(line)["step"] for line in (first, second, third)] == [1, 2, 3]
    assert cut == '{"step": 3, "lo'
    found = json.loads(third)
    assert (found["loss"], found["tokens_per_s"], found["peak_bytes"], found["grad_norm"]) == (None, 3.0, 7, 1.5)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_a_metrics_file_that_fails_is_named(tmp_path):
    step = StepResult(loss=1.0, tokens=6, seconds=2.0, measured=(), peak_bytes=(None,))
    full = tmp_path / "metrics.jsonl"
    full.symlink_to("/dev/full")
    with pytest.raises(RunFailed, match="step 3 cannot be written: No space") as raised, metrics_writer(full) as note:
        note(3, step)
    assert raised.value.where == str(full)


def test_a_metrics_file_that_cannot_be_written(tmp_path):
    with pytest.raises(InputError, match="cannot write the file"), metrics_writer(tmp_path):
        pass
