"""Spikes: those that pass are noted, those of the loss that stay are rolled back, and noise is neither."""

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import RunFailed
from planner.plan.plan_file import Group, Layout, Step
from planner.runtime import RunOptions, TrainingOptions, run
from planner.runtime.health.rollback import (
    SkippedBatches,
    batch_of,
    carry_skipped,
    read_skipped,
    roll_back,
    skipping,
    write_skipped,
)
from planner.runtime.health.spikes import LEAST_STEPS, Spike, SpikeWatch
from planner.specs.base import Ranks, with_fields
from tests.examples import examples
from tests.plans import decoder, plan_of, uses

PATIENCE = 4


def watched(losses, norms=None):
    """Notes, and the spikes that were malignant, by step."""
    watch, notes, malignant = SpikeWatch(PATIENCE), [], {}
    for step, loss in enumerate(losses, 1):
        notes += watch.see(step, loss, norms[step - 1] if norms else None)
        if watch.malignant:
            malignant[step] = watch.malignant
    return notes, malignant


def falling(count):
    noise = random.Random(3)
    return [8 / (1 + step / 40) + noise.gauss(0, 0.05) for step in range(count)]


def test_a_falling_loss_has_no_spike():
    assert watched(falling(400), [1 + 0.3 * random.Random(step).random() for step in range(400)]) == ([], {})


@given(st.integers(LEAST_STEPS, 100), st.integers(1, 2 * PATIENCE), st.floats(1.5, 50))
@examples(50)
def test_a_spike_is_malignant_if_it_outlasts_the_patience(begins, lasts, height):
    losses = falling(140)
    for step in range(begins, begins + lasts):
        losses[step] *= height + 1
    notes, malignant = watched(losses)
    if lasts <= PATIENCE:
        assert not malignant
        (note,) = notes
        assert note.text.startswith("a benign spike of the loss in step") and note.step == begins + lasts + 1
    else:
        assert malignant == {begins + PATIENCE + 1: Spike(begins + 1, begins + PATIENCE + 1)}
        assert notes[0].text.startswith("a malignant spike: the loss stays above its usual ")


def test_a_norm_that_stays_higher_is_the_usual_one_from_then_on():
    notes, malignant = watched([2.0] * 100, [1.0] * 30 + [9.0] * 70)
    assert not malignant
    (note,) = notes
    assert note.step == 31 + PATIENCE and "this is the usual one now" in note.text


ranges = st.lists(st.integers(0, 60), unique=True, max_size=12).map(sorted)


@given(ranges, st.integers(0, 80))
@examples(50)
def test_a_step_trains_the_batch_that_is_counted_out(ends, step):
    pairs = [pair for pair in zip(ends[::2], ends[1::2], strict=False)]
    apart = [(first, last) for first, last in pairs]
    skipped = [SkippedBatches(first=first, last=last, because="") for first, last in reversed(apart)]
    left = [batch for batch in range(200) if not any(first <= batch <= last for first, last in apart)]
    assert batch_of(step, skipped) == left[step]


@given(ranges, st.integers(0, 40), st.integers(0, 30), st.integers(0, 9), st.integers(0, 9))
@examples(50)
def test_what_is_skipped_behind_a_spike_is_what_it_trained_on_and_a_few_before(ends, done, begins, lasts, before):
    apart = tuple(
        SkippedBatches(first=first, last=last, because="") for first, last in zip(ends[::2], ends[1::2], strict=False)
    )
    spike = Spike(done + 1 + begins, done + 1 + begins + lasts)
    trained = {batch_of(step, apart) for step in range(max(done, spike.first - 1 - before), spike.last)}
    now = skipping(apart, spike, done, before)
    gone = {batch for each in apart for batch in range(each.first, each.last + 1)} | trained
    assert [batch_of(step, now) for step in range(100)] == [batch for batch in range(300) if batch not in gone][:100]


def test_what_is_skipped_is_carried_along(tmp_path):
    skipped = (SkippedBatches(first=3, last=7, because="a test"),)
    one, other = tmp_path / "one", tmp_path / "other"
    carry_skipped(one, other)
    assert read_skipped(None) == read_skipped(other) == () and not other.exists()
    write_skipped(one, skipped)
    carry_skipped(one, other)
    assert read_skipped(other) == skipped


def test_there_must_be_a_checkpoint_to_go_back_to(tmp_path):
    with pytest.raises(RunFailed, match="nothing to roll back to") as raised:
        roll_back(RunOptions(save=tmp_path), Spike(3, 8))
    assert raised.value.where == "steps 3 to 8"


TEXT, OTHERS, STEPS = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8], range(24, 28), 34


def one_a_step(count):
    """A plan of one rank whose steps train one item each."""
    plan = plan_of(
        1,
        uses(1, {"llm": decoder(1)}, {"llm": {item: len(TEXT) for item in range(count)}}),
        {"llm": Layout(ranks=Ranks((0,)), dp=1, zero=0, dtype="float64")},
        {"g": Group(ranks=Ranks((0,)))},
        Step(sync="step", micro_batches=({"g": (0,)},)),
    )
    steps = tuple(Step(sync="step", micro_batches=({"g": (item,)},)) for item in range(count))
    return with_fields(plan, steps=steps)


def write_texts(folder, others=()):
    """The same text again and again, but for these samples."""
    folder.mkdir()
    texts = [[(7 * token + sample) % 64 for token in TEXT] if sample in others else TEXT for sample in range(60)]
    np.save(folder / "tokens.npy", np.concatenate(texts).astype("uint32"))
    np.save(folder / "offsets.npy", np.cumsum([0, *map(len, texts)], dtype="int64"))
    return folder


@pytest.mark.slow
def test_a_run_that_was_rolled_back_is_one_that_never_saw_these_batches(tmp_path, caplog):
    plan, save = one_a_step(60), tmp_path / "saved"
    options = RunOptions(STEPS, training=TrainingOptions(1e-2), data=write_texts(tmp_path / "clean"))
    spiking = replace(options, data=write_texts(tmp_path / "data", OTHERS), save=save, save_every=5, spike_steps=3)
    result = run(plan, replace(spiking, on_spike="rollback"), lambda _: None)
    (skipped,) = read_skipped(save)
    assert (skipped.first, skipped.last) == (21, OTHERS[-1])
    assert "step 28: a malignant spike" in caplog.text
    clean = run(plan, options, lambda _: None)
    assert [step.loss for step in result.steps] == [step.loss for step in clean.steps]
