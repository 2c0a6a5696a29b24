"""One set of layouts for several mixes: the strategy's plan at one mix, what fixed layouts give, and a plan as any other."""

import json

import pytest
from typer.testing import CliRunner

from planner import files, pipeline
from planner.cli.app import app
from planner.errors import Infeasible, InputError
from planner.plan.plan_file import Plan
from planner.specs.inputs import JobOptions
from planner.specs.workload.mix_schedule import parse_mixes
from planner.why import MixCandidate, MixChoice
from tests.mixed_jobs import DRAWN, TIGHT, mixed_job

SCHEDULE = "1:9=2000,9:1=50000000"
ONE = JobOptions(effort=1)


def choose(job, mixes=SCHEDULE, options=ONE, **choice):
    return pipeline.mixes(job, MixChoice(parse_mixes(mixes), **choice), options)


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    return mixed_job(tmp_path_factory.mktemp("mixed"))


@pytest.fixture(scope="module")
def found(job):
    return choose(job)


@pytest.fixture(scope="module")
def tight(tmp_path_factory):
    return choose(mixed_job(tmp_path_factory.mktemp("tight"), TIGHT))


def test_with_one_mix_it_is_the_plan_of_the_strategy(job):
    for by in ("worst", "expected"):
        one, strategy = choose(job, "3:7", by=by).plan, pipeline.solve(job, JobOptions(effort=1, mix="3:7")).plan
        for same in ("layouts", "groups", "edges", "steps", "prediction", "uses", "made"):
            assert getattr(one, same) == getattr(strategy, same)
        assert (one.outcome.value, one.outcome.bound) == (strategy.outcome.value, strategy.outcome.bound)


def test_regret_is_over_the_quickest_of_all_candidates(found, tight):
    for comparison in (found.comparison, tight.comparison):
        for at, number in enumerate(comparison.own_best):
            seconds = [each.seconds[at] for each in comparison.candidates]
            least = min(each for each in seconds if each is not None)
            assert seconds[number] == least
            for each in comparison.candidates:
                taken, regret = each.seconds[at], each.regrets[at]
                assert (taken is None) == (regret is None)
                assert taken is None or regret == pytest.approx(taken / least - 1, abs=1e-12)
        worst = [max(r or 0.0 for r in each.regrets) for each in comparison.candidates if None not in each.regrets]
        assert max(r or 0.0 for r in comparison.candidates[0].regrets) == min(worst)


def fixing(folder, candidate: MixCandidate, more: str = "") -> str:
    """A job with a candidate's layouts, as the JSON answer says them."""
    said = json.dumps(json.loads(files.json_text({"layouts": candidate.layouts})))
    return mixed_job(folder, f"fix: {said}\n{more}", name="fixed.yaml")


def test_every_number_is_what_a_job_with_those_layouts_gives(tmp_path, found, tight):
    """By another way: the layouts copied into a job, which is predicted at each mix."""
    for comparison, more in ((found.comparison, ""), (tight.comparison, TIGHT)):
        for candidate in comparison.candidates:
            for mix, seconds in zip(comparison.mixes, candidate.seconds, strict=True):
                predicted = pipeline.predict(fixing(tmp_path, candidate, more), JobOptions(mix=mix.mix))
                assert predicted.fits == (seconds is not None)
                if seconds is not None:
                    assert predicted.scores[0].step_seconds == pytest.approx(seconds, rel=1e-8)


def test_what_does_not_fit_at_a_mix_is_out_and_says_at_which(tight):
    out = [each for each in tight.comparison.candidates if None in each.seconds]
    assert out and tight.comparison.candidates[-len(out) :] == tuple(out)
    for each in out:
        at = next(mix.mix for mix, s in zip(tight.comparison.mixes, each.seconds, strict=True) if s is None)
        assert each.because.startswith(f"at {at}: ") and "GiB" in each.because
        assert each.worst is None and each.expected is None
    assert tight.comparison.own_best[0] >= len(tight.comparison.candidates) - len(out)  # quickest where it fits
    (alternative,) = tight.plan.alternatives
    assert alternative.because.startswith("the quickest at 1:9; at 9:1: ")
    assert alternative.value == tight.comparison.candidates[tight.comparison.own_best[0]].seconds[0]


