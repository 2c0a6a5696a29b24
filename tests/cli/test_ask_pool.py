"""`planner ask --pool`: which GPUs, how many, for how much; and what cannot be meant by it."""

import json

import pytest

from planner import files
from planner.specs.hardware.pool import Pool
from planner.specs.job import Job
from tests.typed import typed

ASK = "planner ask --model llama-3-8b"
LAYOUT = "layout: {tp: 1, cp: 1, pp: 1, zero: 3, recompute: full, micro_batch: 1}\n"


@pytest.fixture
def job(tmp_path):
    """A run on a pool, of a space of one layout."""
    (tmp_path / "pool.yaml").write_text(
        "format: planner.cluster/1\nname: p\npool: [{kind: h100, counts: [4, 8]}, {kind: v100-32gb, max: 8}]\n"
    )
    text = (
        "format: planner.job/1\nname: p\nmodel: llama-3-8b\ncluster: ./pool.yaml\nstrategy: parallel_search\n"
        f"workload: {{lengths: 4096, batch_rows: 32}}\nrun: {{tokens: 1e10}}\n{LAYOUT}"
    )
    (tmp_path / "job.yaml").write_text(text)
    return tmp_path / "job.yaml"


def test_a_run_is_told_with_the_plan_of_its_step(job, tmp_path):
    printed = typed("planner solve job.yaml -o plan.yaml", tmp_path)
    assert printed.code == 0 and "10B tokens: " in printed.out and "on 8xh100-80gb, simulated" in printed.out
    assert "downtime" in printed.out and "the fewest GPUs" in printed.out
    assert typed("planner show plan.yaml", tmp_path).code == 0


@pytest.mark.soak
def test_a_question_is_answered_with_a_front_and_a_page(tmp_path):
    asked = f"{ASK} --pool 8xh100,16xa100@1.5,8xv100 --tokens 1e10 --seq 4096 --batch 32 --budget $50,000 --days 9 -o f"
    printed = typed(f"{asked} --json", tmp_path)
    assert printed.code == 0
    answer = json.loads(printed.out)
    front = [each for each in answer["pareto"] if each["dominated_by"] is None]
    assert answer["chosen"] == answer["soonest"] == front[0]["choice"] and answer["cheapest"] == front[-1]["choice"]
    assert [each["days"] for each in front] == sorted(each["days"] for each in front)
    assert [each["usd"] for each in front] == sorted((each["usd"] for each in front), reverse=True)
    assert all(each["bound_seconds"] <= each["step_seconds"] and 0 < each["downtime"] < 1 for each in front)
    assert [each["what"] for each in answer["left_out"]] == ["v100-32gb"] and 0.5 < answer["chance"] <= 1.0
    names = {each["choice"] for each in (*answer["pareto"], *answer["passed_over"])}
    assert names == {"8xh100-80gb", "8xa100-80gb", "16xa100-80gb"}
    page = (tmp_path / "f" / "front.html").read_text()
    assert page.count("<circle") == len(answer["pareto"]) and "v100-32gb is left out: it has no bfloat16" in page
    again = typed("planner solve f/job.yaml -o again.yaml", tmp_path)
    assert again.code == 0 and (tmp_path / "again.yaml").read_text() == (tmp_path / "f" / "plan.yaml").read_text()


