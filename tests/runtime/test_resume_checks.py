"""A run resumes from a checkpoint of its own, or says before anything is launched why it cannot."""

import shutil
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from planner import files
from planner.errors import InputError
from planner.models.build import build
from planner.runtime import RunOptions
from planner.runtime.checkpoint import checkpoint_index as index_module
from planner.runtime.checkpoint.checkpoint_index import (
    INDEX_FILE,
    NEW_STATES,
    TENSOR_KINDS,
    UNACCEPTED,
    SavedStates,
    TrainingRecord,
    checkpoint_index,
    data_digest,
    read_index,
    shard_file,
    shard_prefix,
)
from planner.runtime.checkpoint.resume_checks import require_save_folder, resolve_resume, run_differences
from planner.runtime.preflight.preflight_checks import require_runnable
from planner.runtime.run_options import TrainingOptions
from planner.specs.base import with_fields
from planner.specs.workload.token_folder import OFFSETS, TOKENS
from tests.checkpoint_files import write_states, write_tensors
from tests.plans import sharded_plan
from tests.runtime.test_resuming import PAIRS
from tests.runtime.training_worlds import DECODER, spread

PLAN = sharded_plan(2, [[(0, 2)], [(1, 2)]])
OTHER = spread(2, PLAN.uses.models["llm"], pp=2, zero=0, dtype="bf16", rows=[[(0, 1)]])
TRAINING = TrainingOptions(0.002, "cosine", warmup=3, clip=1.0, betas=(0.8, 0.9), decay=0.1)
OPTIONS = RunOptions(steps=20, seed=7, training=TRAINING)


@pytest.fixture
def folder(tmp_path):
    """Of a run of 12 steps."""
    spec = PLAN.uses.models["llm"]
    shapes = {name: values.shape for name, values in build(spec, device=torch.device("meta")).named_parameters()}
    digests = {}
    for rank, kind in enumerate(TENSOR_KINDS):
        values = {
            f"{shard_prefix('llm', kind)}{name}": torch.zeros(() if kind == "step" else shape)
            for name, shape in shapes.items()
        }
        digests[shard_file(rank)] = write_states(tmp_path / "states-a" / shard_file(rank), values)
    files.write(tmp_path / INDEX_FILE, checkpoint_index(PLAN, OPTIONS, SavedStates(12, "states-a", digests)))
    return tmp_path


def saved_with(folder, options):
    """Of a run with other options."""
    saved = SavedStates(12, "states-a", read_index(folder).digests)
    files.write(folder / INDEX_FILE, checkpoint_index(PLAN, options, saved))


def refused(plan, options):
    with pytest.raises(InputError) as error:
        require_runnable(plan, options)
    assert error.value.fix
    return error.value


def test_the_same_run_goes_on_under_any_plan_of_its_model(folder):
    for plan in (PLAN, OTHER):
        require_runnable(plan, replace(OPTIONS, resume=folder, save=folder, save_every=2))


def test_the_index_is_read_as_it_was_written(folder):
    index = read_index(folder)
    assert index == checkpoint_index(PLAN, OPTIONS, SavedStates(12, "states-a", index.digests))


def test_another_weighting_of_the_loss_is_refused(folder):
    weighted = with_fields(PLAN, uses=with_fields(PLAN.uses, loss="sample"))
    error = refused(weighted, replace(OPTIONS, resume=folder))
    assert (error.message, error.where) == (
        "the checkpoint was trained with loss: token, and the plan says loss: sample",
        "uses.loss",
    )


@pytest.mark.parametrize("name", PAIRS)
def test_plans_of_one_model_do_not_differ(tmp_path, name):
    before, then = PAIRS[name]
    files.write(tmp_path / INDEX_FILE, checkpoint_index(before, OPTIONS, SavedStates(3, "states-b", {})))
    assert [*run_differences(read_index(tmp_path), then, OPTIONS)] == []


def test_data_is_the_same_wherever_it_lies(tmp_path):
    for name, ends, first in (
        ("a", [0, 4, 9], 1),
        ("b", [0, 4, 9], 1),
        ("rows", [0, 5, 9], 1),
        ("tokens", [0, 4, 9], 2),
    ):
        (tmp_path / name).mkdir()
        np.save(tmp_path / name / OFFSETS, np.array(ends, dtype="int64"))
        np.save(tmp_path / name / TOKENS, np.array([first, *range(8)], dtype="uint16"))
    said = replace(OPTIONS, data=tmp_path / "a")
    found = checkpoint_index(PLAN, said, SavedStates(12, "states-a", {}), data_digest(said))
    assert not [*run_differences(found, PLAN, replace(OPTIONS, data=tmp_path / "b"))]
    for data in (tmp_path / "rows", tmp_path / "tokens", None):
        assert [where for _, where, _ in run_differences(found, PLAN, replace(OPTIONS, data=data))] == ["--data"]


