"""What the argument is decides the page; what it cannot be is one clear error, and nothing is written."""

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from planner import files
from planner.cli.app import app
from planner.costs.pricing import pricing_of
from planner.errors import InputError
from planner.ledger import run_ledger
from planner.plan.tasks.expand import expand
from planner.report import PageStep
from planner.report.comparison import worst_tasks
from planner.scoring import score as score_plan
from planner.simulate import Timeline, TracedStep, build_trace, simulate, write_trace
from planner.simulate.trace_reader import read_steps
from planner.specs.base import Ranks
from planner.workflows import reporting
from planner.workflows.tracing import write_simulated_trace
from tests.replica_plans import replicas
from tests.report.decoding import data_of, ranks_of
from tests.report.sample_pages import EVIL, PLANS, scored
from tests.scoring.priced import priced


def written(tmp_path, *words: str) -> dict:
    target = tmp_path / "page.html"
    done = CliRunner().invoke(app, ["report", *words, "-o", str(target), "--json"], catch_exceptions=False)
    summary = json.loads(done.stdout)
    assert summary["report"] == str(target)
    assert summary["bytes"] == target.stat().st_size
    return summary


@pytest.fixture
def trace(tmp_path) -> Path:
    path = tmp_path / "demo.trace.json"
    write_simulated_trace(path, *scored("demo"))
    return path


def test_a_plan(tmp_path):
    summary = written(tmp_path, str(PLANS["demo"]))
    plan, scores = scored("demo")
    assert summary["page"] == "plan"
    assert summary["plan"] == plan.name
    assert summary["step_seconds"] == scores[0].step_seconds


def test_a_trace(tmp_path, trace):
    summary = written(tmp_path, str(trace))
    assert summary["page"] == "timeline"
    assert summary["label"] == "simulated"
    (step,) = read_steps(trace)
    found = ranks_of(data_of((tmp_path / "page.html").read_text()), 0)
    assert [len(events) for events in found] == [
        sum(rank in event.ranks for event in step.timeline.events) for rank in range(4)
    ]


def run_trace(path: Path, name: str, factors=(1.0,), apart: bool = False) -> Path:
    """As a run would write it: the plan's own simulation, stretched, told as measured; `apart`: an event per rank."""
    plan, scores = scored(name)
    steps = []
    for run_step, factor in enumerate(factors):
        whole = simulate(tasks := expand(plan), pricing_of(plan).price, plan.size)
        assert whole.step_seconds == scores[0].step_seconds
        events = [
            event._replace(start=factor * event.start, end=factor * event.end, comm=factor * event.comm, ranks=ranks)
            for event in whole.events
            for ranks in ([Ranks((rank,)) for rank in event.ranks] if apart else [event.ranks])
        ]
        timeline = Timeline(tuple(events), factor * whole.step_seconds, plan.size)
        steps.append([TracedStep(timeline, tasks, "measured", None, 0, run_step)])
    write_trace(path, build_trace(steps, plan.name))
    return path


def test_a_plan_beside_a_trace_of_it(tmp_path):
    """The trace is the plan's own simulation, read back: the same times, one beside the other."""
    trace = run_trace(tmp_path / "run.json", "demo")
    summary = written(tmp_path, str(PLANS["demo"]), "--measured", str(trace))
    data = data_of((tmp_path / "page.html").read_text())
    assert summary["measured_step_seconds"] == [pytest.approx(summary["step_seconds"], rel=1e-6)]
    assert data["measured"] == [0]
    apart = [
        abs(a.start - b.start) * data["tick"]
        for one, other in zip(ranks_of(data, 0), ranks_of(data, 1), strict=True)
        for a, b in zip(sorted(one), sorted(other), strict=True)
    ]
    assert max(apart) < 1e-6


UNITS = {"s": 1.0, "ms": 1e-3, "µs": 1e-6}


def seconds_of(text: str) -> tuple[float, float]:
    """What a cell says, and how much it may be rounded by."""
    if text == "0":
        return 0.0, 1e-9
    number, unit = text.replace("−", "-").split()
    digits = len(number.partition(".")[2])
    return float(number) * UNITS[unit], 0.5 * 10.0**-digits * UNITS[unit]


def rows_of(html: str, caption: str) -> list[list[str]]:
    """The cells of a page's table."""
    table = html.partition(f"<caption>{caption}")[2].partition("</table>")[0].partition("<tbody>")[2]
    return [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row.replace("\u00a0", " ")) for row in table.split("</tr>")[:-1]]


@pytest.mark.parametrize("factors", [(1.25,), (0.5, 2.0, 1.5)])
def test_what_the_difference_is_made_of_adds_up(tmp_path, factors):
    trace = run_trace(tmp_path / "run.json", "demo", factors, apart=True)
    html = reporting.build_page(PLANS["demo"], reporting.PageExtras(measured=trace)).html()
    *lines, step = rows_of(html, "The difference by kind of work")
    assert step[0] == "the step" and len(lines) > 2
    for column in (1, 2, 3):
        each = [seconds_of(line[column]) for line in lines]
        whole, rounding = seconds_of(step[column])
        assert sum(value for value, _ in each) == pytest.approx(whole, abs=rounding + sum(by for _, by in each))
    expected = scored("demo")[1][0].step_seconds
    for column, value in ((1, expected), (2, expected * sum(factors) / len(factors))):
        assert seconds_of(step[column])[0] == pytest.approx(value, abs=1.001 * seconds_of(step[column])[1])


