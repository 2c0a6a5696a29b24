"""A run that is stopped and resumed has the same losses, weights and states as one that was not, under any plan."""

import errno
import os
import shutil
import signal
import time
from dataclasses import replace
from functools import partial

import pytest

from planner.errors import RunFailed
from planner.files.write import atomic_write as whole_file
from planner.launch.communication import barrier
from planner.launch.processes import launch
from planner.launch.worker import joined_world
from planner.models.checkpoints.safetensors_files import SINGLE_FILE
from planner.runtime import RunOptions
from planner.runtime.checkpoint import accepting
from planner.runtime.checkpoint.checkpoint_index import INDEX_FILE, NEW_STATES, TENSOR_KINDS, UNACCEPTED, read_index
from planner.runtime.checkpoint.saving import SAVE_LOCK, CheckpointSaver
from planner.runtime.checkpoint.stored_states import stored_states
from planner.runtime.execute.training_loop import train
from planner.runtime.run_options import TrainingOptions
from planner.specs.base import with_fields
from planner.specs.layers.components import Experts
from tests.checkpoint_files import full_tensors
from tests.examples import soaked
from tests.runtime.test_several_modules import ALL, HIGH, LOW, layout
from tests.runtime.test_several_modules import joined as several
from tests.runtime.training_worlds import DECODER, asked_for, choose_warm_up, spread

STEPS, CUT = 5, 3
HALF = f"whole/kept/step-{CUT}"
OPTIONS = RunOptions(steps=STEPS, seed=5, training=TrainingOptions(0.01, "cosine", 2, 1.0, (0.9, 0.95), 0.1))
TIED = with_fields(DECODER, tied=True)
MOE = with_fields(DECODER, bias="all", moe=Experts(experts=8, topk=2, ffn=16))


def two_steps(plan, rows):
    """A plan's first rows and its other ones as two steps: a run in the middle of them has a place in the data."""
    step = plan.steps[0]
    parts = (step.micro_batches[:rows], step.micro_batches[rows:])
    return with_fields(plan, steps=tuple(with_fields(step, micro_batches=part) for part in parts))


SPLIT_GROUPS = [[(0,), (1,)], [(0, 1)], [(1,)]]  # groups of micro-batches: as many items in each half as of TOGETHER
TOGETHER = [[(0, 1)]] * 4
SHARDS = two_steps(spread(2, dp=2, zero=3, rows=SPLIT_GROUPS), 1)
TIED_SHARDS = two_steps(spread(2, TIED, dp=2, zero=2, rows=SPLIT_GROUPS), 1)
SEEING = two_steps(
    several(
        {"llm": layout("llm", range(2), dp=2), "vit": layout("vit", range(2), pp=2)},
        [
            {"vit": {(0, 1): (0, 1, 2)}, "llm": {(0,): (0,), (1,): (1,)}},
            {"vit": {(0, 1): (3,)}, "llm": {(0, 1): (2, 3)}},
        ],
    ),
    1,
)
SEEING_APART = two_steps(
    several(
        {"llm": layout("llm", range(2), tp=2), "vit": layout("vit", (1,), dp=1)},
        [{"vit": {(1,): (0, 1, 2)}, "llm": {(0, 1): (0, 1)}}, {"vit": {(1,): (3,)}, "llm": {(0, 1): (2, 3)}}],
    ),
    1,
)
PAIRS = {
    "the same plan": (SHARDS, SHARDS),
    "tensors": (
        two_steps(spread(2, dp=2, zero=1, rows=SPLIT_GROUPS), 1),
        two_steps(spread(2, tp=2, zero=1, rows=TOGETHER), 2),
    ),
    "stages": (SHARDS, two_steps(spread(2, pp=2, zero=0, rows=TOGETHER), 2)),
    "tied ends": (TIED_SHARDS, two_steps(spread(2, TIED, pp=2, zero=1, rows=TOGETHER), 2)),
    "experts": (
        two_steps(spread(2, MOE, dp=2, zero=1, ep=2, rows=TOGETHER), 2),
        two_steps(spread(2, MOE, dp=2, zero=2, rows=TOGETHER), 2),
    ),
    "an encoder": (SEEING, SEEING_APART),
}

