"""A trace read back equals what was written, and anything else is refused with its location."""

import gzip
import json
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.costs.cost_lines import Cost
from planner.errors import InputError
from planner.plan.mesh.identical_groups import identical_groups
from planner.plan.tasks.expand import expand
from planner.simulate import (
    TaskEvent,
    Timeline,
    TracedStep,
    build_trace,
    median_step,
    read_steps,
    simulate,
    write_trace,
)
from planner.simulate.trace_writer import trace_json
from planner.specs.base import Ranks
from tests.examples import examples
from tests.plan.schedules.made import ordered_plan
from tests.plans import encoder_plan, sharded_plan, staged_plan
from tests.task_programs import programs, task

WEIRD = 'a"b\\c\n<é>\u2028\U0001f600'


def by_rank(timeline: Timeline) -> Counter:
    """Every event on every rank, times in whole nanoseconds."""
    return Counter(
        (*e[:3], rank, round(e.start * 1e9), round(e.end * 1e9), round(e.comm * 1e9), *e[7:])
        for e in timeline.events
        for rank in e.ranks
    )


def read_trace(path):
    """The step of median length of a trace file."""
    return median_step(read_steps(path))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "trace.json"


def written(path, steps, plan="toy", only=None):
    write_trace(path, build_trace(steps, plan, only))
    return path


def simulated(plan):
    tasks = expand(plan)
    seconds = {"F": 1e-3, "B": 2e-3, "send": 1e-5}
    price = lambda t: Cost(seconds.get(t.phase, 0.0), "fitted", 0.1, seconds.get(t.phase, 0.0) / 3)  # noqa: E731
    return TracedStep(simulate(tasks, price, plan.size), tasks, "simulated")


@examples(60)
@given(programs(), st.sampled_from(("measured", "simulated")), st.sampled_from(("toy", WEIRD)))
def test_reading_gives_what_was_written(tmp_path_factory, program, label, name):
    tasks, price = program
    timeline = simulate(tasks, price)
    path = tmp_path_factory.mktemp("traces") / "trace.json.gz"
    read = read_trace(written(path, [[TracedStep(timeline, tasks, label, step=3)]], name))
    assert by_rank(read.timeline) == by_rank(timeline)
    assert (read.label, read.plan, read.step, read.run_step) == (label, name, 3, None)
    assert (read.timeline.ranks, read.timeline.step_seconds) == (timeline.ranks, timeline.step_seconds)
    assert read.groups == {t.id: t.group for t in tasks} and read.tokens == {t.id: t.tokens for t in tasks}


@pytest.mark.parametrize("plan", [staged_plan(3, 2), encoder_plan(), sharded_plan(4, [[(0, 2), (2, 2)]])])
def test_what_ranks_do_together_is_one_event_again(path, plan):
    before = simulated(plan)
    after = read_trace(written(path, [[before]])).timeline
    assert [(e.id, e.ranks, e.cause) for e in after.events] == [
        (e.id, e.ranks, e.cause) for e in before.timeline.events
    ]
    assert after.breakdown().compute == pytest.approx(before.timeline.breakdown().compute)


def test_a_task_twice_on_a_rank_stays_twice(path):
    """A gather has a record in the forward and one in the backward that it belongs to."""
    one = task(0, (0, 1), "gather")
    events = tuple(
        TaskEvent(one.id, "gather", "m", Ranks((r,)), start, start) for start in (0.0, 0.0, 0.5) for r in (0, 1)
    )
    timeline = Timeline(events, 1.0, 2)
    again = read_trace(written(path, [[TracedStep(timeline, [one], "measured")]])).timeline
    assert by_rank(again) == by_rank(timeline)
    assert len(again.events) == 3