def test_tasks_of_groups_that_were_not_simulated_are_among_those_furthest_off():
    """80 ranks in 20 replicas that do alike: the one that is measured slower is named, whichever it is."""
    plan = priced(replicas([[0] * 20] * 2, 2))
    score = score_plan(plan)
    assert "r7" in score.timeline.representative_group
    whole = simulate(expand(plan), pricing_of(plan).price, plan.size)
    events = tuple(e._replace(end=e.end + 9.0) if e.id == "llm[0-1]/F/1/r7" else e for e in whole.events)
    steps = PageStep("step 0", "simulated", score.timeline), PageStep("run", "measured", replace(whole, events=events))
    html = worst_tasks([steps])
    first = rows_of(html, "Compute tasks that differ most")[0]
    assert first[0] == "<code>llm[0-1]/F/1/r7</code>"


def test_runs(tmp_path):
    path = tmp_path / "ledger.jsonl"
    run_ledger.append_entry(path, run_ledger.RunEntry("2026-01-01T00:00:00", EVIL, EVIL, "01", 2, 1.0, 0.2, 1.1))
    with path.open("a") as out:
        out.write("{}\n")
    summary = written(tmp_path, str(path))
    assert (summary["page"], summary["runs"], summary["unread"]) == ("runs", 1, 1)
    (panel,) = data_of((tmp_path / "page.html").read_text())["panels"]
    assert (panel["measured"], panel["predicted"]) == ([1.1], [1.0])


def test_a_folder_of_published_rows(tmp_path):
    """Every row is a point, or counted with its reason."""
    facts = (
        "row_id,source_id,status,gpu,n_gpus,precision,seq_len,global_batch,micro_batch,tp,pp,dp,step_time_s,framework"
    )
    said = "mine,ok,H100,8,bf16,8192,128,1,1,1,8,20.0"
    rows = f"a,{said},llama-3-8b\nb,{said},nobody\n"
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "mine.csv").write_text(f"{facts},model\n{rows}")
    summary = written(tmp_path, str(tmp_path / "rows"))
    assert summary["page"] == "ledger"
    assert summary["rows_used"] + summary["rows_skipped"] == 2
    assert summary["rows_skipped"] >= 1


@pytest.mark.parametrize("text", ["", "{}", '{"traceEvents": []}', "[1]", "{", "format: planner.job/1\n", "\x1f\x8b"])
def test_what_is_none_of_these_is_refused(tmp_path, text):
    path = tmp_path / "what"
    path.write_bytes(text.encode("latin-1"))
    done = CliRunner().invoke(app, ["report", str(path), "-o", str(tmp_path / "page.html")])
    assert isinstance(done.exception, InputError)
    assert str(path) in done.exception.where
    assert not (tmp_path / "page.html").exists()


@pytest.mark.parametrize("name", ["nothing.yaml", "nothing.jsonl", "nothing"])
def test_what_is_not_there_is_refused(tmp_path, name):
    with pytest.raises(InputError) as caught:
        reporting.build_page(tmp_path / name)
    assert name in caught.value.where


def test_options_of_plans_are_refused_of_others(tmp_path):
    for extra in (reporting.PageExtras(why=True), reporting.PageExtras(measured=tmp_path)):
        with pytest.raises(InputError):
            reporting.build_page(tmp_path, extra)


def test_a_trace_with_any_names_becomes_a_page(tmp_path, trace):
    """Names of a file that somebody else wrote, half a surrogate pair among them."""
    text = trace.read_text()
    evil = json.dumps(EVIL + "\ud800")[1:-1]
    trace.write_text(text.replace("g0-1", evil).replace('"llm', f'"{evil}'), encoding="utf-8")
    written(tmp_path, str(trace))
    html = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<img" not in html
    assert html.count("</script>") == 2


def test_the_page_is_written_whole_or_not_at_all(tmp_path):
    with pytest.raises(InputError):
        reporting.write_page(PLANS["demo"], tmp_path)  # a folder
    assert files.read_text(PLANS["demo"])


@pytest.mark.soak
def test_the_same_bytes_in_any_process(tmp_path):
    """Whatever order this Python gives to sets."""
    pages = []
    for seed in ("1", "2"):
        target = tmp_path / f"{seed}.html"
        words = [sys.executable, "-m", "planner", "report", str(PLANS["encoder"]), "-o", str(target)]
        subprocess.run(words, env={**os.environ, "PYTHONHASHSEED": seed}, check=True, capture_output=True)
        pages.append(target.read_bytes())
    assert pages[0] == pages[1]
