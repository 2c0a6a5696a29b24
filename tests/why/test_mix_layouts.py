"""One set of layouts for several mixes: at one it is the strategy's, its numbers are those of fixed layouts."""

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from planner import files, pipeline
from planner.cli.app import app
from planner.cli.views.why_tables import why_answer
from planner.errors import Infeasible, InputError
from planner.plan.plan_file import Plan
from planner.specs.base import with_fields
from planner.specs.inputs import JobOptions, inputs_at_mix, load_job
from planner.specs.workload.mix_schedule import parse_mixes
from planner.strategies.modality import LayoutsAtMix
from planner.why import MixCandidate, MixChoice
from planner.why.restarts import switches
from tests.mixed_jobs import DRAWN, TIGHT, mixed_job

SCHEDULE = "9:1=2000,1:9=2000"
ONE = JobOptions(effort=1)


def choose(job, mixes=SCHEDULE, options=ONE, **choice):
    return pipeline.mixes(job, MixChoice(parse_mixes(mixes), **choice), options)


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    return mixed_job(tmp_path_factory.mktemp("mixed"), TIGHT)


@pytest.fixture(scope="module")
def found(job):
    return choose(job)


@pytest.mark.soak
def test_with_one_mix_it_is_the_plan_of_the_strategy(tmp_path):
    job = mixed_job(tmp_path)
    one, strategy = choose(job, "3:7"), pipeline.solve(job, replace(ONE, mix="3:7")).plan
    strategy = with_fields(strategy, uses=with_fields(strategy.uses, asked=one.plan.uses.asked))  # the quickest: 0
    for same in ("layouts", "groups", "edges", "steps", "prediction", "uses", "made"):
        assert getattr(one.plan, same) == getattr(strategy, same)
    assert (one.plan.outcome.value, one.plan.outcome.bound) == (strategy.outcome.value, strategy.outcome.bound)
    assert one.comparison.candidates[0].seconds == (strategy.prediction.step_seconds,)
    assert one.comparison.candidates[0].worst == 0.0 and one.comparison.switches == ()


@pytest.mark.soak
def test_several_batches_count_by_their_mean(job, found):
    inputs = inputs_at_mix(load_job(job, ONE), "5:5", JobOptions(batches=3))
    at = LayoutsAtMix("5:5", inputs)
    layouts = at.hiding(found.plan.layouts)
    plan = at.plan(layouts, "as chosen", ())
    seconds = [score.step_seconds for score in pipeline.verify(plan)]
    assert len({*seconds}) == 3
    assert at.steps(layouts, "").seconds == pytest.approx(sum(seconds) / 3, rel=1e-8)
    assert at.steps(layouts, "").total_seconds == pytest.approx(plan.outcome.value, rel=1e-8)


@pytest.mark.slow
def test_regret_is_over_the_quickest_of_all_candidates(found):
    comparison = found.comparison
    for at, number in enumerate(comparison.own_best):
        seconds = [each.seconds[at] and each.seconds[at] * each.doubt for each in comparison.candidates]
        least = min(each for each in seconds if each is not None)
        assert seconds[number] == least
        for each in comparison.candidates:
            taken, regret = each.seconds[at], each.regrets[at]
            assert (taken is None) == (regret is None) and each.doubt >= 1.0
            assert taken is None or regret == pytest.approx(taken * each.doubt / least - 1, abs=1e-12)
    worst = [max(r or 0.0 for r in each.regrets) for each in comparison.candidates if None not in each.regrets]
    assert max(r or 0.0 for r in comparison.candidates[0].regrets) == min(worst)


def fixing(folder, candidate: MixCandidate, more: str = "") -> str:
    """A job with a candidate's layouts, as the JSON answer says them."""
    said = json.dumps(json.loads(files.json_text({"layouts": candidate.layouts})))
    return mixed_job(folder, f"fix: {said}\n{more}", name="fixed.yaml")


@pytest.mark.slow
def test_every_number_is_what_a_job_with_those_layouts_gives(tmp_path, found):
    """By another way: the layouts copied into a job, which is predicted at each mix."""
    comparison = found.comparison
    for candidate in (comparison.candidates[0], comparison.candidates[-1]):
        for mix, seconds in zip(comparison.mixes, candidate.seconds, strict=True):
            predicted = pipeline.predict(fixing(tmp_path, candidate, TIGHT), JobOptions(mix=mix.mix))
            assert predicted.fits == (seconds is not None)
            if seconds is not None:
                assert predicted.scores[0].step_seconds == pytest.approx(seconds, rel=1e-8)


