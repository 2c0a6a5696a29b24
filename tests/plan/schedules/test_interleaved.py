"""Interleaved 1F1B: every pass once and in order, the published bubble and memory, and what it refuses."""

from itertools import product

import pytest

from planner.costs.cost_lines import NO_COST, Cost
from planner.costs.layout_columns import LayoutColumns
from planner.costs.memory.pipeline_activations import in_flight
from planner.errors import InputError
from planner.plan.legal.plan_laws import violations
from planner.plan.plan_file import Group, Layout, Plan, Step
from planner.plan.schedules import schedule_slots
from planner.plan.task import Task
from planner.plan.tasks.expand import expand
from planner.simulate import simulate
from planner.specs.base import Layers, Ranks, with_fields
from tests.plans import decoder, plan_of, stages_of, uses
from tests.task_programs import memory_of

SHAPES = [(pp, m * pp, vpp) for pp, m, vpp in product((2, 3, 4, 8), (1, 2, 4), (1, 2, 4))]


def chunked_plan(pp: int, micro_batches: int, vpp: int, order: str = "interleaved") -> Plan:
    """One decoder over `pp` ranks, each with `vpp` chunks of one layer; one item per micro-batch."""
    ranks, layers = Ranks(range(pp)), pp * vpp
    return plan_of(
        pp,
        uses(pp, {"llm": decoder(layers)}, {"llm": {i: 8 for i in range(micro_batches)}}),
        {"llm": Layout(ranks=ranks, pp=pp, vpp=vpp, stages=stages_of(layers, layers))},
        {"all": Group(ranks=ranks)},
        Step(sync="step", micro_batches=tuple({"all": (i,)} for i in range(micro_batches)), order={"llm": order}),
    )


def passes(forward: float, backward: float, send: float = 0.0):
    seconds = {"F": forward, "B": backward, "send": send}
    return lambda task: Cost(seconds[task.phase], "analytic", 0.0) if task.phase in seconds else NO_COST


@pytest.mark.parametrize(("pp", "micro_batches", "vpp"), SHAPES)
def test_the_bubble_is_the_published_one(pp, micro_batches, vpp):
    """(pp − 1)/(vpp·m) of the ideal time, with equal stages and free sends (arXiv 2104.04473, section 2.2)."""
    plan = chunked_plan(pp, micro_batches, vpp)
    step = simulate(expand(plan), passes(0.7 / vpp, 1.9 / vpp), pp).step_seconds
    ideal = micro_batches * (0.7 + 1.9)
    assert step / ideal - 1 == pytest.approx((pp - 1) / (vpp * micro_batches), abs=1e-9)


@pytest.mark.parametrize(("pp", "micro_batches", "vpp"), SHAPES)
def test_every_pass_of_every_chunk_once_and_forward_first(pp, micro_batches, vpp):
    for slots in schedule_slots("interleaved", pp, micro_batches, vpp):
        everything = set(product(range(micro_batches), range(vpp)))
        for phase in "FB":
            assert sorted(slot[1:] for slot in slots if slot[0] == phase) == sorted(everything)
        at = {slot: place for place, slot in enumerate(slots)}
        assert all(at[("F", *each)] < at[("B", *each)] for each in everything)


@pytest.mark.parametrize(("pp", "micro_batches"), [(2, 4), (4, 8), (8, 8)])
def test_one_chunk_takes_as_long_as_1f1b(pp, micro_batches):
    plan = chunked_plan(pp, micro_batches, 1)
    one = simulate(expand(plan), passes(1.0, 2.0), pp).step_seconds
    other = simulate(expand(chunked_plan(pp, micro_batches, 1, "1f1b")), passes(1.0, 2.0), pp).step_seconds
    assert one == pytest.approx(other, abs=1e-12)


@pytest.mark.parametrize(("pp", "micro_batches", "vpp"), [s for s in SHAPES if s[1] >= 2 * s[0]])
def test_as_many_micro_batches_in_flight_as_memory_counts(pp, micro_batches, vpp):
    """The simulator's curve of activations peaks, on each rank, where costs/memory/pipeline_activations.py says."""
    order = "1f1b" if vpp == 1 else "interleaved"
    tasks = expand(chunked_plan(pp, micro_batches, vpp, order))
    timeline = simulate(tasks, passes(1.0 / vpp, 2.0 / vpp), pp)

    def one_chunk(task: Task) -> float:
        return 1.0 / vpp

    peaks = memory_of(timeline, tasks, one_chunk, lambda rank: 0.0).peaks
    setup = LayoutColumns(ranks=pp, seq=8.0, batch=float(micro_batches), pp=pp, vpp=vpp)
    assert list(peaks) == pytest.approx([float(in_flight(setup, stage)) for stage in range(pp)])


def test_sends_are_waited_for_only_where_the_pipeline_fills_and_drains():
    step = [simulate(expand(chunked_plan(4, 16, 2)), passes(0.5, 1.0, send), 4).step_seconds for send in (0.0, 0.1)]
    assert step[1] - step[0] == pytest.approx(2 * 0.1 * (4 * 2 - 1))


def test_micro_batches_are_a_multiple_of_the_ranks():
    with pytest.raises(InputError, match="6 micro-batches are no multiple of 4"):
        expand(chunked_plan(4, 6, 2))
    (violation,) = violations(chunked_plan(4, 6, 2))
    assert "1f1b" in violation.fix


def test_chunks_need_a_schedule_that_knows_them():
    with pytest.raises(InputError, match="has one chunk of layers a stage"):
        expand(chunked_plan(2, 4, 2, "1f1b"))


def test_a_plan_that_does_not_say_is_interleaved_where_it_has_chunks():
    plan = chunked_plan(2, 4, 2)
    unsaid = with_fields(plan, steps=(with_fields(plan.steps[0], order={}),))
    assert expand(unsaid) == expand(plan)


def test_a_rank_updates_all_its_chunks_at_once():
    updates = [task for task in expand(chunked_plan(2, 2, 3)) if task.phase == "update"]
    assert [(task.layers, task.ranks) for task in updates] == [
        (Layers((0, 2, 4)), Ranks((0,))),
        (Layers((1, 3, 5)), Ranks((1,))),
    ]


@pytest.mark.parametrize(
    ("layout", "says"),
    [
        ({"stages": stages_of(6, 3)}, "3 stages for pp = 2"),
        ({"ep": 2}, "no experts to shard"),
        ({"rank_order": "dp"}, "dp does not say where pp is"),
    ],
)
def test_laws_of_layouts(layout, says):
    plan = chunked_plan(2, 2, 3)
    wrong = with_fields(plan, layouts={"llm": with_fields(plan.layouts["llm"], **layout)})
    assert any(says in violation.message for violation in violations(wrong))