@pytest.mark.parametrize("at", [0, 100, -1])
def test_both_ends_and_the_size_of_much_data_tell_it_from_other(tmp_path, monkeypatch, at):
    monkeypatch.setattr(index_module, "READ_BYTES", 256)
    np.save(tmp_path / OFFSETS, np.array([0, 2000], dtype="int64"))
    digests = set()
    for changed_at in (None, at):
        tokens = np.arange(2000, dtype="uint16")
        if changed_at == at:
            tokens = np.delete(tokens, 900) if at == 100 else tokens
            tokens[at] += 1
        np.save(tmp_path / TOKENS, tokens)
        digests.add(data_digest(replace(OPTIONS, data=tmp_path)))
    assert len(digests) == 2


def test_data_that_is_gone_is_named(tmp_path):
    with pytest.raises(InputError) as error:
        data_digest(replace(OPTIONS, data=tmp_path))
    assert error.value.where == str(tmp_path / OFFSETS)


def test_the_index_has_all_options_of_training():
    assert list(TrainingRecord.__struct_fields__) == [field.name for field in fields(TrainingOptions)]


@pytest.mark.parametrize("name", ["../rank-0.safetensors", "/dev/zero", ".."])
def test_an_index_names_files_beside_it_only(folder, name):
    text = (folder / INDEX_FILE).read_text()
    (folder / INDEX_FILE).write_text(text.replace("rank-0.safetensors", name))
    error = refused(PLAN, replace(OPTIONS, resume=folder))
    assert "no plain name" in error.message and error.where == f"{folder / INDEX_FILE} (digests)"


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "checkpoint.yaml", "states-b", "kept"])
def test_a_checkpoint_is_not_saved_over_links_that_lead_out(tmp_path, name):
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / name).symlink_to(tmp_path / "elsewhere")
    error = refused(PLAN, replace(OPTIONS, save=tmp_path / "saved"))
    assert f"`{name}` leads out of" in error.message and error.where == f"--save {tmp_path / 'saved'}"


@pytest.mark.parametrize("what", ["nothing", "folder", "weights"])
def test_what_is_no_checkpoint(tmp_path, folder, what):
    place = {"nothing": tmp_path / "none", "folder": tmp_path / "states-a", "weights": tmp_path}[what]
    if what == "weights":
        (folder / INDEX_FILE).unlink()
    error = refused(PLAN, replace(OPTIONS, resume=place))
    assert "this is no checkpoint" in error.message and error.where == f"--resume {place}"


@pytest.mark.parametrize(("old", "new"), [("warmup: 3, ", ""), ("warmup: 3", "warmup: 3, lr: 4"), ("cosine", "cosy")])
def test_training_that_nobody_knows_is_shown_with_its_line(folder, old, new):
    text = (folder / INDEX_FILE).read_text()
    assert text.count(old) == 1
    (folder / INDEX_FILE).write_text(text.replace(old, new))
    error = refused(PLAN, replace(OPTIONS, resume=folder))
    assert error.where.startswith(f"{folder / INDEX_FILE}:") and "training" in error.where


@pytest.mark.parametrize("text", ["", "format: planner.plan/1\n", "format: planner.checkpoint/1\nsteps: soon\n"])
def test_an_index_that_is_none_is_shown_with_its_line(folder, text):
    (folder / INDEX_FILE).write_text(text)
    assert refused(PLAN, replace(OPTIONS, resume=folder)).where.startswith(f"{folder / INDEX_FILE}:")


def with_model(**said):
    return with_fields(PLAN, uses=with_fields(PLAN.uses, models={"llm": with_fields(PLAN.uses.models["llm"], **said)}))


