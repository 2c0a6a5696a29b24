"""What the argument is decides the page; what it cannot be is one clear error, and nothing is written."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from planner import files, pipeline, reporting
from planner.cli.app import app
from planner.errors import InputError
from planner.ledger import own
from planner.simulate.recorded import read_steps
from tests.report.decoding import data_of, ranks_of
from tests.report.made import EVIL, PLANS, scored

SHARED = Path(os.environ.get("PLANNER_SHARED", "/nowhere"))


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
    pipeline.write_trace(path, *scored("demo"))
    return path


def test_a_plan(tmp_path):
    summary = written(tmp_path, str(PLANS["demo"]))
    plan, scores = scored("demo")
    assert summary["page"] == "plan"
    assert summary["plan"] == plan.name
    assert summary["step_seconds"] == scores[0].value


def test_a_trace(tmp_path, trace):
    summary = written(tmp_path, str(trace))
    assert summary["page"] == "timeline"
    assert summary["label"] == "simulated"
    (step,) = read_steps(trace)
    found = ranks_of(data_of((tmp_path / "page.html").read_text()), 0)
    assert [len(events) for events in found] == [
        sum(rank in event.ranks for event in step.timeline.events) for rank in range(4)
    ]


def test_a_plan_beside_a_trace_of_it(tmp_path, trace):
    """The trace is the plan's own simulation, read back: the same times, one beside the other."""
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


def test_a_trace_of_another_plan_is_refused(trace):
    with pytest.raises(InputError) as caught:
        reporting.report(PLANS["static"], reporting.With(measured=trace))
    assert caught.value.where == str(trace)


def test_why(tmp_path):
    page = reporting.report(PLANS["demo"], reporting.With(why=True)).html()
    assert "twice the bandwidth" in page or "one more node" in page
    assert "--why" not in page


def test_runs(tmp_path):
    path = tmp_path / "ledger.jsonl"
    own.append(path, own.Entry("2026-01-01T00:00:00", EVIL, EVIL, "01", 2, 1.0, 0.2, 1.1))
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


@pytest.mark.skipif(not (SHARED / "published").is_dir(), reason="PLANNER_SHARED names no folder of published rows")
@pytest.mark.slow
def test_all_published_rows(tmp_path):
    summary = written(tmp_path, str(SHARED / "published"))
    assert summary["points"] > 1000
    assert summary["bytes"] < 1e6


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
        reporting.report(tmp_path / name)
    assert name in caught.value.where


def test_options_of_plans_are_refused_of_others(tmp_path):
    for extra in (reporting.With(why=True), reporting.With(measured=tmp_path)):
        with pytest.raises(InputError):
            reporting.report(tmp_path, extra)


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
        reporting.write(PLANS["demo"], tmp_path)  # a folder
    assert files.read_text(PLANS["demo"])


def test_the_same_bytes_in_any_process(tmp_path):
    """Whatever order this Python gives to sets."""
    pages = []
    for seed in ("1", "2"):
        target = tmp_path / f"{seed}.html"
        words = [sys.executable, "-m", "planner", "report", str(PLANS["encoder"]), "-o", str(target)]
        subprocess.run(words, env={**os.environ, "PYTHONHASHSEED": seed}, check=True, capture_output=True)
        pages.append(target.read_bytes())
    assert pages[0] == pages[1]
