"""`planner schedule` as it is typed: answers, pages, stored decisions, one decision for a queue, and errors."""

import json
import re

import pytest

from tests.specs.cluster_jobs.test_read_jobs import SQUEUED, WORKLOAD
from tests.typed import typed

TRACE = """id,submit_s,gpus,duration_s,user
wide,0,8,100,ann
long,1,4,300,ann
next,2,8,50,bob
short,3,1,20,bob
"""
BASELINES = ["strict", "backfill, first", "backfill, fastest"]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "jobs.csv").write_text(TRACE)
    return tmp_path


def answered(command, folder):
    printed = typed(f"planner schedule {command} --json", folder)
    assert printed.code == 0, printed.errors
    return json.loads(printed.out)


def test_the_answer_has_the_policy_beside_three_baselines_of_its_order(folder):
    answer = answered("jobs.csv --gpus 8xa,4xb", folder)
    assert [*answer["baselines"]] == BASELINES
    assert (answer["jobs"], answer["gpus"]) == (4, {"a": 8, "b": 4})
    usual = {key: answer[key] for key in answer["baselines"]["strict"]}
    assert usual == answer["baselines"]["backfill, fastest"]
    assert answer["makespan_s"] == 301 and answer["bound_s"] <= 301 and answer["moves"] == 0
    shortest = answered("jobs.csv --gpus 8xa,4xb --order srtf --preempt", folder)
    assert shortest["mean_completion_s"] <= answer["mean_completion_s"]


@pytest.mark.slow
def test_a_policy_is_trained_decides_and_is_checked_again(folder):
    """Fifty jobs of known counts; two lessons suffice to see that files, answers and the gate agree."""
    lines = [f"{number},{30 * number},{1 + number % 2},{100 + 37 * number % 90}" for number in range(24)]
    (folder / "many.csv").write_text("\n".join(["id,submit_s,gpus,duration_s", *lines]))
    printed = typed("planner train-policy many.csv --gpus 3xa --rounds 0 -o policy.safetensors --json", folder)
    assert printed.code == 0, printed.errors
    learned = json.loads(printed.out)
    assert learned["teacher"] == "marginal_gain" and 0 <= learned["agreement"] <= 1
    assert learned["kept_after_round"] == 0 and learned["imitated_over_teacher"] == learned["learned_over_teacher"]
    case = folder / "cases" / "one"
    case.mkdir(parents=True)
    (case / "policy.safetensors").write_bytes((folder / "policy.safetensors").read_bytes())
    told = answered(f"many.csv --gpus 3xa --policy policy.safetensors -o {case}/actions.yaml", folder)
    assert told["policy"]["order"] == "learned" and "decisions are its teacher's" in " ".join(told["notes"])
    assert typed("planner check cases", folder).code == 0
    (case / "policy.safetensors").unlink()
    assert typed("planner check cases", folder).code != 0
    both = typed("planner schedule many.csv --gpus 3xa --policy policy.safetensors --order srtf", folder)
    assert both.code == 2 and "both say who comes first" in both.errors
    refused = typed("planner schedule many.csv --gpus 3xa,2xb --policy policy.safetensors", folder)
    assert refused.code == 2 and "trained for 1 kinds of GPUs" in refused.errors
    assert typed("planner train-policy many.csv --gpus 3xa --teacher srft -o p", folder).errors.startswith(
        "error: no teacher is called `srft`"
    )


def test_a_page_shows_every_job_and_loads_nothing(folder):
    assert typed("planner schedule jobs.csv --gpus 8xa,4xb --html page.html", folder).code == 0
    page = (folder / "page.html").read_text()
    assert len(re.findall("<rect ", page)) == 8 + 4 + 8 + 1
    assert {"wide", "long", "next", "short"} <= {*re.findall(r"<title>(\w+):", page)}
    assert not re.search(r"https?://", page) and "default-src &#39;none&#39;" in page


def test_why_tells_the_story_of_a_job(folder):
    printed = typed("planner schedule jobs.csv --gpus 8xa --why short --html page.html", folder)
    story = printed.out.splitlines()
    assert (folder / "page.html").exists() and story[1] == "3 s: waits: asks for 1; left are 0 of a"
    assert story[0] == "3 s: submitted, asks for 1 GPU; 8 of 8 are in use"
    assert "after end of wide" in printed.out and "goes ahead of next" in printed.out
    assert typed("planner schedule jobs.csv --gpus 8xa --why shrot", folder).errors.startswith(
        "error: no job is called"
    )


def test_stored_decisions_are_decided_again(folder):
    case = folder / "cases" / "small"
    assert typed(f"planner schedule jobs.csv --gpus 8xa,4xb -o {case}/actions.yaml", folder).code == 0
    assert typed("planner check cases", folder).code == 0
    stored = (case / "actions.yaml").read_text()
    (case / "actions.yaml").write_text(stored.replace("makespan_s: 301.0", "makespan_s: 300.0"))
    printed = typed("planner check cases", folder)
    assert printed.code == 1 and "do not give the outcome that it states" in printed.out
    (case / "actions.yaml").write_text(re.sub("mean_completion_s: .*?,", "mean_completion_s: 1.0,", stored))
    assert "outcome.mean_completion_s" in typed("planner check cases", folder).out
    assert typed("planner check cases --update", folder).code == 0
    assert (case / "actions.yaml").read_text() == stored


def test_decisions_that_cannot_happen_block(folder):
    case = folder / "cases" / "small"
    typed(f"planner schedule jobs.csv --gpus 8xa -o {case}/actions.yaml", folder)
    path = case / "actions.yaml"
    path.write_text(path.read_text().replace("do: start, job: wide", "do: start, job: wild"))
    printed = typed("planner check cases", folder)
    assert printed.code == 1 and "no job `wild` is waiting" in printed.out


