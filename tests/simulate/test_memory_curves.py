"""Memory over time: schedules keep as many micro-batches in flight as theory says, and all memory is freed."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.costs.cost_lines import Cost
from planner.plan.plan_file import TaskPlacement
from planner.plan.schedules import schedule_slots
from planner.plan.tasks.expand import expand
from planner.simulate import simulate
from planner.specs.base import with_fields
from tests.plans import encoder_plan, sharded_plan, staged_plan
from tests.slots_in_flight import peak_in_flight
from tests.task_programs import memory_of


def used(plan, activation_bytes=lambda t: float(len(t.layers)), state_bytes=lambda rank: 100.0, *besides, **more):
    tasks = expand(plan)
    seconds = {"F": 1.0, "B": 2.0, "I": 1.0, "W": 1.0}
    timeline = simulate(tasks, lambda t: Cost(seconds.get(t.phase, 0.0), "measured", 0.0), plan.size)
    return memory_of(timeline, tasks, activation_bytes, state_bytes, *besides, **more)


@given(st.integers(1, 6), st.integers(1, 12))
def test_micro_batches_in_flight(stages, micro_batches):
    """1F1B keeps min(m, p − s) micro-batches on stage s, GPipe all of them; each stage of the plan has two layers."""
    one = used(staged_plan(stages, micro_batches, "1f1b")).peaks
    assert one == pytest.approx([100 + 2 * min(micro_batches, stages - s) for s in range(stages)])
    every = used(staged_plan(stages, micro_batches, "gpipe")).peaks
    assert every == pytest.approx([100 + 2 * micro_batches] * stages)


def test_micro_batches_do_not_add_up():
    memory = used(sharded_plan(4, [[(0, 4)], [(0, 2), (2, 2)]]), lambda t: t.tokens / t.degree)
    assert memory.peaks == pytest.approx([100 + max(16 / 4, 19 / 2)] * 2 + [100 + 22 / 2] * 2)


def test_everything_is_given_back_and_time_only_moves_on():
    for curve in used(staged_plan(4, 6), lambda t: 0.1).curves:
        assert curve[0][0] == 0.0 and curve[-1][1] == pytest.approx(100.0)
        assert all(a < b for (a, _), (b, _) in itertools.pairwise(curve))


def test_a_forward_cut_in_two_is_freed_by_its_one_backward():
    whole = used(encoder_plan())
    cut = used(encoder_plan((TaskPlacement(do="vit.F1[0-1]", on="v1", beside="llm.send.F0@0"),)))
    assert [curve[-1][1] for curve in cut.curves] == pytest.approx([100.0] * 4)
    assert cut.peaks == pytest.approx(whole.peaks)


def test_a_forward_without_backward_keeps_its_activations():
    plan = staged_plan(1, 1)
    tasks = [task for task in expand(plan) if task.phase == "F"]
    timeline = simulate(tasks, lambda t: Cost(1.0, "measured", 0.0))
    assert memory_of(timeline, tasks, lambda t: 7.0, lambda rank: 0.0).curves == (((0.0, 7.0), (1.0, 0.0)),)


@given(st.integers(1, 6), st.integers(1, 12), st.sampled_from(["zb_h1", "zb_h2", "1f1b", "forward_only"]))
def test_the_curve_is_what_the_slots_hold(stages, micro_batches, name):
    """Activations over a simulated step peak where the schedule says by its order alone; each stage of the plan
    has two layers. A forward without a backward holds its activations only while it runs.
    """
    peaks = used(staged_plan(stages, micro_batches, name)).peaks
    if name == "forward_only":
        assert peaks == pytest.approx([102.0] * stages)
    else:
        assert peaks == pytest.approx(
            [100 + 2 * peak_in_flight(slots) for slots in schedule_slots(name, stages, micro_batches)]
        )


def test_i_gives_back_what_w_does_not_need():
    (curve,) = used(changed_order(staged_plan(1, 2), ("F0 I0 F1 W0 I1 W1",)), lambda t: 34.0, lambda rank: 0.0).curves
    assert [at for at, _ in curve] == [0.0, 2.0, 4.0, 5.0, 6.0]
    assert [held for _, held in curve] == pytest.approx([34.0, 66.0, 34.0, 32.0, 0.0], abs=1e-9)


@given(st.integers(1, 6), st.integers(1, 12), st.floats(0.0, 50.0))
def test_recomputed_activations_are_on_top_of_kept_ones(stages, micro_batches, besides):
    """A stage of 1F1B runs backwards at its peak; it recomputes activations of one micro-batch at a time."""
    plan = staged_plan(stages, micro_batches)
    kept, with_recompute = used(plan).peaks, used(plan, recomputed_bytes=lambda task: besides).peaks
    assert with_recompute == pytest.approx([peak + besides for peak in kept])


def test_recomputed_activations_are_freed_when_the_backward_ends():
    """F F B B, of one and of two seconds; of a backward in two, only I recomputes."""
    kept, recomputed = (lambda task: 8.0), (lambda task: 2.0 + task.micro_batch)
    (curve,) = used(staged_plan(1, 2, "gpipe"), kept, lambda rank: 0.0, recomputed).curves
    assert curve == ((0.0, 8.0), (1.0, 16.0), (2.0, 18.0), (4.0, 11.0), (6.0, 0.0))
    plan = changed_order(staged_plan(1, 2), ("F0 I0 F1 W0 I1 W1",))
    plain, more = (used(plan, lambda t: 34.0, lambda rank: 0.0, *each).curves[0] for each in ((), (lambda t: 5.0,)))
    beside = [held - before for (_, held), (_, before) in zip(more, along(plain, more), strict=True)]
    assert beside == pytest.approx([0.0, 5.0, 0.0, 5.0, 0.0, 0.0], abs=1e-9)


def along(curve, other):
    """The same curve at the times of another one."""
    return [(at, [held for start, held in curve if start <= at][-1]) for at, _ in other]


def changed_order(plan, lines):
    return with_fields(plan, steps=(with_fields(plan.steps[0], order={"llm": lines}),))
