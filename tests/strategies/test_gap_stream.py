"""Streams of encoder passes in the LLM's gaps: in time, one after another, and nearly as much hidden as by any."""

from itertools import product
from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from planner.strategies.bubbles import GapProblem, GapSchedule, GapStream
from planner.strategies.bubbles.encoder_passes import EncoderPass, Slot

POLICIES = ("early", "late")


def drawn(random: Random, most: int = 4, slots: int = 12) -> GapProblem:
    """Passes of one encoder, alike but for when they are due or there, in slots that exchange for unlike times."""
    count, each = (
        random.randrange(2, slots + 1),
        {phase: float(random.randrange(1, 8)) for phase in "FB"},
    )
    of = tuple(Slot("F", number, 0, 1.0, float(random.choice((0, 1, 1, 2)))) for number in range(count))
    ends = sorted(random.randrange(count) for _ in range(random.randrange(1, most)))
    begins = sorted(random.randrange(1, count + 1) for _ in range(most - len(ends)))
    times = [("B", begin, count) for begin in begins] + [("F", 0, end) for end in ends]
    passes = tuple(EncoderPass("vit", phase, at, each[phase], 0.0, *when) for at, (phase, *when) in enumerate(times))
    work = float(sum(one.computed for one in passes)), 0.0
    return GapProblem("llm", passes, of, float(random.choice((0, 1, 3, 8))), work)


PROBLEMS = st.integers(0, 10**6).map(lambda seed: drawn(Random(seed), most=Random(seed).randrange(2, 9), slots=16))


def hidden(problem: GapProblem, beside: tuple[tuple[EncoderPass, int], ...], behind: list[EncoderPass]) -> float:
    """Seconds that passes and exchanges are beside each other; a pass until the next begins, or it is due."""
    before = np.cumsum([0.0, *(slot.exchanged for slot in problem.slots)])
    stops = [*(at for _, at in beside[1:]), len(problem.slots)]
    each = (
        min(one.computed, before[max(at, min(stop, one.end))] - before[at])
        for (one, at), stop in zip(beside, stops, strict=False)
    )
    return float(sum(each)) + min(problem.once, sum(one.computed for one in behind))


def best_of_all(problem: GapProblem) -> tuple[int, float]:
    """Of all streams whose passes end before the next begins, and forwards when they are due, tried one by one: the
    fewest forwards in front, and the most seconds hidden.
    """
    before, count = np.cumsum([0.0, *(slot.exchanged for slot in problem.slots)]), len(problem.slots)
    fewest, most = len(problem.passes), 0.0
    for starts in product(*([None, *range(one.begin, min(one.end, count - 1) + 1)] for one in problem.passes)):
        chosen = [*zip(problem.passes, starts, strict=True)]
        beside = sorted(((one, at) for one, at in chosen if at is not None), key=lambda each: each[1])
        stops = [*(at for _, at in beside[1:]), count]
        if all(
            (one.phase == "B" and number == len(beside) - 1) or before[min(stop, one.end)] - before[at] >= one.computed
            for number, ((one, at), stop) in enumerate(zip(beside, stops, strict=False))
        ):
            left = {phase: [one for one, at in chosen if at is None and one.phase == phase] for phase in "FB"}
            fewest = min(fewest, len(left["F"]))
            most = max(most, hidden(problem, tuple(beside), left["B"]))
    return fewest, most


def schedules(problem: GapProblem) -> list[GapSchedule]:
    stream = GapStream(problem)
    return [stream.colocated, *map(stream.with_fewest_in_front, POLICIES)]


def on_one_stage(found: GapSchedule) -> tuple[tuple[EncoderPass, int], ...]:
    """Passes beside the LLM's with the slot in front of which each begins."""
    return tuple((one, at) for one, (at,) in found.beside)


@given(PROBLEMS)
def test_each_pass_is_once_in_time_and_after_the_one_before(problem):
    stream = GapStream(problem)
    for found in schedules(problem):
        passes = [*found.front, *(one for one, _ in found.beside), *found.behind]
        assert sorted(one.micro_batch for one in passes) == sorted(one.micro_batch for one in problem.passes)
        assert {one.phase for one in found.front} <= {"F"} and {one.phase for one in found.behind} <= {"B"}
        beside = on_one_stage(found)
        ends = [stream.end(at, one) for one, at in beside]
        for (one, at), end in zip(beside, ends, strict=True):
            assert one.begin <= at < end and (one.phase == "B" or end <= one.end)
        assert all(end <= at for end, (_, at) in zip(ends, beside[1:], strict=False))


@given(PROBLEMS)
def test_late_holds_no_more_forwards_than_early(problem):
    """In front of every slot, of those that have begun."""
    early, late = (GapStream(problem).with_fewest_in_front(policy) for policy in POLICIES)
    assert early.front == late.front
    for slot in range(len(problem.slots)):
        begun = [sum(one.phase == "F" and at <= slot for one, at in on_one_stage(found)) for found in (early, late)]
        assert begun[1] <= begun[0]


def test_no_stream_has_fewer_in_front_and_hardly_any_hides_more():
    """Against every stream of up to four passes in up to eight slots: over 3 % more in one case of 100; where
    passes of a phase take unlike times, in one of 50, as a long forward may fit where the first due does not.
    """
    losses = []
    for seed in range(200):
        problem = drawn(Random(seed), slots=8)
        fewest, most = best_of_all(problem)
        _, *found = schedules(problem)
        assert {len(each.front) for each in found} == {fewest}
        value = max(hidden(problem, on_one_stage(each), [*each.behind]) for each in found)
        assert value <= most + 1e-9
        losses.append(1.0 - value / most if most else 0.0)
    assert sum(losses) <= 0.003 * len(losses) and sum(loss > 0.03 for loss in losses) <= 0.02 * len(losses)


@given(PROBLEMS, st.floats(0.0, 1.0))
def test_no_stream_hides_more_than_the_relaxed_fill(problem, waited):
    for found in schedules(problem):
        own = hidden(problem, on_one_stage(found), [*found.behind])
        assert (1.0 - waited) * own <= problem.hidden_at_most(waited) + 1e-9
