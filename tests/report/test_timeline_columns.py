"""What the data of a page decode to is the timeline."""

from dataclasses import replace
from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.plan.task import PHASE_STREAMS
from planner.report.page_step import PageStep, TaskFact, simulated_step
from planner.report.timeline_columns import FINEST, TimelineColumns, differences, run_lengths
from planner.simulate import TaskEvent, Timeline, waits_for_modules
from planner.specs.base import Ranks
from planner.units import KIB
from tests.report.decoding import Decoded, curves_of, ranks_of
from tests.report.sample_pages import EVIL, PLANS, scored, ten_steps

NAMES = st.sampled_from(["llm", "vit", EVIL, "a/b"])
TIMES = st.floats(0, 40, allow_subnormal=False)


@st.composite
def shown(draw) -> PageStep:
    size = draw(st.integers(1, 6))
    events, facts = [], {}
    for at in range(draw(st.integers(0, 12))):
        phase, group = draw(st.sampled_from(sorted(PHASE_STREAMS))), draw(NAMES)
        row = draw(st.sampled_from(["step", "0", "1", "17"]))
        ranks = Ranks(sorted(draw(st.sets(st.integers(0, size - 1), min_size=1))))
        start, seconds = draw(TIMES), draw(TIMES)
        comm, source = seconds * draw(st.floats(0, 1)), draw(st.sampled_from(["measured", "analytic"]))
        name = f"{draw(NAMES)}[{at}]/{phase}/{row}/{group}"
        facts[name] = TaskFact(group, draw(st.integers(0, 9)))
        events.append(TaskEvent(name, phase, "llm", ranks, start, start + seconds, comm, source, 0.25))
    return PageStep(
        "step 0", "simulated", Timeline(tuple(events), max((e.end for e in events), default=0.0), size), facts
    )


@given(st.lists(shown(), min_size=1, max_size=3))
def test_any_timeline_comes_back(steps):
    book = TimelineColumns(steps)
    for number, step in enumerate(steps):
        require_same(book, number, step)


def require_same(book: TimelineColumns, number: int, step: PageStep) -> None:
    found = ranks_of(book.data(), number)
    assert len(found) == step.timeline.ranks
    for rank, events in enumerate(found):
        expected = [e for e in step.timeline.events if step.timeline.representative_of(rank) in e.ranks]
        pairs = zip(
            sorted(events, key=place), sorted((ticked(book, step, e) for e in expected), key=place), strict=True
        )
        for one, other in pairs:
            assert one.id == other.id or rank in step.timeline.representative_rank
            assert one[1:] == other[1:]


def place(one: Decoded) -> tuple[int, ...]:
    return (*one[1:4], one.tokens, *map(ord, one.id))


def ticked(book: TimelineColumns, step: PageStep, event: TaskEvent) -> Decoded:
    start, ticks = round(event.start / book.tick), round(event.seconds / book.tick)
    tokens = step.facts[event.id].tokens
    spread = round(event.spread * 1000)
    return Decoded(event.id, start, start + ticks, round(event.comm / book.tick), event.source, spread, tokens)


@pytest.mark.parametrize("name", PLANS)
def test_plans_come_back(name):
    plan, scores = scored(name)
    step = simulated_step(plan, 0, scores[0])
    book = TimelineColumns([step])
    require_same(book, 0, step)
    for found, curve in zip(curves_of(book.data(), 0), scores[0].memory.curves, strict=True):
        assert found == [(round(seconds / book.tick), round(held / KIB)) for seconds, held in curve]


@pytest.mark.slow
def test_every_step_comes_back_and_what_repeats_stands_once():
    plan, scores = ten_steps()
    steps = [simulated_step(plan, number, score) for number, score in enumerate(scores)]
    book = TimelineColumns(steps)
    for number, step in enumerate(steps):
        require_same(book, number, step)
    alone = sum(len(TimelineColumns([step]).patterns.values) for step in steps)
    twice = TimelineColumns([*steps, *steps])
    assert len(twice.patterns.values) == len(book.patterns.values) <= alone
    assert twice.data()["steps"][:10] == book.data()["steps"] == twice.data()["steps"][10:]


