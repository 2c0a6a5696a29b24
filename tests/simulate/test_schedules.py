"""The bubbles of pipeline schedules, as their papers state them: equal stages, and sends that take no time."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from planner.plan.legal.plan_laws import violations
from planner.plan.schedules import SCHEDULES, schedule_slots
from planner.plan.schedules.explicit import slot_lines
from planner.simulate.timeline import Timeline
from tests.plan.schedules.made import ordered_plan, timeline

RANKS, MICRO_BATCHES = st.integers(1, 6), st.integers(1, 12)
SECONDS = st.sampled_from([0.3, 0.5, 0.8, 1.0, 1.1, 1.7])


def spans(line: Timeline, ranks: int) -> list[float]:
    """Of each rank, seconds from its first pass to the end of its last."""
    passes = [
        [e for e in line.events if e.ranks == (rank,) and e.phase in ("F", "B", "I", "W")] for rank in range(ranks)
    ]
    return [max(e.end for e in each) - min(e.start for e in each) for each in passes]


@given(RANKS, MICRO_BATCHES, st.sampled_from(["1f1b", "gpipe"]), SECONDS, SECONDS)
def test_1f1b_and_gpipe(p, m, name, forward, backward):
    """(p − 1) / (m + p − 1) of the step (arXiv 1811.06965, 2006.09503)."""
    line = timeline(ordered_plan(p, m, name), F=forward, B=backward)
    assert line.step_seconds == pytest.approx((m + p - 1) * (forward + backward), abs=1e-9)
    idle = line.breakdown().idle / line.step_seconds
    assert idle == pytest.approx((p - 1) / (m + p - 1), abs=1e-9)


@given(RANKS, st.integers(1, 3), st.integers(1, 4), SECONDS, SECONDS)
def test_interleaving(p, rounds, v, forward, backward):
    """(p − 1)/v passes of a micro-batch through a rank, above the ideal (arXiv 2104.04473, section 2.2)."""
    v = v if p > 1 else 1
    m = rounds * p
    line = timeline(ordered_plan(p, m, "interleaved", v), F=forward / v, B=backward / v)
    assert line.step_seconds == pytest.approx((m + (p - 1) / v) * (forward + backward), abs=1e-9)


@given(RANKS, MICRO_BATCHES, SECONDS, SECONDS, SECONDS)
def test_zb_h1(p, m, f, i, w):
    """(p − 1)(T_F + T_I − T_W), table 1 of arXiv 2401.10241: where T_W is the least of the three, as the paper has it,
    and there are as many micro-batches as ranks. The least takes T_W's place elsewhere; of fewer micro-batches, fewer
    W fill the bubble.
    """
    line = timeline(ordered_plan(p, m, "zb_h1"), F=f, I=i, W=w)
    bubble = (p - 1) * (f + i) - (min(m, p) - 1) * min(f, i, w)
    assert line.step_seconds == pytest.approx(m * (f + i + w) + bubble, abs=1e-9)
    whole = timeline(ordered_plan(p, m, "1f1b"), F=f, B=i + w).step_seconds
    assert line.step_seconds <= whole + 1e-9


@given(RANKS, MICRO_BATCHES, SECONDS, SECONDS, SECONDS)
def test_zb_h2(p, m, f, i, w):
    """(p − 1)(T_F + T_I − 2 T_W), or nothing, of what a rank needs from its first pass to its last, since steps that
    follow each other overlap; where T_W ≤ T_F, and there are 2p − 1 micro-batches (table 1).
    """
    assume(m >= 2 * p - 1 and w <= f)
    line = timeline(ordered_plan(p, m, "zb_h2"), F=f, I=i, W=w)
    bubble = (p - 1) * max(0.0, f + i - 2 * w)
    assert max(spans(line, p)) == pytest.approx(m * (f + i + w) + bubble, abs=1e-9)


@given(RANKS, st.integers(11, 14))
def test_zb_h2_has_no_bubble_where_passes_take_the_same_time(p, m):
    line = timeline(ordered_plan(p, m, "zb_h2"), F=1.0, I=1.0, W=1.0)
    assert spans(line, p) == pytest.approx([3.0 * m] * p, abs=1e-9)
    assert line.step_seconds == pytest.approx(3.0 * m + p - 1, abs=1e-9)


@given(RANKS, MICRO_BATCHES, SECONDS)
def test_forwards_alone(p, m, forward):
    line = timeline(ordered_plan(p, m, "forward_only"), F=forward, update=5.0)
    assert line.step_seconds == pytest.approx((m + p - 1) * forward, abs=1e-9)


@pytest.mark.parametrize("name", [name for name in SCHEDULES if name != "interleaved"])
def test_every_generator_makes_legal_plans(name):
    for p in range(1, 7):
        for m in range(1, 13):
            assert not violations(ordered_plan(p, m, name)), (p, m)


def test_interleaving_makes_legal_plans():
    for p in range(2, 7):
        for m in range(p, 13, p):
            assert not violations(ordered_plan(p, m, "interleaved", 2)), (p, m)


@given(RANKS, MICRO_BATCHES, SECONDS, SECONDS, SECONDS)
def test_a_backward_in_two_without_a_pause_takes_what_a_whole_one_does(p, m, f, i, w):
    """Where nobody waits for I before W is done: on a single stage; elsewhere it can only be sooner."""
    whole = timeline(ordered_plan(p, m, "1f1b"), F=f, B=i + w)
    cut = tuple(
        " ".join(f"I{s[1:]} W{s[1:]}" if s[0] == "B" else s for s in line.split())
        for line in slot_lines(schedule_slots("1f1b", p, m))
    )
    seconds = timeline(ordered_plan(p, m, cut), F=f, I=i, W=w).step_seconds
    assert seconds <= whole.step_seconds + 1e-9
    if p == 1:
        assert seconds == pytest.approx(whole.step_seconds, abs=1e-9)
