"""Traces: slices on a thread never overlap, arrows join what they should, and the bytes repeat."""

import itertools
import json

import pytest
from hypothesis import given

from planner.costs.cost import Cost
from planner.plan.expand import expand
from planner.simulate import Event, Timeline, memory_use, simulate, to_trace
from planner.specs.base import Ranks
from tests.plans import encoder_plan, staged_plan
from tests.programs import programs, task


def traced(plan, label="simulated"):
    tasks = expand(plan)
    seconds = {"F": 1e-3, "B": 2e-3, "send": 1e-5}
    timeline = simulate(tasks, lambda t: Cost(seconds.get(t.phase, 0.0), "measured", 0.0), plan.size)
    memory = memory_use(timeline, tasks, lambda t: 2.0**29, lambda rank: 2.0**30)
    return to_trace(timeline, tasks, label, memory)


def records(trace, kind):
    return [record for record in trace["traceEvents"] if record["ph"] == kind]


def test_a_process_per_rank_and_a_thread_per_stream():
    trace = traced(staged_plan(3, 2))
    found = {(r["name"], r["pid"], r["args"].get("name")) for r in records(trace, "M")}
    assert {("process_name", rank, f"rank {rank}") for rank in range(3)} <= found
    assert ("thread_name", 1, "compute") in found and ("thread_name", 1, "recv") in found
    assert trace["otherData"]["planner"] == "simulated"


def test_slices_are_the_tasks():
    plan = staged_plan(3, 2)
    trace = traced(plan)
    assert sorted(r["name"] for r in records(trace, "X")) == sorted(t.id for t in expand(plan) for _ in t.ranks)
    forward = next(r for r in records(trace, "X") if r["cat"] == "F" and r["pid"] == 1)
    assert (forward["ts"], forward["dur"]) == (1010.0, 1000.0)
    assert forward["args"] == {"group": "all", "items": 1, "tokens": 8, "source": "measured"}


@pytest.mark.parametrize("plan", [staged_plan(3, 2), encoder_plan()], ids=["stages", "encoder"])
def test_an_arrow_for_every_rank_that_receives(plan):
    trace = traced(plan)
    tails, heads = records(trace, "s"), records(trace, "f")
    receiving = [(t, rank) for t in expand(plan) if t.phase == "recv" for rank in t.ranks]
    assert len(heads) == len(receiving) and [r["id"] for r in tails] == [r["id"] for r in heads]
    slices = {(r["pid"], r["tid"], r["ts"]): r["name"] for r in records(trace, "X")}
    for tail, head in zip(tails, heads, strict=True):
        sent = slices[tail["pid"], tail["tid"], tail["ts"]]
        assert slices[head["pid"], head["tid"], head["ts"]].startswith(sent.partition("[")[0])
        assert tail["ts"] <= head["ts"]


def test_memory_is_a_counter():
    counters = records(traced(staged_plan(2, 3)), "C")
    assert max(r["args"]["GiB"] for r in counters if r["pid"] == 0) == 2.0
    assert max(r["args"]["GiB"] for r in counters if r["pid"] == 1) == 1.5


@given(programs())
def test_slices_of_a_thread_do_not_overlap(program):
    tasks, price = program
    trace = json.loads(json.dumps(to_trace(simulate(tasks, price), tasks, "simulated")))
    threads: dict = {}
    for record in records(trace, "X"):
        threads.setdefault((record["pid"], record["tid"]), []).append((record["ts"], record["ts"] + record["dur"]))
    assert set(threads) == {(r["pid"], r["tid"]) for r in records(trace, "M") if r["name"] == "thread_name"}
    for spans in threads.values():
        spans.sort()
        assert all(a[1] <= b[0] + 1e-6 for a, b in itertools.pairwise(spans))


def test_measured_timelines_have_the_same_form():
    both = task(0, (0, 1))
    events = tuple(Event(both.id, "F", "m", Ranks((rank,)), 0.25 * rank, 1.0) for rank in (0, 1))
    trace = to_trace(Timeline(events, 1.0, 2), [both], "measured")
    assert [(r["pid"], r["ts"], r["dur"]) for r in records(trace, "X")] == [(0, 0.0, 1e6), (1, 250000.0, 750000.0)]
    assert trace["otherData"]["planner"] == "measured"


def test_the_same_plan_gives_the_same_bytes():
    assert json.dumps(traced(encoder_plan())) == json.dumps(traced(encoder_plan()))
