"""The page in a browser: it draws, it zooms, it says nothing wrong, and asks nobody for anything."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from planner.printable import printable
from planner.report import timeline_page
from planner.report.page_step import PageStep, TaskFact, simulated_step
from planner.simulate import TaskEvent, Timeline
from planner.specs.base import Ranks
from tests.examples import soaked
from tests.report.chromium import Chromium, browser
from tests.report.sample_pages import EVIL, PLANS, page, scored, ten_steps
from tests.report.test_pages import html_of

pytestmark = pytest.mark.skipif(browser() is None, reason="there is no Chromium here: `make browser` installs it")
TOUCH = 44  # px, of what a finger can hit


@pytest.fixture(scope="module")
def chromium() -> Iterator[Chromium]:
    found = Chromium(browser() or "")
    yield found
    found.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("pages")


def saved(folder: Path, name: str) -> Path:
    path = folder / f"{name.replace(' ', '-')}.html"
    if not path.exists():
        path.write_text(html_of(name), encoding="utf-8")
    return path


NAMES = [*PLANS, "ten", "timeline", "nothing", "runs", "no runs"]
CASES = [(name, phone) for name in NAMES for phone in (False, True)]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "phone"), soaked(CASES, [(name, at % 2 == 0) for at, name in enumerate(NAMES)]))
@pytest.mark.every(2)
def test_a_page_draws_without_complaint(chromium, folder, name, phone):
    chromium.open(saved(folder, name), 390 if phone else 1280, 844, dark=phone, phone=phone)
    assert chromium.complaints() == []
    assert [url for url in chromium.requests() if not url.startswith("file:")] == []
    assert len(chromium.requests()) == 1
    assert chromium.run("document.documentElement.scrollWidth <= innerWidth")
    assert chromium.run(f"probe.small({TOUCH})") == []


def view(chromium: Chromium) -> list[float]:
    return chromium.run("[state.t0, state.t1, state.r0, state.r1]")


def test_keys_zoom_and_move(chromium, folder):
    chromium.open(saved(folder, "encoder"))
    chromium.run("document.querySelector('#timeline').focus()")
    whole = view(chromium)
    chromium.key("+")
    near = view(chromium)
    assert near[1] - near[0] == pytest.approx(0.6 * (whole[1] - whole[0]))
    chromium.key("ArrowRight")
    moved = view(chromium)
    assert moved[0] > near[0]
    assert moved[1] - moved[0] == pytest.approx(near[1] - near[0])
    chromium.key("]")
    assert view(chromium)[3] - view(chromium)[2] < whole[3] - whole[2]
    chromium.key("0")
    assert view(chromium) == whole
    for _ in range(200):
        chromium.run("ACTIONS['zoom-in']()")
    assert view(chromium)[1] - view(chromium)[0] == pytest.approx(10)
    chromium.key("Home")
    assert view(chromium) == whole


def test_wheel_and_drag(chromium, folder):
    chromium.open(saved(folder, "encoder"))
    chromium.run("canvas.scrollIntoView({block: 'center'})")  # a page of several modules has a longer head
    x, y = chromium.run("((b) => [b.x + b.width / 2, b.y + b.height / 2])(canvas.getBoundingClientRect())")
    whole = view(chromium)
    chromium.mouse("mouseWheel", x, y, deltaX=0, deltaY=-100)
    chromium.settle()
    assert view(chromium) == whole, "the wheel scrolls the page until the timeline has the focus"
    chromium.mouse("mouseWheel", x, y, deltaX=0, deltaY=-100, modifiers=2)
    chromium.settle()
    near = view(chromium)
    assert near[1] - near[0] < whole[1] - whole[0]
    chromium.mouse("mousePressed", x, y, button="left", clickCount=1)
    chromium.mouse("mouseMoved", x - 60, y, button="left", buttons=1)
    chromium.mouse("mouseReleased", x - 60, y, button="left", clickCount=1)
    chromium.settle()
    assert view(chromium)[0] > near[0]


@pytest.mark.parametrize("name", ["demo", "encoder", "kinds"])
def test_the_script_reads_what_was_written(chromium, folder, name):
    """Every event of every rank, as the script decodes it, is the timeline's."""
    chromium.open(saved(folder, name))
    found = chromium.run("probe.decoded()")
    plan, scores = scored(name)
    shown = simulated_step(plan, 0, scores[0])
    tick = page(name).data["tick"]
    for rank, events in enumerate(found):
        expected = [e for e in shown.timeline.events if rank in e.ranks]
        assert len(events) == len(expected)
        by_id = {e.id: e for e in expected}
        for task, start, end, tokens in events:
            assert start == pytest.approx(by_id[task].start, abs=tick)
            assert end == pytest.approx(by_id[task].end, abs=1.01 * tick)
            assert tokens == shown.facts[task].tokens