def test_what_is_typed_is_a_job_and_a_pool(tmp_path, monkeypatch):
    from planner.workflows.question_run import RunQuestion
    from planner.workflows.questions import Question, write_question

    of_run = RunQuestion("1.5T", "2M", 30.0, "4096xH100, 512xa100@$1.80")
    job = files.read(write_question(Question(None, "llama-3-8b", of_run=of_run), tmp_path / "f"), Job)
    pool = files.read(tmp_path / "f" / "cluster.yaml", Pool)
    assert (job.run.tokens, job.limits.usd, job.limits.days, job.objective) == (1.5e12, 2e6, 30.0, "step_seconds")
    assert job.workload.lengths == 8192 and job.workload.batch_rows == 512
    assert [(each.kind, each.max, each.usd_per_hour) for each in pool.pool] == [
        ("h100", 4096, None),
        ("a100", 512, 1.8),
    ]
    assert pool.pool[0].numbers(8) == (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
    assert RunQuestion("1T", "", 3.0, "8xh100").objective == "dollars"


BAD = {
    "--pool 8xh800 --tokens 1T": "it is not known what an hour of a h800 costs",
    "--pool 8xgb300 --tokens 1T": "it is not known what an hour of a gb300 costs",
    "--pool 8xh100 --tokens 1T --budget -5": "`-5` is no positive number",
    "--pool 8xh100 --tokens 1T --budget 0": "`0` is no positive number",
    "--pool 8xh100 --tokens 1T --budget €5": "`€5` is no positive number",
    "--pool 8xh100 --tokens lots": "`lots` is no positive number",
    "--pool 8xh100 --tokens 1T --days 0": "0 days are no time",
    "--pool 8xh100 --tokens 1T --days -1": "-1 days are no time",
    "--pool 8xh100": "nobody says how long it is",
    "--gpus 8xh100 --budget 1000": "nobody says how long it is",
    "--gpus 8xh100 --days 3": "nobody says how long it is",
    "--pool h100 --tokens 1T": "`h100` is no number of GPUs of a kind",
    "--pool 0xh100 --tokens 1T": "`0xh100` is no number of GPUs of a kind",
    "--pool 8xh100@free --tokens 1T": "`free` is no positive number",
    "--pool 8xnothing --tokens 1T": "`nothing`",
    "--pool 8xh100 --gpus 8xh100 --tokens 1T": "both --gpus and --pool are given",
    "--pool 8xh100 --nodes 2 --tokens 1T": "each kind of a pool has nodes of its own",
    "--pool 8xv100 --tokens 1T": "it has no bfloat16",
}


@pytest.mark.parametrize("given", BAD)
@pytest.mark.every(2)
def test_what_cannot_be_meant_is_refused(tmp_path, given):
    printed = typed(f"{ASK} {given} -o f", tmp_path)
    assert printed.code == 2, printed
    words = " ".join(printed.errors.split())
    assert BAD[given] in words and "fix: " in words and "Traceback" not in words


IN_FILES = {
    "pool: [{kind: h100}]": "either counts or max",
    "pool: [{kind: h100, counts: [8], max: 8}]": "either counts or max",
    "pool: []": "a list of length >= 1",
    "pool: [{kind: h100, max: 8, usd_per_hour: -1}]": ">= 0",
    "pool: [{kind: h100, max: 8, spot: {usd_per_hour: 1}}]": "mean_hours",
    "pool: [{kind: mi355x, counts: [8]}]": "it is not known what an hour of a mi355x costs",
    "pool: [{kind: h100, counts: [8]}]\nranks: []": "ranks",
}


@pytest.mark.parametrize("said", IN_FILES)
def test_a_wrong_pool_is_a_located_error(job, tmp_path, said):
    (tmp_path / "pool.yaml").write_text(f"format: planner.cluster/1\nname: p\n{said}\n")
    printed = typed("planner solve job.yaml", tmp_path)
    assert printed.code == 2 and "pool.yaml:" in printed.errors and IN_FILES[said] in printed.errors, printed.errors


def test_a_deadline_of_a_second_says_what_is_soonest(job, tmp_path):
    job.write_text(job.read_text() + "limits: {days: 0.0000116}\n")
    printed = typed("planner solve job.yaml", tmp_path)
    assert printed.code == 3 and "nothing that is offered trains 10B tokens within 1.16e-05 days" in printed.errors
    assert "on 8xh100-80gb" in printed.errors


@pytest.mark.parametrize("verb", ["predict", "fits"])
def test_other_verbs_ask_for_a_choice(job, tmp_path, verb):
    printed = typed(f"planner {verb} job.yaml", tmp_path)
    assert printed.code == 2 and "the cluster is a pool" in printed.errors and "fix: " in printed.errors


@pytest.mark.parametrize("limit", ["usd: 5", "days: 5"])
def test_limits_of_a_run_need_one(job, tmp_path, limit):
    job.write_text(job.read_text().replace("run: {tokens: 1e10}", f"limits: {{{limit}}}"))
    printed = typed("planner solve job.yaml", tmp_path)
    assert (
        printed.code == 2 and "the job does not say how long it is" in printed.errors and "job.yaml:" in printed.errors
    )
