"""Pages are whole, safe, small, accessible in their bones, and the same bytes for the same input."""

import base64
import hashlib
import re
from functools import cache

import msgspec
import pytest

from planner.ledger.run_ledger import RunEntry, UnreadLine, drift_by_plan
from planner.plan.plan_file import Alternative, SourceFile
from planner.policies import schedule_jobs
from planner.printable import printable
from planner.report import PageStep, plan_page, runs_page, schedule_page, timeline_page
from planner.report.page_step import TaskFact
from planner.simulate import TaskEvent, Timeline
from planner.specs.base import Ranks, with_fields
from planner.specs.cluster_jobs.actions_file import PolicyChoice
from planner.specs.parallelism import Parallelism
from tests.cluster_jobs import fleet_of, job
from tests.report.decoding import Elements, data_of
from tests.report.sample_pages import EVIL, PLANS, page, scored, ten_steps


def run(name: str, when: str, ratio: float) -> RunEntry:
    return RunEntry(when, EVIL, name, "0123", 3, 1.0, 0.1, ratio)


def evil_timeline() -> PageStep:
    name = f"{EVIL}[0]/F/0/{EVIL}"
    event = TaskEvent(name, "F", EVIL, Ranks((0, 1)), 0.0, 1.0, 0.1)
    return PageStep(EVIL, "simulated", Timeline((event,), 1.0, 2), {name: TaskFact(EVIL, 5)})


RUNS = [run("a", "2026-01-01", 1.05), run("a", "2026-01-02", 1.5), run(EVIL, "2026-01-01", 0.9)]
OTHERS = {
    "ten": lambda: plan_page(*ten_steps()),
    "timeline": lambda: timeline_page(EVIL, [evil_timeline()]),
    "nothing": lambda: timeline_page("nothing", [PageStep("step 0", "measured", Timeline((), 0.0, 2))]),
    "schedule": lambda: schedule_page(schedule_jobs([job(EVIL, 0.0, 1, a=9.0)], fleet_of(a=2), PolicyChoice()), EVIL),
    "runs": lambda: runs_page(drift_by_plan(RUNS), [UnreadLine(3, EVIL)], EVIL),
    "no runs": lambda: runs_page([], [], "empty"),
}
PAGES = [pytest.param(each, marks=pytest.mark.slow if each == "ten" else ()) for each in (*PLANS, *OTHERS)]


@cache
def html_of(name: str) -> str:
    return (page(name) if name in PLANS else OTHERS[name]()).html()


@pytest.mark.parametrize("name", PAGES)
def test_a_page_asks_nobody_for_anything(name):
    html = html_of(name)
    assert not re.findall(
        r"(?i)https?:|//[a-z0-9-]+\.[a-z]|url\(|@import|\bfetch\(|XMLHttpRequest|WebSocket|import\(", html
    )
    elements = Elements(html)
    for attributes in (attributes for _, attributes in elements.found):
        assert not {"src", "srcset", "action", "style"} & {*attributes}
        assert (attributes.get("href") or "#").startswith("#")
        assert not any(name.startswith("on") for name in attributes)
    assert not elements.all("img", "iframe", "object", "embed", "link", "form", "base")


@pytest.mark.parametrize("name", PAGES)
def test_the_policy_allows_just_what_is_there(name):
    html = html_of(name)
    (policy,) = [a["content"] for a in Elements(html).all("meta") if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; ")
    for kind, text in (("style", re.findall(r"<style>(.*?)</style>", html, re.S)), ("script", scripts(html))):
        (inline,) = text
        digest = base64.b64encode(hashlib.sha256(inline.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert "unsafe" not in policy


def scripts(html: str) -> list[str]:
    return re.findall(r"<script>(.*?)</script>", html, re.S)


@pytest.mark.parametrize("name", PAGES[:-1])
def test_every_picture_has_its_numbers(name):
    """Tables stand in the page itself, for those who see no canvas and run no script."""
    page = Elements(html_of(name))
    assert page.all("noscript")
    assert len(page.all("table")) >= 2
    assert all("scope" in attributes for attributes in page.all("th"))


@pytest.mark.slow
def test_ten_steps_of_64_ranks_fit_into_two_megabytes():
    assert len(html_of("ten").encode()) < 2e6


def test_no_name_becomes_a_tag():
    plan, scores = scored("demo")
    sources = {EVIL: SourceFile(path=EVIL, sha256=EVIL)}
    spread = {EVIL: Parallelism(rank_order="dp", tp=2)}
    instead = (Alternative(strategy=EVIL, zero=1, sync="step", because=EVIL, layouts=spread),)
    made = with_fields(plan.made, by=EVIL, strategy=EVIL)
    prices = with_fields(plan.uses.prices, profile=EVIL)
    evil = with_fields(
        plan, name=EVIL, made=made, alternatives=instead, uses=with_fields(plan.uses, sources=sources, prices=prices)
    )
    event = next(e for e in scores[0].timeline.events if e.phase == "F")._replace(module=EVIL)
    measured = PageStep(EVIL, "measured", Timeline((event,), 1.0, 2), {event.id: TaskFact(EVIL, 5)})
    html = plan_page(evil, scores, [(0, measured)]).html()
    page = Elements(html)
    assert not page.all("img")
    assert len(page.all("script")) == 2
    assert "<img" not in html
    assert html.count("</script>") == 2
    assert printable(EVIL) in "".join(page.text)
    assert printable(EVIL) in data_of(html)["names"][-1]


def test_numbers_of_the_page_are_the_scores():
    _, scores = scored("kinds")
    summary = page("kinds").summary
    assert summary["step_seconds"] == scores[0].step_seconds
    assert summary["peak_memory_gib"] * 2**30 in scores[0].memory.peaks
    assert summary["bound"] <= summary["step_seconds"]
    assert msgspec.json.encode(summary)


def test_every_mark_stands_in_a_table():
    page = Elements(html_of("runs"))
    text = " ".join(page.text)
    for entry in RUNS:
        assert entry.when in text
        assert f"{100 * (1 / entry.ratio - 1):+.1f} %" in text


def test_every_group_is_drawn_once():
    for name in ("demo", "kinds"):
        plan, _ = scored(name)
        groups = sum(len(row) for step in plan.steps for row in step.micro_batches)
        assert len([a for a in Elements(html_of(name)).all("g") if (a["class"] or "").startswith("block")]) == groups


def test_a_plan_whose_ranks_differ_has_both_caps():
    """Two kinds of devices, two lines."""
    assert len(data_of(html_of("kinds"))["caps"]) == 2