def test_pointing_says_what_is_there(chromium, folder):
    chromium.open(saved(folder, "demo"))
    _, scores = scored("demo")
    event = next(e for e in scores[0].timeline.events if e.phase == "B")
    middle = (event.start + event.end) / 2 / page("demo").data["tick"]
    x = chromium.run(f"canvas.getBoundingClientRect().x + toX({middle}, canvas.getBoundingClientRect().width)")
    y = chromium.run("canvas.getBoundingClientRect().y + AXIS + 20")
    chromium.click(x, y)
    said = chromium.run("document.querySelector('#readout').innerText")
    assert event.id in said
    assert "simulated" in said
    tokens = {task.id: task.tokens for task in scores[0].tasks}[event.id]
    assert f"{tokens:,}" in said


@pytest.mark.slow
def test_steps_are_chosen(chromium, folder):
    chromium.open(saved(folder, "ten"))
    _, scores = ten_steps()
    chromium.run("document.querySelector('[role=radio][data-step=\"7\"]').click()")
    chromium.settle()
    assert view(chromium)[1] * chromium.run("data.tick") == pytest.approx(scores[7].step_seconds, rel=1e-6)
    assert chromium.run("document.querySelectorAll('#groups .of-step.on').length") == 1
    assert chromium.run("document.querySelector('#groups .of-step.on').dataset.step") == "7"
    chromium.run("document.querySelector('[role=radio][data-step=\"7\"]').focus()")
    chromium.key("ArrowRight")
    assert chromium.run("state.step") == 8


def test_names_stay_text(chromium, tmp_path):
    chromium.open(saved(tmp_path, "timeline"))
    assert chromium.run("document.images.length") == 0
    assert printable(EVIL) in chromium.run("document.querySelector('#readout').textContent")
    chromium.run("document.querySelector('#in-view-details').open = true")
    chromium.settle()
    assert printable(EVIL) in chromium.run("document.querySelector('#in-view').textContent")
    assert chromium.complaints() == []


def test_the_theme_follows_the_system_and_the_button(chromium, folder):
    colour = "getComputedStyle(document.body).backgroundColor"
    pixel = "[...canvas.getContext('2d').getImageData(2, 2, 1, 1).data].slice(0, 3).join()"
    seen = {}
    for dark in (False, True):
        chromium.open(saved(folder, "demo"), dark=dark)
        seen[dark] = (chromium.run(colour), chromium.run(pixel))
    assert seen[False][0] != seen[True][0]
    assert seen[False][1] != seen[True][1]
    chromium.run("document.querySelector('#theme').click()")  # light, on a dark system
    chromium.settle()
    assert (chromium.run(colour), chromium.run(pixel)) == seen[False]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_stands_out_from_its_ground(chromium, folder, theme):
    """WCAG 2.1: at least 4.5 to 1, of every text that is on the page and of labels on blocks."""
    chromium.open(saved(folder, "kinds"), dark=theme == "dark")
    texts, inks = chromium.run("probe.contrasts()"), chromium.run("probe.inks()")
    assert len(texts) > 100
    assert [entry for entry in texts if entry[0] < 4.5] == []
    assert [entry for entry in inks if entry[0] < 4.5] == []


@pytest.mark.slow
def test_many_events_stay_fluid_and_true(chromium, tmp_path):
    """More events than pixels are mixed: what a pixel shows is the share of the time that something runs."""
    count = 20_000
    events = tuple(
        TaskEvent(f"m[0]/F/{at}/g", "F", "m", Ranks((0,)), at * 1e-3, at * 1e-3 + 0.25e-3) for at in range(count)
    )
    shown = PageStep("step 0", "simulated", Timeline(events, count * 1e-3, 1), {e.id: TaskFact("g") for e in events})
    target = tmp_path / "many.html"
    target.write_text(timeline_page("many", [shown]).html(), encoding="utf-8")
    chromium.open(target)
    mixed = chromium.run("probe.share(400, 200, 400, 1)")
    assert mixed == pytest.approx([0.25] * 3, abs=0.03)
    assert chromium.complaints() == []


@pytest.fixture(scope="module")
def long_step(folder) -> Path:
    """600 rounds of two micro-batches that begin together, each forward and backward."""
    events = tuple(
        TaskEvent(f"m[0]/{phase}/{2 * at + each}/g", phase, "m", Ranks((0,)), at + begin, at + begin + 0.2)
        for at in range(600)
        for each, phase, begin in ((0, "F", 0.0), (1, "F", 0.2), (0, "B", 0.4), (1, "B", 0.7))
    )
    shown = PageStep("step 0", "simulated", Timeline(events, 600.0, 1), {e.id: TaskFact("g") for e in events})
    path = folder / "long.html"
    path.write_text(timeline_page("long", [shown]).html(), encoding="utf-8")
    return path