# ---------------------------------------------------------------------------------------- several ways at once, on four

ROWS = [[(0, 2), (1, 3)], [(0, 2)], [(1, 3)]]  # of two stages
REPLICAS = two_steps(spread(4, TIED, replica=2, dp=2, zero=2, rows=[[ALL]] * 4), 2)
CHUNKS = two_steps(spread(4, dp=2, pp=2, rank_order="pp-dp", vpp=2, zero=3, rows=[[ALL]] * 4), 2)
EXPERT_PARTS = two_steps(spread(4, MOE, tp=4, zero=1, ep=2, etp=2, rows=[[ALL]] * 4), 2)
FOUR = {
    "from chunks": (CHUNKS, two_steps(spread(4, dp=2, tp=2, zero=0, rows=[[ALL]] * 4), 2)),
    "from stages": (
        two_steps(spread(4, pp=2, dp=2, zero=1, rows=ROWS), 1),
        two_steps(spread(4, dp=4, zero=3, rows=[[LOW, HIGH], [ALL], [HIGH]]), 1),
    ),
    "replicas": (REPLICAS, two_steps(spread(4, TIED, pp=2, tp=2, zero=0, rows=[[ALL]] * 4), 2)),
    "parts of experts": (
        two_steps(spread(4, MOE, dp=4, zero=1, ep=2, rows=[[ALL]] * 4), 2),
        EXPERT_PARTS,
    ),
    "an encoder elsewhere": (
        two_steps(
            several(
                {"llm": layout("llm", pp=2, tp=2), "vit": layout("vit", HIGH, dp=2, zero=2)},
                [{"vit": {HIGH: (0, 1, 2)}, "llm": {ALL: (0, 1)}}, {"vit": {(2,): (3,)}, "llm": {ALL: (2, 3)}}],
            ),
            1,
        ),
        two_steps(
            several(
                {"llm": layout("llm", dp=4), "vit": layout("vit", pp=2, tp=2)},
                [{"vit": {ALL: (0, 1, 2)}, "llm": {LOW: (0,), HIGH: (1,)}}, {"vit": {ALL: (3,)}, "llm": {ALL: (2, 3)}}],
            ),
            1,
        ),
    ),
}
VERIFIED = ("stages", "an encoder")
OFTEN = (*VERIFIED, "the same plan", "tied ends")  # of PAIRS; `test_other_worlds.py` has others, and the soak all


# ------------------------------------------------------------------------------------------------------ in both halves


def run(worker, plan, options):
    """Losses and what was verified, on the first rank."""
    result = train(worker, plan, options)
    return result and ([step.loss for step in result.steps], result.verify)


def saved_and_resumed(worker, pairs, folder, options=OPTIONS, warm=True):
    """Of each pair: all steps by the first plan, saved on the way and at the end; then the last ones by the second. A
    first plan of several pairs runs once.
    """
    found = {}
    choose_warm_up(warm)
    with joined_world(worker, timeout_s=60):
        for name, (before, then) in pairs.items():
            saved = partial(told, options, folder / name)
            same = next(other for other, (plan, _) in pairs.items() if plan == before)
            if same == name:
                whole = run(worker, before, saved(save="whole", save_every=CUT, keep=2))
            else:
                whole = found[same][0]
                if worker.rank == 0:
                    (folder / name).mkdir()
                    (folder / name / "whole").symlink_to(folder / same / "whole")
                barrier()
            rest = run(worker, then, saved(save="end", resume=HALF, verify=name in VERIFIED))
            found[name] = whole, rest
    return found


def told(options, folder, **said):
    """Options with others among them; names are of folders."""
    return replace(options, **{key: folder / value if isinstance(value, str) else value for key, value in said.items()})