def test_the_critical_path_comes_back():
    plan, scores = scored("encoder")
    book = TimelineColumns([simulated_step(plan, 0, scores[0])])
    names, rows, groups = book.data()["steps"][0]["path"]
    ids = [
        f"{book.names.values[n].text}/{'step' if r < 0 else r}/{book.groups.values[g]}"
        for n, r, g in zip(names, rows, groups, strict=True)
    ]
    assert ids == [event.id for event in scores[0].timeline.critical_path()]


def test_ranks_that_were_not_simulated_have_their_own_groups():
    """Rank 2 does what rank 0 does, in a group of its own."""
    events = (
        TaskEvent("llm[0]/F/0/a", "F", "llm", Ranks((0,)), 0.0, 1.0),
        TaskEvent("llm[0]/F/0/b", "F", "llm", Ranks((1,)), 0.0, 2.0),
        TaskEvent("llm[0]/sync/step/all", "sync", "llm", Ranks((0, 1, 2)), 2.0, 3.0),
    )
    timeline = Timeline(events, 3.0, 3, {2: 0}, {"c": "a"}, {2: "c"})
    facts = {event.id: TaskFact(event.id.rpartition("/")[2]) for event in events}
    book = TimelineColumns([PageStep("step 0", "simulated", timeline, facts)])
    ids = [[event.id for event in rank] for rank in ranks_of(book.data(), 0)]
    assert ids == [[f"llm[0]/F/0/{group}", "llm[0]/sync/step/all"] for group in "abc"]
    assert book.data()["rows"][0][0] == book.data()["rows"][2][0]


def test_items_are_the_plans():
    plan, scores = scored("demo")
    book = TimelineColumns([simulated_step(plan, 0, scores[0])])
    found = [item for items, _ in book.data()["steps"][0]["items"].values() for item in items]
    assert sorted(found) == sorted(plan.uses.items["llm"])
    sizes = {i: s for items, of in book.data()["steps"][0]["items"].values() for i, s in zip(items, of, strict=True)}
    assert sizes == plan.uses.items["llm"]


@given(st.floats(1e-9, 1e9))
def test_ticks_are_fine_and_few(seconds):
    book = TimelineColumns([PageStep("", "simulated", Timeline((), seconds, 1))])
    assert FINEST / 10 * 0.999 <= seconds / book.tick <= FINEST * 1.001


@given(st.lists(st.integers(0, 2)))
def test_runs_are_the_values(values):
    found = run_lengths(values)
    assert [value for _, count, value in found for _ in range(count)] == values
    assert all(a[2] != b[2] for a, b in pairwise(found))
    assert [sum(differences(tuple(values))[: i + 1]) for i in range(len(values))] == values


def test_waits_for_encoders_come_back():
    """Whatever rank: what the page marks is the idle time in which an encoder works elsewhere."""
    plan, scores = scored("encoder")
    step = simulated_step(plan, 0, scores[0])
    book = TimelineColumns([step])
    data, tick = book.data(), book.tick
    found = waits_for_modules(step.timeline, range(plan.size))
    marked = 0
    for rank, row in enumerate(row for _, count, row in data["steps"][0]["ranks"] for _ in range(count)):
        at = data["rowWaits"][row]
        modules, since, lengths = data["waits"][at] if at >= 0 else ((), (), ())
        shown = [*zip([data["waited"][m] for m in modules], accumulate(since), lengths, strict=True)]
        expected = [(w.module, round(w.start / tick), round(w.end / tick)) for w in found[rank]]
        assert shown == [(module, start, end - start) for module, start, end in expected if end > start]
        marked += len(shown)
    assert marked and {*data["waited"]} == {"vit"}


def test_no_wait_is_known_of_one_module_or_of_a_recording():
    _, scores = scored("static")
    assert not any(waits_for_modules(scores[0].timeline, range(4)).values())
    _, scores = scored("encoder")
    timeline = scores[0].timeline
    measured = replace(timeline, events=tuple(event._replace(cause="") for event in timeline.events))
    ranks = range(timeline.ranks)
    assert any(waits_for_modules(timeline, ranks).values()) and not any(waits_for_modules(measured, ranks).values())
