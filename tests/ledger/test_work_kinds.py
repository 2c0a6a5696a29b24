"""Kinds of work add up to the step, on both sides."""

import pytest

from planner import pipeline
from planner.ledger import MeasuredTask, measured_timeline, seconds_by_kind
from planner.ledger.work_kinds import COLLECTIVES_AND_WAIT, OUTPUT_EXCHANGE, STAGE_EXCHANGE
from planner.plan.tasks.expand import expand
from planner.simulate import TaskEvent, Timeline
from planner.specs.base import Ranks
from tests.plans import staged_plan


@pytest.fixture(scope="module")
def scored():
    plan = pipeline.solve("demo-cpu-4").plan
    return plan, pipeline.simulate(plan)[0]


def test_the_simulated_beside_itself_agrees_and_adds_up(scored):
    _, score = scored
    kinds = seconds_by_kind([score.timeline], [score.timeline])
    assert all(kind.predicted == kind.measured for kind in kinds)
    assert sum(kind.predicted for kind in kinds) == pytest.approx(score.timeline.step_seconds)


def test_records_become_the_timeline_that_they_were_taken_from(scored):
    """Every rank notes every task of its own when the simulator says: the same seconds in every kind."""
    plan, score = scored
    records = [
        MeasuredTask(event.id, rank, event.start, event.end, event.comm)
        for event in score.timeline.events
        for rank in event.ranks
    ]
    measured = measured_timeline(records[::-1], score.tasks, plan.size, score.timeline.step_seconds)
    for kind in seconds_by_kind([score.timeline], [measured]):
        assert kind.measured == pytest.approx(kind.predicted, abs=1e-12)


def event(phase, rank, start, end):
    return TaskEvent(phase, phase, "llm", Ranks((rank,)), float(start), float(end))


def test_what_goes_between_stages_counts_where_nothing_is_computed():
    """Rank 0 sends for 3 s, of which it computes 2; rank 1 receives for 4 s and computes behind."""
    events = (event("F", 0, 0, 3), event("send", 0, 1, 4), event("recv", 1, 0, 4), event("F", 1, 4, 6))
    timeline = Timeline(events, 8.0, 2)
    parts = {kind.name: kind.measured for kind in seconds_by_kind([], [timeline])}
    assert parts["forward"] == 2.5 and parts[STAGE_EXCHANGE] == 2.5 and parts[COLLECTIVES_AND_WAIT] == 3.0


def test_what_goes_between_modules_is_named_apart():
    """Of rank 1: outputs for 4 s, of which another stage sends in the last; of rank 0 only what feeds the reader."""
    outputs = TaskEvent("vit[1]/recvF/0/v0>llm", "recv", "vit", Ranks((1,)), 0.0, 4.0)
    events = (outputs, outputs._replace(id="vit[1]/sendF/0/v0>llm", phase="send", ranks=Ranks((0,))))
    events += (event("recv", 1, 3, 6), event("F", 1, 6, 8))
    parts = {kind.name: kind.measured for kind in seconds_by_kind([], [Timeline(events, 8.0, 2)])}
    assert parts[STAGE_EXCHANGE] == 1.5 and parts[OUTPUT_EXCHANGE] == 3.5 and parts["forward"] == 1.0
    assert sum(parts.values()) == 8.0


def test_who_waits_for_a_stage_does_not_receive_before_it_sends():
    plan = staged_plan(2, 1)
    tasks = expand(plan)
    send, recv = (next(t for t in tasks if t.phase == phase and t.of == "F") for phase in ("send", "recv"))
    records = [MeasuredTask(send.id, 0, 5.0, 5.1, 0.0), MeasuredTask(recv.id, 1, 0.0, 6.0, 0.0)]
    timeline = measured_timeline(records, tasks, 2, 10.0)
    assert [(e.phase, e.start, e.end) for e in timeline.events] == [("send", 5.0, 5.1), ("recv", 5.0, 6.0)]
