"""`planner serve` as it is typed: the answer beside all baselines, pages, scripts, stories of requests, errors."""

import json
import subprocess

import pytest

from planner.check.actions_case import actions_findings, read_actions
from planner.check.finding import Tolerances
from tests.served import drawn
from tests.typed import typed

JOB = """format: planner.job/1
name: chat
model: qwen2.5-vl-7b
cluster: h200x8
workload: {requests: requests.csv}
service: {ttft_s: 0.5, tpot_s: 0.02, percentile: 90}
layout: {tp: 4}
"""


def table(count=40, rate=4.0):
    lines = ["arrival_s,text_tokens,output_tokens,image_tokens"]
    for each in drawn(count, rate, 5):
        lines.append(
            f"{each.arrival_s!r},{3 * each.text_tokens},{each.output_tokens % 12 + 1},{'+'.join(map(str, each.images))}"
        )
    return "\n".join(lines)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "job.yaml").write_text(JOB)
    (tmp_path / "requests.csv").write_text(table())
    return tmp_path


def answered(options, folder):
    printed = typed(f"planner serve job.yaml {options} --json", folder)
    assert printed.code == 0, printed.errors
    return json.loads(printed.out)


@pytest.mark.slow
def test_the_answer_has_every_family_in_both_orders(folder):
    answer = answered("", folder)
    named = [(each["family"], each["order"]) for each in answer["families"]]
    families = ("coupled", "chunked", "encoders", "prefill")  # of two instances: none for three stages
    assert named == [(family, order) for family in families for order in ("fifo", "shortest")]
    assert answer["goodput"] == max(each["goodput"] for each in answer["families"]) <= answer["bound"]
    assert answer["in_time"] >= 0.9 and answer["split"]["gpus"] == 8 == answer["gpus"]


def test_pages_and_scripts_are_written(folder):
    printed = typed("planner serve job.yaml --order fifo --html page.html --launch serve.sh --front", folder)
    assert printed.code == 0 and "goodput" in printed.out and "with fewer GPUs" in printed.out
    assert "<svg" in (folder / "page.html").read_text() and "to be prefilled" in (folder / "page.html").read_text()
    script = (folder / "serve.sh").read_text()
    assert subprocess.run(["bash", "-n", folder / "serve.sh"], check=False).returncode == 0
    assert script.count("vllm serve") == 2 and script.count("--tensor-parallel-size 4") == 2


@pytest.mark.soak
def test_a_policy_is_beside_the_splits(folder):
    (folder / "job.yaml").write_text(JOB.replace("tp: 4", "tp: 2"))
    elastic = answered("--order fifo --elastic --switch 0.2s -o actions.yaml --html page.html", folder)["elastic"]
    assert elastic["still"] > 0 and elastic["moves"] == len(elastic["decisions"])
    assert sum(each["instances"] * each["tp"] for each in elastic["start"]["instances"]) == 8
    assert all({"gain_s", "cost_s", "lost_s", "waited_s"} <= {*each["terms"]} for each in elastic["decisions"])
    stored = read_actions(folder / "actions.yaml")
    assert stored.outcome.moves == elastic["moves"] and stored.outcome.in_time >= 0.9
    assert not [*actions_findings(folder / "actions.yaml", Tolerances())]
    printed = typed("planner serve job.yaml --elastic --switch soon", folder)
    assert printed.code == 2 and "soon" in printed.errors


@pytest.mark.slow
def test_the_time_of_a_request_is_told_whole(folder):
    story = answered("--order fifo --why 7", folder)["story"]
    spans = [float(line.split()[0]) for line in story[1:-2]]
    done = float(story[-2].split()[2])
    assert sum(spans) >= done - 2e-3 * len(spans) and "comes" in story[0] and "in time" in story[-1]
    assert "no request is called `x7`" in typed("planner serve job.yaml --order fifo --why x7", folder).errors


@pytest.mark.slow
def test_a_rate_beyond_every_split_says_how_many_gpus_would_do(folder):
    goodput = answered("--order fifo", folder)["goodput"]
    printed = typed(f"planner serve job.yaml --order fifo --rate {goodput * 2.5}", folder)
    assert printed.code == 3 and "24 GPUs would do" in printed.errors.replace("\n", " ")
    assert answered(f"--order fifo --rate {goodput * 2.5} --any-rate", folder)["goodput"] == pytest.approx(
        goodput, rel=0.03
    )


@pytest.mark.parametrize(
    ("change", "options", "code", "what"),
    [
        (("service:", "# "), "", 2, "promises no service level"),
        (("workload: {requests: requests.csv}", "workload: {lengths: 10, batch_rows: 1}"), "", 2, "no requests"),
        (("ttft_s: 0.5", "ttft_s: 0.0001"), "", 3, "no split serves enough"),
        (("model: qwen2.5-vl-7b", "model: llama-3-8b"), "", 2, "reads no images"),
        (("tp: 4", "tp: 3"), "", 2, "tensor-parallel degree"),
        (("requests.csv", "none.csv"), "", 2, "none.csv"),
        (("", ""), "--measured rows.csv", 2, "has no prices"),
        (("", ""), "--requests long.csv", 2, "has 9,900,016 tokens"),
    ],
)
def test_bad_input_is_one_located_error(folder, change, options, code, what):
    (folder / "job.yaml").write_text(JOB.replace(*change) if change[0] else JOB)
    (folder / "rows.csv").write_text("stage,batch,tokens,seconds\nprefill,1,10,0.1\n")
    (folder / "long.csv").write_text("arrival_s,text_tokens,output_tokens\n0,5,5\n1,9900000,5\n")
    printed = typed(f"planner serve job.yaml --order fifo {options}", folder)
    assert printed.code == code and what in printed.errors.replace("\n", " "), printed.errors
    assert "fix" in printed.errors


def test_a_served_job_is_not_trained(folder):
    printed = typed("planner solve job.yaml", folder)
    assert printed.code == 2 and "planner serve job.yaml" in printed.errors.replace("\n", " ")