@pytest.mark.parametrize(
    ("plan", "says"),
    [
        (with_model(vocab=80), "`llm.vocab` is 64 in the checkpoint and 80 in the plan"),
        (with_model(norm_eps=1e-6), "`llm.norm_eps` is 1e-05 in the checkpoint and 1e-06 in the plan"),
        (with_model(window=8), "`llm.window` is none in the checkpoint and 8 in the plan"),
    ],
)
def test_another_model_is_named(folder, plan, says):
    error = refused(plan, replace(OPTIONS, resume=folder))
    assert (error.message, error.where) == (says, f"--resume {folder}")


def test_other_modules_are_named(folder):
    files.write(folder / INDEX_FILE, with_fields(read_index(folder), models={"llm": DECODER, "vit": DECODER}))
    error = refused(PLAN, replace(OPTIONS, resume=folder))
    assert error.message == "the checkpoint has the modules llm, vit; the plan has llm"


@pytest.mark.parametrize(
    ("said", "where", "fix"),
    [
        ({"seed": 8}, "--seed", "--seed 7"),
        ({"learning_rate": 0.001}, "--learning-rate", "--learning-rate 0.002"),
        ({"schedule": "linear"}, "--schedule", "--schedule cosine"),
        ({"warmup": 0}, "--warmup", "--warmup 3"),
        ({"clip": None}, "--clip", "--clip 1.0"),
        ({"betas": (0.8, 0.95)}, "--betas", "--betas 0.8 0.9"),
        ({"decay": 0.0}, "--weight-decay", "--weight-decay 0.1"),
    ],
)
def test_training_that_would_go_on_otherwise_is_refused_with_what_it_was(folder, said, where, fix):
    options = replace(OPTIONS, **said) if "seed" in said else replace(OPTIONS, training=replace(TRAINING, **said))
    error = refused(PLAN, replace(options, resume=folder))
    assert error.where == where and error.fix.startswith(f"{fix};")


def test_what_was_not_said_is_to_be_left_out(folder):
    saved_with(folder, replace(OPTIONS, training=replace(TRAINING, clip=None)))
    assert refused(PLAN, replace(OPTIONS, resume=folder)).fix.startswith("leave --clip out;")


def test_other_data_is_refused(folder):
    files.write(folder / INDEX_FILE, with_fields(read_index(folder), data="0" * 16))
    assert refused(PLAN, replace(OPTIONS, resume=folder)).where == "--data"


def test_a_run_without_a_step_to_do_is_refused(folder):
    plain = replace(OPTIONS, training=replace(TRAINING, schedule="constant"))
    saved_with(folder, plain)
    error = refused(PLAN, replace(plain, resume=folder, steps=12))
    assert error.where == "--steps" and error.fix.startswith("--steps 13,")
    require_runnable(PLAN, replace(plain, resume=folder, steps=13))


def test_a_schedule_ends_where_it_was_to_end(folder):
    error = refused(PLAN, replace(OPTIONS, resume=folder, steps=30))
    assert error.where == "--steps" and error.fix.startswith("--steps 20; or")
    files.write(folder / INDEX_FILE, with_fields(read_index(folder), total=30))
    require_runnable(PLAN, replace(OPTIONS, resume=folder, steps=30))
    files.write(folder / INDEX_FILE, with_fields(read_index(folder), total=12))
    assert (
        refused(PLAN, replace(OPTIONS, resume=folder)).fix == f"to resume with another, change `total` in {INDEX_FILE}"
    )


def test_other_numbers_are_refused(folder):
    error = refused(PLAN, replace(OPTIONS, resume=folder, dtype="float64"))
    assert error.where == "--dtype" and error.fix.startswith("--dtype bf16;")


def test_steps_in_all_are_those_of_the_checkpoint_if_any_are_left(folder):
    assert resolve_resume(replace(OPTIONS, resume=folder, steps=None)).steps == 20
    assert resolve_resume(replace(OPTIONS, resume=folder, steps=25)).steps == 25
    files.write(folder / INDEX_FILE, with_fields(read_index(folder), total=12))
    assert resolve_resume(replace(OPTIONS, resume=folder, steps=None)).steps is None


def test_one_command_begins_a_run_and_goes_on_with_it(tmp_path, folder):
    """With weights from elsewhere, too: they are where it begins."""
    begun = replace(OPTIONS, weights=tmp_path / "hf", save=tmp_path / "new", resume=tmp_path / "new")
    assert resolve_resume(begun) == replace(begun, resume=None)
    (tmp_path / "new" / NEW_STATES).mkdir(parents=True)  # killed in its first save
    assert resolve_resume(begun) == resolve_resume(resolve_resume(begun)) == replace(begun, resume=None)
    require_save_folder(resolve_resume(begun))
    again = replace(begun, save=folder, resume=folder)
    assert resolve_resume(again) == replace(again, weights=None)
    require_runnable(PLAN, resolve_resume(again))


