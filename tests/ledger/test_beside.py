"""Kinds of work add up to the step, on both sides."""

import pytest

from planner import pipeline
from planner.ledger import Record, beside, measured_timeline


@pytest.fixture(scope="module")
def scored():
    plan = pipeline.solve("demo-cpu-4").plan
    return plan, pipeline.simulate(plan)[0]


def test_the_simulated_beside_itself_agrees_and_adds_up(scored):
    _, score = scored
    kinds = beside([score.timeline], [score.timeline])
    assert all(kind.predicted == kind.measured for kind in kinds)
    assert sum(kind.predicted for kind in kinds) == pytest.approx(score.timeline.step_seconds)


def test_records_become_the_timeline_that_they_were_taken_from(scored):
    """Every rank notes every task of its own when the simulator says: the same seconds in every kind."""
    plan, score = scored
    records = [
        Record(event.id, rank, event.start, event.end, event.comm)
        for event in score.timeline.events
        for rank in event.ranks
    ]
    measured = measured_timeline(records[::-1], score.tasks, plan.size, score.timeline.step_seconds)
    for kind in beside([score.timeline], [measured]):
        assert kind.measured == pytest.approx(kind.predicted, abs=1e-12)
