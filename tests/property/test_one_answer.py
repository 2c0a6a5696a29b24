"""A layout has one price and one memory, whoever asks: what a strategy chose comes back from `predict` and `fits`."""

import json
import random

import pytest

from planner import pipeline
from planner.errors import Infeasible, InputError
from planner.scoring.plan_answer import plan_answer
from planner.specs.inputs import JobOptions, load_job
from tests.examples import thorough
from tests.static_jobs import small_cluster, static_job

SAME = 0.01  # relative: what a layout was chosen with, and what is said of it
MODELS = {"llama-3-8b": 32, "qwen3-30b-a3b": 48, "deepseek-v2-lite": 27, "gpt-7b": 32}  # and their layers
CASES = 200
BATCHES = 10  # of cases, so that they run side by side


def drawn(rng: random.Random) -> tuple[str, int, list[int], str, str]:
    """A model, ranks, sequences, what the job fixes, and what it says of states."""
    model, ranks = rng.choice(list(MODELS)), rng.choice([4, 8, 16])
    tp, pp = rng.choice([1, 1, 2, 4]), rng.choice([1, 1, 2, 4])
    cp = rng.choice([1, 1, 2])
    while tp * cp * pp > ranks:
        tp, cp = max(1, tp // 2), max(1, cp // 2)
    fixed = {"tp": tp, "cp": cp, "pp": pp}
    if pp > 1:
        fixed["vpp"] = rng.choice([1, 1, 2])
    if "qwen3" in model or "deepseek" in model:
        fixed["ep"] = rng.choice([1, 2, 4])
    if cp > 1 and rng.random() < 0.4:
        fixed["ulysses"] = cp
    fixed["micro_batch"] = rng.choice([1, 1, 2])
    rows = ranks // (tp * cp * pp) * fixed["micro_batch"] * pp * rng.choice([1, 2])
    length = rng.choice([1024, 2048, 4096])
    sizes = [length] * rows if rng.random() < 0.5 else [rng.randrange(64, length) for _ in range(rows)]
    words = ", ".join(f"{name}: {value}" for name, value in fixed.items())
    zero = rng.choice([0, 1, 2, 3] if pp == 1 else [0, 1])
    kept = f"zero: {zero}, recompute: {rng.choice(['none', 'selective', 'full'])}"
    return model, ranks, sizes, words, kept


@pytest.mark.slow
@pytest.mark.parametrize("batch", [0, *(pytest.param(each, marks=pytest.mark.soak) for each in range(1, BATCHES))])
def test_what_was_chosen_is_what_is_predicted(tmp_path, batch):
    done, seed = 0, batch * 1000
    while done < (CASES // BATCHES if thorough() else 3):
        seed += 1
        model, ranks, sizes, fixed, kept = drawn(random.Random(seed))
        cluster = small_cluster(tmp_path, "b300", ranks, 8)
        job = static_job(tmp_path, model, cluster, sizes, fixed, kept)
        try:
            plan = pipeline.decide(load_job(job, JobOptions(effort=1))).plan
        except (Infeasible, InputError):  # InputError: no layout has the fields that are fixed
            continue
        done += 1
        said = plan_answer(plan, pipeline.verify(plan))
        again = static_job(tmp_path, model, cluster, sizes, json.dumps(said["layouts"]["llm"])[1:-1], "")
        predicted = pipeline.predict(again)
        told = plan_answer(predicted.plan, predicted.scores)
        assert told["step_seconds"] == pytest.approx(plan.outcome.value, rel=SAME), (seed, said["layouts"])
        assert told["memory"] == pytest.approx(said["memory"], rel=SAME), seed
        assert json.dumps(told["layouts"]) == json.dumps(said["layouts"])
        fits = pipeline.fits(again)
        assert fits.fits
        assert float(fits.fullest.taken.total) / 2**30 == pytest.approx(said["memory"]["peak_gib"], rel=SAME), seed


@pytest.mark.parametrize("length", [4096, 65536])
def test_a_layout_that_is_said_to_fit_is_chosen_and_one_that_is_not_is_refused(tmp_path, length):
    """The verdict of `fits` is the search's, and the plan's."""
    fixed = "tp: 2, cp: 1, pp: 1, micro_batch: 1, recompute: none"
    cluster = small_cluster(tmp_path, "h100-80gb", 8)
    job = static_job(tmp_path, "llama-3-8b", cluster, [length] * 8, fixed, "zero: 1")
    fits = pipeline.fits(job)
    assert fits.fits == (length < 65536)
    assert fits.fits == (fits.fullest.chance <= 0.05)
    if fits.fits:
        pipeline.decide(load_job(job, JobOptions()))
    else:
        with pytest.raises(Infeasible):
            pipeline.decide(load_job(job, JobOptions()))