@pytest.fixture(scope="module")
def results(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoints")
    pairs = {name: PAIRS[name] for name in asked_for(request, "name") if name in PAIRS}
    return launch(saved_and_resumed, 2, pairs, folder)[0], folder


every = pytest.mark.parametrize("name", soaked(PAIRS, OFTEN))


@pytest.mark.slow
@every
def test_losses_are_those_of_a_run_that_was_not_stopped(results, name):
    require_same_losses(*results[0][name])


@pytest.mark.slow
@every
def test_so_are_weights_and_states(results, name):
    require_same_states(results[1] / name, PAIRS[name][0].layouts)


@pytest.mark.slow
@pytest.mark.parametrize("name", VERIFIED)
def test_one_process_goes_on_from_there_too(results, name):
    verified = results[0][name][1][1]
    assert (verified.loss_rel_err <= 1e-12, verified.grad_rel_err <= 1e-12) == (True, True), verified
    assert verified.steps == 2


def require_same_losses(first, then):
    (whole, _), (rest, _) = first, then
    assert (len(whole), len(rest)) == (STEPS, STEPS - CUT)
    assert rest == pytest.approx(whole[CUT:], rel=1e-12)
    assert abs(whole[CUT] / whole[CUT - 2] - 1) > 1e-3  # the same items, two steps later


def require_same_states(folder, modules):
    """Of all steps at once, and of the second half behind the first."""
    indices = {end: read_index(folder / end) for end in ("whole", HALF, "end")}
    assert [index.steps for index in indices.values()] == [STEPS, CUT, STEPS]
    states = [stored_states(folder / end, index) for end, index in indices.items()]
    for module in modules:
        for kind in TENSOR_KINDS:
            want, half, found = (full_tensors(each, module, kind) for each in states)
            assert found.keys() == want.keys() == half.keys() and want
            errors = {name: apart(found[name], want[name]) for name in want}
            assert max(errors.values()) <= 1e-12, (module, kind, max(errors, key=errors.get))
            assert max(apart(half[name], want[name]) for name in want) > 1e-3


def apart(found, want):
    return float((found - want).norm() / want.norm())


# ------------------------------------------------------------------------------------------------------- on one rank


ALONE = two_steps(spread(1, with_fields(DECODER, layers=1), dp=1, zero=1, rows=[[(0,)]] * 2), 1)


def in_pieces(worker, folder):
    """A run; the same in pieces, of which the first two end since their time is over; behind which steps one saved."""
    choose_warm_up(False)
    at, behind, save = partial(told, OPTIONS, folder), [], CheckpointSaver.save

    def heard(saver, steps, last):
        behind.append((steps, last))
        save(saver, steps, last)

    with joined_world(worker, timeout_s=60):
        whole, pieces = train(worker, ALONE, OPTIONS), []
        for resume, max_seconds in ((None, 1e-9), ("time", 1e-9), ("time", None)):
            pieces.append(train(worker, ALONE, at(save="time", max_seconds=max_seconds, resume=resume)))
        CheckpointSaver.save = heard
        train(worker, ALONE, at(save="often", save_every=4))
        CheckpointSaver.save = save
    return whole, pieces, behind


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    folder = tmp_path_factory.mktemp("alone")
    return launch(in_pieces, 1, folder)[0], folder


@pytest.mark.slow
def test_a_run_whose_time_is_over_goes_on_to_the_same_end(alone):
    whole, pieces = alone[0][:2]
    assert [(each.steps_before, each.stop_reason, len(each.steps)) for each in pieces] == [
        (0, "time", 1),
        (1, "time", 1),
        (2, "steps", STEPS - 2),
    ]
    found = [step for each in pieces for step in each.steps]
    assert [step.loss for step in found] == pytest.approx([step.loss for step in whole.steps], rel=1e-12)
    assert [step.learning_rate for step in found] == [
        OPTIONS.training.learning_rate_at(number, STEPS) for number in range(STEPS)
    ]


@pytest.mark.slow
def test_it_saves_as_often_as_it_is_told_and_at_its_end(alone):
    assert alone[0][2] == [(4, False), (STEPS, True)]


# -------------------------------------------------------------------------------------------- what goes wrong meanwhile


def gone_wrong(worker, folder):
    """Why saves failed, and what they left; what happened on the disk while a run saves; steps that one saved to which
    Ctrl-C came while it wrote; and how the run of the failed saves goes on.
    """
    choose_warm_up(False)
    at, failures, write = partial(told, OPTIONS, folder), [], accepting.write_shards
    with joined_world(worker, timeout_s=60):
        train(worker, ALONE, at(save="kept", steps=2))
        for way in (diverged, full_disk):
            accepting.write_shards = way
            with pytest.raises(RunFailed) as error:
                train(worker, ALONE, at(save="kept", resume="kept", save_every=3))
            left = {path.name for path in (folder / "kept").iterdir()}
            failures.append((error.value.message, error.value.where, left))
        accepting.write_shards = write
        happened = watched(lambda: train(worker, ALONE, at(save="seen", save_every=3)))
        stopped = interrupted(lambda: train(worker, ALONE, at(save="stopped", save_every=2)))
        last = train(worker, ALONE, at(save="kept", resume="kept"))
    return failures, happened, stopped, last


def diverged(path, shards, values):
    next(iter(shards.values())).values.view(-1)[0] = float("inf")
    return [*values]


def full_disk(path, shards, values):
    with whole_file(path) as out:
        next(iter(values))
        out.write(b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def watched(run):
    """In what order files come and go while a run saves."""
    happened, sync, rename, remove = [], os.fsync, os.replace, shutil.rmtree

    def noted(what, does, named):
        def doing(at, *to, **how):
            happened.append((what, str(named(at)), *map(str, to)))
            return does(at, *to, **how)

        return doing

    os.fsync = noted("sync", sync, lambda handle: os.readlink(f"/proc/self/fd/{handle}"))
    os.replace = noted("rename", rename, str)
    shutil.rmtree = noted("remove", remove, str)
    try:
        run()
    finally:
        os.fsync, os.replace, shutil.rmtree = sync, rename, remove
    return happened


def interrupted(run):
    """Ctrl-C comes while the first checkpoint is written, which ends no sooner than the next step."""
    saved, write = [], accepting.write_shards

    def slowly(path, shards, values):
        saved.append(len(saved))
        if len(saved) == 1:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.5)
        return write(path, shards, values)

    accepting.write_shards = slowly
    result = run()
    accepting.write_shards = write
    return len(saved), result.stop_reason, len(result.steps)


@pytest.fixture(scope="module")
def wrong(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wrong")
    return launch(gone_wrong, 1, folder)[0], folder


@pytest.mark.slow
def test_what_is_not_finite_or_finds_no_room_leaves_the_checkpoint_before(wrong):
    (failures, _, _, last), folder = wrong
    (diverged_says, where, left), (full_says, place, half) = failures
    assert "is not finite after step 3" in diverged_says and where == "step 3"
    assert "No space left" in full_says and place == str(folder / "kept" / NEW_STATES / "rank-0.safetensors")
    assert (last.steps_before, len(last.steps)) == (2, STEPS - 2)
    assert left == half == {INDEX_FILE, "states-a", "config.json", SINGLE_FILE, SAVE_LOCK}


@pytest.mark.slow
def test_what_a_checkpoint_replaces_goes_when_the_disk_has_the_new_one(wrong):
    happened, folder = wrong[0][1], str(wrong[1] / "seen")
    index = max(at for at, what in enumerate(happened) if what[0] == "rename" and what[-1].endswith(INDEX_FILE))
    removed = max(at for at, what in enumerate(happened) if what == ("remove", f"{folder}/states-a"))
    synced = [at for at, what in enumerate(happened) if what == ("sync", folder)]
    states = happened.index(("rename", f"{folder}/{NEW_STATES}", f"{folder}/states-b"))
    assert any(index < at < removed for at in synced)  # the index is there under its name
    assert any(states < at < index for at in synced)  # and before it, what it names
    for at, (what, *names) in enumerate(happened):
        if what == "rename" and names[0].rpartition("/")[2].startswith("."):
            assert ("sync", names[0]) in happened[:at]
    assert not (wrong[1] / "seen" / "states-b" / UNACCEPTED).exists()


@pytest.mark.slow
def test_an_interrupt_while_it_writes_ends_the_run_behind_its_step_with_both_checkpoints(wrong):
    saves, reason, steps = wrong[0][2]
    assert (saves, reason) == (2, "interrupt") and steps in (2, 3)
    assert read_index(wrong[1] / "stopped").steps == steps