def test_ranks_that_do_alike_are_drawn_once_and_come_back(path):
    plan = sharded_plan(128, [[(0, 64), (64, 32), (96, 16), (112, 16)], [(0, 128)]])
    before = simulated(plan)
    trace = build_trace([[before]], "toy")
    assert trace["otherData"]["stands_for"] == {"0": "0-63", "64": "64-95", "96": "96-111", "112": "112-127"}
    assert {r["pid"] for r in trace["traceEvents"]} == {0, 64, 96, 112}
    assert by_rank(read_trace(written(path, [[before]])).timeline) == by_rank(before.timeline)


def test_asked_for_ranks_are_all_there_is(path):
    before = simulated(staged_plan(3, 2))
    read = read_trace(written(path, [[before]], only=Ranks((1, 2, 7))))
    assert by_rank(read.timeline) == Counter({k: n for k, n in by_rank(before.timeline).items() if k[3] in (1, 2)})
    assert read.timeline.ranks == 3


def lengthened(traced: TracedStep, factor: float, run_step: int) -> TracedStep:
    old = traced.timeline
    events = tuple(e._replace(start=e.start * factor, end=e.end * factor) for e in old.events)
    longer = replace(old, events=events, step_seconds=old.step_seconds * factor)
    return replace(traced, timeline=longer, label="measured", step=run_step % 2, run_step=run_step)


@pytest.mark.parametrize(("factors", "typical"), [((1, 5, 3), 2), ((2, 1), 1), ((4, 1, 3, 2), 3), ((1,), 0)])
def test_several_steps_follow_each_other_and_the_median_one_stands_for_them(path, factors, typical):
    one = simulated(staged_plan(3, 2))
    steps = [lengthened(one, factor, number) for number, factor in enumerate(factors)]
    written(path, [[step] for step in steps])
    read = read_steps(path)
    assert [(r.run_step, r.step) for r in read] == [(s.run_step, s.step) for s in steps]
    assert [by_rank(r.timeline) for r in read] == [by_rank(s.timeline) for s in steps]
    assert read_trace(path).run_step == typical


# --------------------------------------------------------------------------------------------------- refused


def broken(change) -> str:
    """The text of a trace in which something was changed."""
    one = simulated(staged_plan(2, 1))
    trace = json.loads(trace_json(build_trace([[one]], "toy")))
    change(trace, next(r for r in trace["traceEvents"] if r["ph"] == "X"))
    return json.dumps(trace)


def without(at, key):
    return lambda trace, record: {"head": trace["otherData"], "slice": record, "args": record["args"]}[at].pop(key)


def with_(at, key, value):
    return lambda trace, record: {"head": trace["otherData"], "slice": record, "args": record["args"]}[at].update(
        {key: value}
    )


@pytest.mark.parametrize(
    ("change", "where"),
    [
        *((without("head", key), f"otherData.{key}") for key in ("format", "plan", "ranks", "steps")),
        *((without("slice", key), f".{key}") for key in ("ph", "cat", "pid", "ts", "dur", "args")),
        *((without("args", key), f".args.{key}") for key in ("task", "module", "group", "tokens")),
        (with_("head", "format", "planner.trace/2"), "otherData.format"),
        (with_("head", "planner", "guessed"), "otherData.planner"),
        (with_("head", "ranks", 0), "otherData.ranks"),
        (with_("head", "ranks", True), "otherData.ranks"),
        (with_("head", "steps", []), "otherData.steps"),
        (with_("head", "steps", [3]), "otherData.steps[0]"),
        (with_("head", "stands_for", {"1": "0"}), "otherData.stands_for.1"),
        (with_("head", "stands_for", {"0": "0-9"}), "otherData.stands_for.0"),
        (with_("slice", "cat", "X"), ".cat"),
        (with_("slice", "pid", 2), ".pid"),
        (with_("slice", "ts", -1), ".ts"),
        (with_("slice", "dur", "1"), ".dur"),
        (with_("slice", "dur", 1e999), "trace.json"),
        (with_("args", "step", 1), ".args.step"),
        (with_("args", "source", "heard"), ".args.source"),
    ],
)
def test_what_is_missing_or_wrong_is_named(path, change, where):
    path.write_text(broken(change))
    with pytest.raises(InputError) as error:
        read_trace(path)
    assert where in error.value.where and error.value.fix


