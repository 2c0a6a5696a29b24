"""Pipelines of few micro-batches: no sizes and no schedule are quicker than the bound, and it is reached."""

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.costs.step.few_micro_batches import least_share
from planner.plan.schedules import schedule_slots
from tests.examples import examples


def simulated(schedule: str, pp: int, vpp: int, sizes: list[float], forward: float) -> float:
    """Seconds of a pipeline without sends: of a micro-batch, each stage takes its part of `size` for both passes."""
    slots, ready, clock = schedule_slots(schedule, pp, len(sizes), vpp), dict[tuple, float](), [0.0] * pp
    seconds, last, left = {"F": forward, "B": 1.0 - forward}, pp * vpp - 1, [list(each) for each in slots]
    while any(left):
        for rank in range(pp):
            if not left[rank]:
                continue
            phase, number, chunk = left[rank][0]
            stage = chunk * pp + rank
            before = ("F", number, stage - 1) if phase == "F" else ("B", number, stage + 1)
            before = (
                None
                if phase == "F" and stage == 0
                else ("F", number, stage)
                if stage == last and phase == "B"
                else before
            )
            if before is None or before in ready:
                clock[rank] = max(clock[rank], ready.get(before, 0.0)) + seconds[phase] * sizes[number] / (pp * vpp)
                ready[phase, number, stage] = clock[rank]
                left[rank].pop(0)
    return max(clock)


@pytest.mark.parametrize(("schedule", "vpp"), [("1f1b", 1), ("gpipe", 1), ("interleaved", 2), ("interleaved", 3)])
@given(st.integers(0, 10**6))
@examples(100)
def test_no_sizes_are_quicker(schedule, vpp, seed):
    random = Random(seed)
    pp, forward = random.randrange(2, 5), random.choice([0.25, 0.33, 0.5])
    count = random.randrange(1, 4) * pp if vpp > 1 else random.randrange(1, 9)
    sizes = [random.choice([0.1, 1.0, 1.3, 4.0]) for _ in range(count)]
    first = 1.0 / (pp * vpp)
    bound = least_share(forward * first, (1.0 - forward) * first, 1.0 - first, count) * sum(sizes)
    assert bound <= simulated(schedule, pp, vpp, sizes, forward) * (1 + 1e-9)


@given(st.floats(0.01, 0.5), st.floats(0.0, 0.5), st.floats(0.1, 1.0), st.integers(1, 9))
@examples(100)
def test_sizes_that_rise_as_weights_fall_reach_it(forward, more, rest, count):
    """All of the bounds that it is made of are the same then."""
    backward = forward + more
    sizes = np.array([((backward + rest) / (forward + rest)) ** number for number in range(count)])
    sizes = sizes / sizes.sum()
    before, behind = np.cumsum(sizes), np.cumsum(sizes[::-1])[::-1]
    each = forward * before + rest * sizes + backward * behind
    assert each == pytest.approx([least_share(forward, backward, rest, count)] * count, rel=1e-6)


@given(
    st.floats(0.01, 0.3), st.floats(0.0, 0.5), st.floats(0.1, 1.0), st.lists(st.integers(1, 12), min_size=2, max_size=6)
)
@examples(100)
def test_it_holds_for_the_mean_number_of_replicas(forward, more, rest, counts):
    """Replicas that end at once have shares of the work that are inverse to it."""
    each = [1.0 / least_share(forward, forward + more, rest, count) for count in counts]
    assert least_share(forward, forward + more, rest, np.mean(counts)) * np.mean(each) <= 1 + 1e-6
