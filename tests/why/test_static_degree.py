"""One configuration is never better than what no plan can beat; what is put off is worked on once all the same."""

import json
import random

import pytest
from typer.testing import CliRunner

from planner import files, pipeline
from planner.callbacks import silent
from planner.cli.app import app
from planner.errors import Infeasible
from planner.plan.legal.plan_laws import violations
from planner.plan.plan_file import Plan
from planner.scoring.score import score
from planner.specs.base import with_fields
from planner.specs.inputs import JobOptions, load_job
from planner.specs.workload.samples import SampleBatch
from planner.why import best_static_degree
from planner.why.static_degree import defer_items, deferrable, quantile, take_while_fits
from tests.plans import degrees_of

OPTIONS = JobOptions(batches=2, effort=1)


@pytest.fixture(scope="module")
def found():
    return pipeline.static("demo-cpu-4", OPTIONS)


@pytest.mark.slow
def test_the_static_plan_is_legal_and_has_one_degree(found):
    assert violations(found.plan) == []
    assert set(degrees_of(found.plan).values()) == {found.comparison.degree}
    assert tuple(score(found.plan, n).step_seconds for n in range(2)) == pytest.approx(found.comparison.static_seconds)


@pytest.mark.slow
def test_no_static_step_beats_the_bound_of_its_batch(found):
    for taken, bound in zip(found.comparison.static_seconds, found.comparison.per_batch_bounds, strict=True):
        assert taken >= bound * (1 - 1e-9)


@pytest.mark.slow
def test_the_best_degree_is_the_least_of_all(found):
    totals = {tried.degree: tried.seconds for tried in found.comparison.degrees if tried.seconds is not None}
    assert (
        totals[found.comparison.degree] == min(totals.values()) == pytest.approx(sum(found.comparison.static_seconds))
    )
    for tried in found.comparison.degrees:
        assert (tried.seconds is None) == bool(tried.because)


@pytest.mark.slow
def test_the_gains_are_of_the_same_batches(found):
    free = pipeline.solve("demo-cpu-4", OPTIONS).plan
    assert found.comparison.per_batch_seconds == tuple(step.outcome.value for step in free.steps if step.outcome)
    assert found.comparison.gain_p10 <= found.comparison.gain_median <= found.comparison.gain_p90
    total = 1 - sum(found.comparison.per_batch_seconds) / sum(found.comparison.static_seconds)
    assert found.comparison.gain_total == pytest.approx(total)


@pytest.mark.slow
def test_deferral_never_makes_it_longer(found):
    """Putting off nothing is a candidate at every batch, so the greedy sum falls or stays."""
    deferral = found.comparison.deferral
    assert deferral is not None
    assert sum(deferral.seconds) <= sum(found.comparison.static_seconds) * (1 + 1e-9)
    assert deferral.saved == pytest.approx(1 - sum(deferral.seconds) / sum(found.comparison.static_seconds))


@pytest.mark.slow
def test_every_item_is_worked_on_once_in_its_batch_or_the_next():
    inputs = load_job("demo-cpu-4", JobOptions(batches=3, effort=1))
    seen: list[dict[int, int]] = []

    def decide(batch: SampleBatch) -> Plan:
        seen.append(batch.items)
        from dataclasses import replace

        return pipeline.plan_of(replace(inputs, job=with_fields(inputs.job, degrees=(4,)), batches=(batch,)))

    alone = [decide(batch).outcome.value for batch in inputs.batches]
    deferral = defer_items(inputs.batches, alone, decide)
    home = {item: number for number, batch in enumerate(inputs.batches) for item in batch.items}
    for items in seen:
        assert max(home[i] for i in items) - min(home[i] for i in items) <= 1
    assert all(home[item] < 2 for item in deferral.items)
    assert len(deferral.seconds) == 3


@pytest.mark.parametrize("seed", range(5))
def test_what_may_be_put_off_is_a_batchs_own_and_not_all(plan, seed):
    chance = random.Random(seed)
    own = dict(plan.uses.items["llm"])
    rest = [{10_000 + i: chance.randint(20, 900) for i in range(chance.randint(1, 9))} for _ in range(3)]
    puts = list(deferrable(own, {}, rest, plan))
    assert puts[0] == {}
    for put in puts:
        assert put.items() <= own.items()
        assert len(put) < len(own)
    assert sum(take_while_fits(own, sorted(own), 500).values()) <= 500


def test_quantiles_lie_between_the_nearest_two():
    assert quantile([1.0], 0.9) == 1.0
    assert quantile([0.0, 1.0], 0.1) == pytest.approx(0.1)
    assert quantile([0.0, 1.0, 5.0], 0.5) == 1.0


def test_where_no_degree_holds_all_the_reason_is_said():
    from dataclasses import replace

    inputs = load_job("demo-cpu-4", OPTIONS)
    tight = replace(inputs, job=with_fields(inputs.job, limits=with_fields(inputs.job.limits, tokens_per_rank=10)))
    with pytest.raises(Infeasible, match="tokens"):
        best_static_degree(tight, pipeline.plan_of, silent)


# -------------------------------------------------------------------------------------------------- on the command line


def said(*words):
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    return done.stdout


def refused(*words):
    error = CliRunner().invoke(app, words).exception
    assert error.exit_code == 2
    return str(error)


@pytest.mark.soak
def test_the_verbs_answer_in_words_and_in_json(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    solved = json.loads(
        said("solve", "demo-cpu-4", "--static", "--batches", "2", "--effort", "1", "--json", "-o", "static.yaml")
    )
    assert solved["plan"] == "static.yaml"
    plan = files.read(tmp_path / "static.yaml", Plan)
    assert plan.uses.degrees == (solved["degree"],)
    for words, key in (
        (("why", "static.yaml"), "sensitivities"),
        (("why", "static.yaml", next(iter(plan.groups)), "--step", "1"), "loads"),
        (("why-not", "static.yaml", "tokens_per_rank=2048", "--step", "1"), "because"),
    ):
        assert json.loads(said(*words, "--json"))[key]
        assert said(*words)
    impossible = CliRunner().invoke(app, ["why-not", "static.yaml", "tokens_per_rank=3", "--json"])
    assert impossible.exit_code == 3 and json.loads(impossible.stdout)["infeasible"]
    assert "fix: one of" in refused("why", "static.yaml", "g0-2")
    assert "no step 9" in refused("why-not", "static.yaml", "zero=3", "--step", "9")