def test_the_points_between_are_the_chosen_layouts_beside_the_best(found):
    comparison = found.comparison
    assert [point.mix for point in comparison.points] == [f"{n}:{10 - n}" for n in range(1, 10)]
    for mix, at in ((comparison.points[0], 0), (comparison.points[-1], 1)):
        assert mix.kept_seconds == comparison.candidates[0].seconds[at]
        assert mix.least_seconds == comparison.candidates[comparison.own_best[at]].seconds[at]
    (switch,) = comparison.switches
    saved = (comparison.points[-1].kept_seconds or 0.0) - comparison.points[-1].least_seconds
    assert switch.saved_seconds == pytest.approx(saved, abs=1e-12)


def test_a_restart_is_repaid_once_it_is_short_enough(tmp_path):
    """The layouts that have room at both mixes are slower with few images than those that have room only there."""
    job = mixed_job(tmp_path, TIGHT)
    free = choose(job, "9:1=2000,1:9=2000", restart_seconds=0.0).comparison
    (switch,) = free.switches
    assert switch.saved_seconds > 0.0 and switch.repaid_after == 0 and switch.repays and switch.from_mix
    dear = choose(job, "9:1=2000,1:9=2000", restart_seconds=1e6).comparison
    assert dear.candidates == free.candidates and dear.points == free.points
    assert dear.switches[0].repays is False and dear.switches[0].from_mix is None


def test_the_plan_is_one_as_any_other(tmp_path, job, found):
    path = tmp_path / "plan.yaml"
    files.write(path, found.plan)
    again = files.read(path, Plan)
    (score,) = pipeline.verify(again)
    assert score.step_seconds == pytest.approx(found.comparison.candidates[0].seconds[0], rel=1e-8)
    assert again.prediction == found.plan.prediction
    said = CliRunner().invoke(app, ["check", str(path), str(path)])
    assert said.exit_code == 0 and "no differences" in said.stdout
    other = choose(job, options=JobOptions(effort=1, mix="5:5"))
    assert other.comparison == found.comparison and other.plan.layouts == found.plan.layouts
    at = next(point for point in found.comparison.points if point.mix == "5:5")
    assert other.plan.prediction.step_seconds == at.kept_seconds


def test_the_same_bytes_again(job, found):
    again = choose(job)
    assert files.json_text({"answer": again.comparison}) == files.json_text({"answer": found.comparison})
    assert files.dump(again.plan) == files.dump(found.plan)


def test_several_batches_count_by_their_mean(job):
    several = choose(job, "1:9", JobOptions(effort=1, batches=2))
    assert len(several.plan.steps) == 2
    seconds = [score.step_seconds for score in pipeline.simulate(several.plan)]
    assert several.comparison.candidates[0].seconds[0] == pytest.approx(sum(seconds) / 2, rel=1e-8)
    assert several.plan.prediction.step_seconds == pytest.approx(sum(seconds), rel=1e-8)


# ----------------------------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("more", "lengths", "message"),
    [
        ("", "1024", "are not drawn, and have the one mix"),
        ("strategy: parallel_search", DRAWN, "the strategy parallel_search does not decide layouts of several"),
        ("fix: {layouts: {llm: {}, vit: {}}}", DRAWN, "the job fixes the layout of every module"),
        ("objective: dollar", DRAWN, "`dollar`"),
    ],
)
def test_a_job_without_mixes_or_layouts_to_decide_is_refused(tmp_path, more, lengths, message):
    with pytest.raises(InputError) as error:
        choose(mixed_job(tmp_path, more, lengths))
    assert message in error.value.message and "job.yaml" in error.value.where and error.value.fix


def test_where_nothing_fits_the_mix_is_named(tmp_path):
    with pytest.raises(Infeasible) as error:
        choose(mixed_job(tmp_path, "limits: {memory_margin: 0.99}"))
    assert "at the mix 1:9" in error.value.message


def said(*words):
    done = CliRunner().invoke(app, list(words), env={"COLUMNS": "120"})
    assert done.exit_code == 0, done.output
    return done.stdout


def test_the_verb_answers_in_words_and_in_json(tmp_path, monkeypatch, job, found):
    monkeypatch.chdir(tmp_path)
    asked = ("solve", job, "--static", "--mixes", SCHEDULE, "--effort", "1")
    told = json.loads(said(*asked, "--json"))
    assert told["plan"] == "mixed.static.plan.yaml"
    assert (tmp_path / told["plan"]).read_text() == files.dump(found.plan)
    assert told["own_best"] == list(found.comparison.own_best)
    assert [each["seconds"] for each in told["candidates"]] == [list(e.seconds) for e in found.comparison.candidates]
    text = said(*asked, "--restart-s", "30", "--regret", "expected")
    assert "one set of layouts for the mixes 1:9, 9:1" in text and "5:5" in text and "repays after" in text
    assert "30.00 s" in text and told["restart_seconds"] == 600.0


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