@pytest.mark.slow
def test_what_does_not_fit_at_a_mix_is_out_and_says_at_which(found):
    comparison = found.comparison
    out = [each for each in comparison.candidates if None in each.seconds]
    assert out and comparison.candidates[-len(out) :] == tuple(out)
    for each in out:
        at = next(mix.mix for mix, s in zip(comparison.mixes, each.seconds, strict=True) if s is None)
        assert each.because.startswith(f"at {at}: ") and "GiB" in each.because
        assert each.worst is None and each.expected is None
    assert comparison.own_best[1] >= len(comparison.candidates) - len(out)  # quickest where it fits
    (alternative,) = (each for each in found.plan.alternatives if each.because.startswith("the quickest at 1:9"))
    assert alternative.because.startswith("the quickest at 1:9; at 9:1: ") and alternative.value is None


@pytest.mark.slow
def test_the_points_between_are_the_chosen_layouts_beside_the_best(found):
    comparison = found.comparison
    assert [point.mix for point in comparison.points] == [f"{n}:{10 - n}" for n in range(1, 10)]
    for point, at in ((comparison.points[-1], 0), (comparison.points[0], 1)):
        assert point.kept_seconds == comparison.candidates[0].seconds[at]
        assert point.least_seconds == comparison.candidates[comparison.own_best[at]].seconds[at]


@pytest.mark.slow
def test_a_restart_is_repaid_once_it_is_short_enough(found):
    """The layouts that have room at both mixes are slower with few images than those that have room only there."""
    comparison, schedule = found.comparison, parse_mixes(SCHEDULE)
    points = {point.share: point for point in comparison.points}
    assert comparison.switches == switches(schedule, points, 600.0)
    (free,) = switches(schedule, points, 0.0)
    assert free.saved_seconds > 0.0 and free.repaid_after == 0 and free.repays and free.from_mix
    (dear,) = switches(schedule, points, 1e6)
    assert dear.repays is False and dear.from_mix is None
    changes = comparison.changes
    assert changes.least_seconds <= changes.kept_seconds
    kept = comparison.candidates[0].seconds
    assert changes.kept_seconds == pytest.approx(2000 * (kept[0] + kept[1]))


@pytest.mark.slow
def test_the_plan_is_one_as_any_other(tmp_path, found):
    path = tmp_path / "plan.yaml"
    files.write(path, found.plan)
    again = files.read(path, Plan)
    (score,) = pipeline.verify(again)
    assert score.step_seconds == pytest.approx(found.comparison.candidates[0].seconds[0], rel=1e-8)
    assert again.prediction == found.plan.prediction
    checked = CliRunner().invoke(app, ["check", str(path), str(path)])
    assert checked.exit_code == 0 and "no differences" in checked.stdout


@pytest.mark.soak
def test_the_verb_answers_the_same_again_with_the_plan_of_a_mix_between(tmp_path, monkeypatch, job, found):
    monkeypatch.chdir(tmp_path)
    words = ["solve", job, "--static", "--mixes", SCHEDULE, "--mix", "5:5", "--effort", "1", "--json"]
    done = CliRunner().invoke(app, words, env={"COLUMNS": "120"})
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told.pop("plan") == "mixed.static.plan.yaml"
    assert told == json.loads(files.json_text(why_answer(found.comparison)))
    plan = files.read(tmp_path / "mixed.static.plan.yaml", Plan)
    assert plan.layouts == found.plan.layouts
    assert plan.prediction.step_seconds == found.comparison.points[4].kept_seconds
    assert "repays after" in done.stderr


# ----------------------------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("more", "lengths", "message"),
    [
        ("", "1024", "are not drawn, and have the one mix"),
        ("strategy: parallel_search", DRAWN, "the strategy parallel_search does not decide layouts of several"),
        ("objective: dollar", DRAWN, "`dollar`"),
    ],
)
def test_a_job_without_mixes_or_layouts_to_decide_is_refused(tmp_path, more, lengths, message):
    with pytest.raises(InputError) as error:
        choose(mixed_job(tmp_path, more, lengths))
    assert message in error.value.message and "job.yaml" in error.value.where and error.value.fix


@pytest.mark.slow
def test_where_nothing_fits_the_mix_is_named(tmp_path):
    with pytest.raises(Infeasible) as error:
        choose(mixed_job(tmp_path, "limits: {memory_margin: 0.99}"))
    assert error.value.message.startswith("at the mix 9:1, ")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--mixes", "1:9,9:1"), "a static plan"),
        (("--static", "--mixes", "19"), "`19` is no mix"),
        (("--static", "--mixes", "1:9", "--lengths", "lengths.csv"), "are not drawn"),
    ],
)
def test_what_the_verb_refuses(job, words, message):
    error = CliRunner().invoke(app, ["solve", job, *words]).exception
    assert isinstance(error, InputError) and message in error.message and error.where.startswith("--") and error.fix