@pytest.mark.parametrize("resume", [None, "another"])
def test_a_checkpoint_is_replaced_by_its_own_run_alone(folder, tmp_path_factory, resume):
    another = tmp_path_factory.mktemp("another")
    shutil.copytree(folder, another, dirs_exist_ok=True)
    error = refused(PLAN, replace(OPTIONS, save=folder, resume=another if resume else None))
    assert error.where == f"--save {folder}" and error.fix.startswith(f"--resume {folder} ")


@pytest.mark.parametrize("side", ["states-a", "states-b"])
def test_states_without_an_index_are_left_alone(tmp_path, side):
    """But not those that a kill left before their index was there."""
    (tmp_path / side).mkdir()
    for resume in (None, tmp_path):
        error = refused(PLAN, resolve_resume(replace(OPTIONS, save=tmp_path, resume=resume)))
        assert error.message.startswith(side) and error.where == f"--save {tmp_path}"
    (tmp_path / side / UNACCEPTED).touch()
    require_save_folder(resolve_resume(replace(OPTIONS, save=tmp_path, resume=tmp_path)))


def test_an_index_that_cannot_be_read_is_not_taken_for_none(folder):
    (folder / INDEX_FILE).write_text("format: planner.checkpoint/1\nsteps: soon\n")
    with pytest.raises(InputError, match="expected a whole number"):
        resolve_resume(replace(OPTIONS, save=folder, resume=folder))


def test_weights_are_not_saved_over(tmp_path):
    error = refused(PLAN, replace(OPTIONS, weights=tmp_path, save=tmp_path / "x" / ".."))
    assert error.where.startswith("--save") and "start" in error.message


def test_names_that_no_file_can_have_are_refused_in_their_place(tmp_path):
    name = tmp_path / ("a" * 300)
    for option, said in (("--save", {"save": name}), ("--resume", {"resume": name})):
        error = refused(PLAN, replace(OPTIONS, **said))
        assert error.where == f"{option} {name}" and "too long" in error.message


def test_weights_of_two_places_are_refused(folder):
    assert refused(PLAN, replace(OPTIONS, resume=folder, weights=Path("elsewhere"))).where == "--weights"


@pytest.mark.parametrize("rank", range(4))
def test_files_that_are_cut_off_missing_or_others_are_named(folder, rank):
    path = folder / "states-a" / shard_file(rank)
    there = path.read_bytes()
    path.write_bytes(there[:-1])
    error = refused(PLAN, replace(OPTIONS, resume=folder))
    assert "no safetensors file" in error.message and error.where == str(path)
    path.unlink()
    error = refused(PLAN, replace(OPTIONS, resume=folder))
    assert "No such file" in error.message and error.where == str(path)
    write_tensors(path, {"embedding.weight": torch.zeros(3)})
    error = refused(PLAN, replace(OPTIONS, resume=folder))
    assert "does not say which parts" in error.message and error.where == str(path)


def test_a_checkpoint_without_the_files_of_a_rank_is_refused(folder):
    index = read_index(folder)
    files.write(folder / INDEX_FILE, with_fields(index, digests={shard_file(0): index.digests[shard_file(0)]}))
    error = refused(PLAN, replace(OPTIONS, resume=folder))
    assert "the checkpoint has no" in error.message and error.where == str(folder / "states-a")


def test_a_newer_checkpoint_is_named_with_its_line(folder):
    text = (folder / INDEX_FILE).read_text()
    (folder / INDEX_FILE).write_text(text.replace("planner.checkpoint/1", "planner.checkpoint/2"))
    error = refused(PLAN, replace(OPTIONS, resume=folder))
    assert error.where.startswith(f"{folder / INDEX_FILE}:") and "planner.checkpoint/2" in error.message


@pytest.mark.parametrize(("said", "fix"), [({"save_every": 0, "save": Path("x")}, "1"), ({"save_every": 2}, "--save")])
def test_saving_often_needs_a_number_and_a_place(said, fix):
    error = refused(PLAN, RunOptions(**said))
    assert error.where == "--save-every" and error.fix.startswith(fix)