def test_micro_batches_of_a_long_step_are_drawn_as_one(chromium, long_step):
    """At every level of zoom the runs hold each micro-batch once, in whole rounds, a power of two of them."""
    chromium.open(long_step)
    assert chromium.run("roundsOf(row(0).events).length") == 600
    lengths = []
    for scale in (1e-9, 1e-6, 1e-4, 1.0):
        runs = chromium.run(f"runsOf(roundsOf(row(0).events), {scale}).map((run) => [run.first, run.last])")
        assert [number for first, last in runs for number in range(first, last + 1)] == list(range(1200))
        rounds = {(last - first + 1) / 2 for first, last in runs[:-1]}
        assert len(rounds) <= 1 and all(each.is_integer() and int(each).bit_count() == 1 for each in rounds)
        lengths.append(len(runs))
    assert lengths == sorted(lengths) and lengths[0] == 1 and lengths[-1] == 600
    said = chromium.run("document.querySelector('#readout').textContent")
    assert "drawn as one" in said
    chromium.run("(zoomTime(0.01, 0), chooseVisible())")
    chromium.settle()
    assert "drawn as one" not in chromium.run("document.querySelector('#readout').textContent")
    assert chromium.complaints() == []


def test_the_strip_of_the_whole_step_moves_the_window(chromium, long_step, folder):
    chromium.open(long_step)
    chromium.run("zoomTime(0.1, 0)")
    chromium.run("document.querySelector('#minimap').scrollIntoView({block: 'center'})")
    chromium.settle()
    x, y = chromium.run("((b) => [b.x, b.y + 20])(document.querySelector('#minimap').getBoundingClientRect())")
    wide = chromium.run("document.querySelector('#minimap').getBoundingClientRect().width")
    before = view(chromium)
    chromium.mouse("mousePressed", x + wide / 2, y, button="left", clickCount=1)
    chromium.settle()
    middle = view(chromium)
    assert middle[1] - middle[0] == pytest.approx(before[1] - before[0])
    assert (middle[0] + middle[1]) / 2 == pytest.approx(chromium.run("wholeEnd()") / 2, rel=0.05)
    chromium.mouse("mouseMoved", x + wide, y, button="left", buttons=1)
    chromium.mouse("mouseReleased", x + wide, y, button="left", clickCount=1)
    chromium.settle()
    assert view(chromium)[1] == pytest.approx(chromium.run("wholeEnd()"))
    chromium.open(saved(folder, "demo"))
    assert chromium.run("document.querySelector('#minimap').hidden"), "a short step needs none"


def test_without_scripts_the_tables_are_there(chromium, folder):
    chromium.ask("Emulation.setScriptExecutionDisabled", value=True)
    try:
        chromium.load(saved(folder, "demo"))
        root = chromium.ask("DOM.getDocument", depth=1)["root"]["nodeId"]
        for what in ("table", ".band", "noscript p"):
            assert chromium.ask("DOM.querySelectorAll", nodeId=root, selector=what)["nodeIds"]
    finally:
        chromium.ask("Emulation.setScriptExecutionDisabled", value=False)


@pytest.mark.soak
def test_fingers(chromium, folder):
    """A tap chooses, one finger moves in time, two zoom; a finger that goes down the page scrolls it."""
    chromium.open(saved(folder, "encoder"), 390, 844, phone=True)
    chromium.run("document.querySelector('#timeline').scrollIntoView({ block: 'center' })")
    chromium.settle()
    x, y = chromium.run("((b) => [b.x + b.width / 2, b.y + b.height / 2])(canvas.getBoundingClientRect())")
    whole = view(chromium)
    chromium.touch([[(x - 40, y), (x + 40, y)], [(x - 60, y), (x + 60, y)], [(x - 80, y), (x + 80, y)]])
    near = view(chromium)
    assert near[1] - near[0] == pytest.approx((whole[1] - whole[0]) / 2, rel=0.3)
    chromium.touch([[(x + 40, y)], [(x + 10, y)], [(x - 30, y)]])
    assert view(chromium)[0] > near[0]
    assert view(chromium)[1] - view(chromium)[0] == pytest.approx(near[1] - near[0])
    chromium.touch([[(x, y)]])
    assert chromium.run("state.rank") in (3, 4)
    scrolled, before = chromium.run("scrollY"), view(chromium)
    chromium.touch([[(x, y)], [(x, y - 30)], [(x, y - 90)], [(x, y - 150)]])
    assert chromium.run("scrollY") > scrolled
    assert view(chromium) == before
