"""Collectives begin when their last rank arrives; records never exceed what happened."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.runtime.measure.task_records import CollectiveSpan, TaskSpan, task_records


def by_id(found, rank):
    return [(m.id, m.start, m.end) for m in found if m.rank == rank]


def test_waiting_for_the_last_rank_is_nobodys_work():
    early = TaskSpan("F", 0.0, 10.0, gathers=(CollectiveSpan("g", 1.0, 6.0, 8),), gather_id="g")
    late = TaskSpan("F", 4.0, 10.0, gathers=(CollectiveSpan("g", 5.0, 6.0, 8),), gather_id="g")
    found = [*task_records([[early], [late]])]
    assert by_id(found, 0) == [("g", 0.0, 1.0), ("F", 1.0, 6.0)]  # 4 s of waiting are idle
    assert by_id(found, 1) == [("g", 4.0, 5.0), ("F", 5.0, 10.0)]
    assert [m.sent_bytes for m in found if m.id == "g"] == [8, 8]


def test_reductions_come_last():
    backward = TaskSpan(
        "B", 0.0, 10.0, comm=0.5, syncs=(CollectiveSpan("s", 3.0, 4.0, 1), CollectiveSpan("s", 7.0, 9.0, 2))
    )
    found = [*task_records([[backward]])]
    assert by_id(found, 0) == [("B", 0.0, 7.0), ("s", 7.0, 10.0)]
    assert found[1].sent_bytes == 3


def test_collectives_beside_the_compute_keep_their_place():
    met = {"gathers": (CollectiveSpan("g", 1.0, 2.0, 0),), "syncs": (CollectiveSpan("s", 7.0, 12.0, 0),)}
    found = [*task_records([[TaskSpan("B", 0.0, 10.0, **met, blocking=False)]])]
    assert by_id(found, 0) == [("g", 1.0, 2.0), ("B", 0.0, 10.0), ("s", 7.0, 12.0)]


def test_tasks_of_every_step_meet_too():
    found = [
        *task_records([[TaskSpan("sync", 1.0, 5.0, collective=True)], [TaskSpan("sync", 4.0, 5.0, collective=True)]])
    ]
    assert by_id(found, 0) == by_id(found, 1) == [("sync", 4.0, 5.0)]


def test_a_plan_has_its_gather_and_sync_even_when_nothing_was_sent():
    found = [*task_records([[TaskSpan("F", 1.0, 2.0, gather_id="g"), TaskSpan("B", 2.0, 4.0, sync_id="s")]])]
    assert by_id(found, 0) == [("g", 1.0, 1.0), ("F", 1.0, 2.0), ("B", 2.0, 4.0), ("s", 4.0, 4.0)]


def held(one):
    return sum(m.end - m.start for m in one.gathers + one.syncs)


times = st.lists(st.floats(0, 1), min_size=8, max_size=8)


@given(st.lists(times, min_size=1, max_size=4))
def test_records_lie_within_their_pass_one_after_the_other(ranks):
    passes = []
    for gaps in ranks:
        at = [sum(gaps[: i + 1]) for i in range(8)]
        gathers = (CollectiveSpan("g", at[1], at[2], 1), CollectiveSpan("g", at[3], at[4], 1))
        syncs = (CollectiveSpan("s", at[5], at[6], 1),)
        passes.append([TaskSpan("B", at[0], at[7], gathers=gathers, syncs=syncs)])
    found = [*task_records(passes)]
    for rank, (one,) in enumerate(passes):
        gather, backward, sync = (m for m in found if m.rank == rank)
        assert one.start == gather.start <= gather.end == backward.start
        assert backward.end <= sync.start + 1e-9 and sync.end == one.end
        assert backward.end - backward.start == pytest.approx(one.end - one.start - held(one))
        assert all(m.end >= m.start - 1e-12 for m in (gather, backward, sync))