def test_one_decision_for_a_queue_of_slurm(tmp_path):
    """16 GPUs, 8 of them taken: the next that fits starts, and the wide one waits."""
    running = {**SQUEUED, "job_id": 1, "job_state": "RUNNING", "tres_req_str": "gres/gpu=8", "start_time": 1700000000}
    wide = {**SQUEUED, "job_id": 2, "tres_req_str": "gres/gpu=16", "time_limit": 120}
    small = {**SQUEUED, "job_id": 3, "tres_req_str": "gres/gpu=4", "time_limit": 30}
    (tmp_path / "queue.json").write_text(json.dumps({"jobs": [running, wide, small]}))
    answer = answered("--state queue.json --gpus 16xv100", tmp_path)
    assert [(each["do"], each["job"], each["gpus"]) for each in answer["actions"]] == [("start", "3", "8-11")]
    assert answer["commands"] == ["scontrol update JobId=3 Gres=gpu:v100:2 Priority=1000000"]  # of each of two nodes
    assert answer["waits"] == {"2": "asks for 16; left are 4 of v100"}
    shown = typed("planner schedule --state queue.json --gpus 16xv100", tmp_path).out
    assert "goes ahead of 2" in shown and "not executed" in shown


def test_a_queue_is_decided_as_of_when_it_was_printed(tmp_path):
    """The wide job is due 24 h after the first started, 20 h have passed: what takes 23 h is kept from its GPUs."""
    none, day = {"array_task_string": "", "node_count": 1}, 1440
    running = {**SQUEUED, **none, "job_state": "RUNNING", "tres_req_str": "gres/gpu=12", "time_limit": day}
    running |= {"start_time": 1700000000}
    wide = {**SQUEUED, **none, "job_id": 8, "tres_req_str": "gres/gpu=16"}
    long = {**SQUEUED, **none, "job_id": 9, "tres_req_str": "gres/gpu=4", "time_limit": 1380}
    huge = {**SQUEUED, **none, "job_id": 10, "tres_req_str": "gres/gpu=64"}
    held = {**SQUEUED, **none, "job_id": 11, "tres_req_str": "gres/gpu=4", "hold": True}
    queue = {"jobs": [running, wide, long, huge, held], "last_update": {"set": True, "number": 1700072000}}
    (tmp_path / "queue.json").write_text(json.dumps(queue))
    answer = answered("--state queue.json --gpus 16xv100", tmp_path)
    assert answer["actions"] == [] and answer["now_s"] == 1700072000
    assert answer["waits"] == {
        "8": "asks for 16; left are 4 of v100",
        "9": "asks for 4; left are 4 of v100, and kept for 8, which comes first",
        "10": "can never run here: job `10` asks for 64 GPUs, and there are 16 of v100",
        "11": "held: hold",
    }


def test_one_decision_for_a_queue_of_kueue(tmp_path):
    waits = {**WORKLOAD, "metadata": {**WORKLOAD["metadata"], "name": "train; rm"}, "status": {}}
    (tmp_path / "queue.json").write_text(json.dumps({"items": [WORKLOAD, waits]}))
    answer = answered("--state queue.json --gpus 32xp100", tmp_path)
    assert answer["commands"] == [
        "kubectl patch workload 'train; rm' -n team --type merge -p '{\"spec\": {\"priority\": 1000000}}'"
    ]
    assert "by the flavors" in answer["notes"][0]
    stopping = answered("--state queue.json --gpus 16xp100 --order srtf --preempt", tmp_path)
    assert stopping["commands"] == []  # who runs has less left


@pytest.mark.parametrize(
    ("command", "code", "message"),
    [
        ("jobs.csv", 2, "one of --cluster and --gpus says"),
        ("--gpus 8xa", 2, "one of a trace and a queue"),
        ("--state jobs.csv --gpus 8xa --why wide", 2, "--why is of a trace"),
        ("--state jobs.csv --gpus 8xa --html page.html", 2, "--html is of a trace"),
        ("jobs.csv --gpus 4xa", 3, "job `wide` asks for 8 GPUs, and there are 4 of a"),
        ("jobs.csv --gpus 8xa --order best", 2, "no order is called `best`"),
        ("jobs.csv --gpus 8xa --restart soon", 2, "`soon` is no duration"),
        ("missing.csv --gpus 8xa", 2, "cannot read the file"),
    ],
)
def test_bad_input_is_told_in_three_lines(folder, command, code, message):
    printed = typed(f"planner schedule {command}", folder)
    assert printed.code == code and printed.errors.startswith(f"error: {message}")
    assert [line.split(":")[0].split()[0] for line in printed.errors.splitlines()] == ["error", "at", "fix"]


@pytest.mark.soak
def test_steps_of_a_model_that_planner_knows_are_priced_by_its_search(tmp_path):
    """Twice the steps take twice as long, and a table of throughputs is not asked for."""
    head = "id,submit_s,gpus,steps,model\n"
    times = []
    for steps in (100, 200):
        (tmp_path / "jobs.csv").write_text(f"{head}one,0,2,{steps},tiny-decoder\n")
        times.append(answered("jobs.csv --gpus 2xcpu --seq 256", tmp_path)["makespan_s"])
    assert 0 < times[0] == pytest.approx(times[1] / 2)
    (tmp_path / "jobs.csv").write_text(f"{head}one,0,1,5,llama-3-70b\n")
    assert typed("planner schedule jobs.csv --gpus 1xh100", tmp_path).code == 3