FOREIGN = ('{"traceEvents": []}', "[]", "3", '{"otherData": {}}', '{"otherData": 1}', "[" * 10**5, '{"a": NaN}')


@pytest.mark.parametrize("text", FOREIGN)
def test_other_peoples_traces_are_sent_where_they_are_read(path, text):
    path.write_text(text)
    with pytest.raises(InputError) as error:
        read_trace(path)
    assert "planner replay" in error.value.fix


@pytest.mark.parametrize("share", [0.0, 0.3, 0.99])
def test_half_a_trace_says_where_it_ends(path, share):
    text = trace_json(build_trace([[simulated(staged_plan(2, 2))]], "toy"))
    path.write_text(text[: int(len(text) * share)])
    with pytest.raises(InputError) as error:
        read_trace(path)
    line = 1 + text[: int(len(text) * share)].count("\n")
    assert f"trace.json:{line}:" in error.value.where
    raw = gzip.compress(text.encode())
    path.write_bytes(raw[: 2 + int(len(raw) * share)])
    with pytest.raises(InputError, match="unpacked"):
        read_trace(path)


def test_what_cannot_be_read_at_all(path, tmp_path):
    path.write_bytes(b"\xff\xfe")
    for bad in (path, tmp_path, tmp_path / "nowhere.json"):
        with pytest.raises(InputError):
            read_trace(bad)


def test_of_both_sides_one_must_be_chosen(path):
    one = simulated(staged_plan(2, 1))
    with pytest.raises(InputError, match="measured and a simulated"):
        read_trace(written(path, [[one, replace(one, label="measured")]]))


def test_the_same_steps_give_the_same_bytes(tmp_path):
    one = simulated(encoder_plan())
    for name in ("a.json", "a.json.gz"):
        first = written(tmp_path / name, [[one]]).read_bytes()
        assert written(tmp_path / name, [[one]]).read_bytes() == first


def test_represented_ranks_get_their_events_back(path):
    """Events of represented groups come back on all ranks, with the same times of ranks and groups."""
    plan = ordered_plan(2, 3, "1f1b", dp=4)
    others = identical_groups(plan, 0)
    tasks = expand(plan, 0, others.ranks)
    before = simulate(tasks, lambda t: Cost(1e-3, "measured", 0.0), 8, others)
    after = read_trace(written(path, [[TracedStep(before, tasks, "simulated")]])).timeline
    assert before.representative_rank and not after.representative_rank
    for old, new in zip(before.rank_breakdowns(), after.rank_breakdowns(), strict=True):
        assert (new.compute, new.idle) == pytest.approx((old.compute, old.idle), abs=1e-8)
    assert after.group_seconds() == pytest.approx(before.group_seconds())


@pytest.mark.parametrize("only", [None, Ranks((2, 3, 6, 7)), Ranks((3, 7))])
def test_represented_groups_come_back_under_their_own_name(path, only):
    """Whichever of those that do alike was drawn, each group has the seconds that it takes."""
    plan = ordered_plan(2, 3, "1f1b", dp=4)
    others = identical_groups(plan, 0)
    tasks = expand(plan, 0, others.ranks)
    before = simulate(tasks, lambda t: Cost(1e-3, "measured", 0.0), 8, others)
    again = read_trace(written(path, [[TracedStep(before, tasks, "simulated")]], only=only))
    assert {group for group in again.groups.values() if group in plan.groups}.isdisjoint(
        again.timeline.representative_group
    )
    whole = simulate(expand(plan), lambda t: Cost(1e-3, "measured", 0.0), 8)
    assert again.timeline.group_seconds() == pytest.approx(whole.group_seconds())
    for event in again.timeline.events:
        twin = next(e for e in whole.events if e.id == event.id)
        assert (event.start, event.end) == (pytest.approx(twin.start), pytest.approx(twin.end))
        assert only is None or {*event.ranks} == {*only} & {*twin.ranks}
