"""What makes a measured step longer: every split adds up, and the name is that of who did it, not of who waited."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.costs.cost_lines import Cost
from planner.errors import InputError
from planner.ledger import overlay_steps
from planner.ledger.slow_ranks import slow_ranks, work_of_ranks
from planner.ledger.step_difference import END, EXCHANGE, explain_difference
from planner.plan.tasks.expand import expand
from planner.simulate import Timeline, TracedStep, build_trace, simulate, write_trace
from planner.specs.base import Ranks
from tests.examples import examples
from tests.plans import encoder_plan, sharded_plan, staged_plan
from tests.task_programs import programs, task


def apart(timeline: Timeline) -> Timeline:
    """As runs are measured: an event for each rank, nothing about causes."""
    events = tuple(e._replace(ranks=Ranks((rank,)), cause="") for e in timeline.events for rank in e.ranks)
    return replace(timeline, events=events)


@st.composite
def runs(draw):
    """A simulation, and measurements of the same tasks that took other times: some twice, some not at all."""
    tasks, price = draw(programs())
    seconds = draw(st.lists(st.floats(0, 9), min_size=len(tasks), max_size=len(tasks)))
    took = {t.id: Cost(s, "measured", 0.0, s / 3) for t, s in zip(tasks, seconds, strict=True)}
    measured = apart(simulate(tasks, lambda t: took[t.id], 4))
    kept = draw(st.lists(st.integers(0, 2), min_size=len(measured.events), max_size=len(measured.events)))
    events = tuple(event for event, times in zip(measured.events, kept, strict=True) for _ in range(times))
    return tasks, simulate(tasks, price, 4), replace(measured, events=events, step_seconds=measured.step_seconds + 1)


def near(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9)


@pytest.mark.slow
@examples(60)
@given(runs())
def test_the_pieces_add_up_to_both_steps_and_to_the_difference(run):
    tasks, simulated, measured = run
    found = explain_difference(simulated, measured, tasks)
    end = found.end
    for lines in (found.by_kind(), found.by_task(), [*found.by_rank(), end]):
        assert near(sum(line.difference for line in lines), found.difference)
    for lines in (found.by_kind(), [*found.by_rank(), end]):
        assert near(sum(line.simulated for line in lines), simulated.step_seconds)
        assert near(sum(line.measured for line in lines), measured.step_seconds)
    known = {event.id for event in measured.events}
    on = {(event.id, rank) for event in measured.events for rank in event.ranks}
    absent = {t.id: [rank for rank in t.ranks if (t.id, rank) not in on] for t in tasks}
    said = {id if id not in known else f"{id} on rank {ranks[0]}" for id, ranks in absent.items() if ranks}
    assert set(found.unmeasured_tasks) == said
    assert {piece.id for piece in found.path} <= known


@examples(40)
@given(programs())
def test_a_step_differs_in_nothing_from_itself(program):
    tasks, price = program
    simulated = simulate(tasks, price, 4)
    assert all(line.difference == 0 for line in explain_difference(simulated, simulated, tasks).by_task())


@examples(40)
@given(programs())
def test_the_engine_leaves_no_gap_that_the_walk_would_not_close(program):
    """A task starts the moment something ends that it waits for, or that its lane waits for: the path has no waits."""
    tasks, price = program
    simulated = simulate(tasks, price, 4)
    assert all(abs(p.measured.wait) < 1e-9 for p in explain_difference(simulated, apart(simulated), tasks).path)


@given(st.lists(st.floats(0.1, 5), min_size=1, max_size=8), st.integers(0, 7), st.floats(-0.09, 3))
def test_in_a_chain_one_task_has_all_of_the_difference(seconds, which, longer):
    tasks = [task(number) for number in range(len(seconds))]
    at = which % len(seconds)
    took = [s + longer * (number == at) for number, s in enumerate(seconds)]
    first, second = (simulate(tasks, lambda t, s=s: Cost(s[t.micro_batch], "measured", 0.0)) for s in (seconds, took))
    found = explain_difference(first, second, tasks)
    by_name = {line.name: line.difference for line in found.by_task() if abs(line.difference) > 1e-9}
    assert set(by_name) <= {tasks[at].id}
    assert abs(sum(by_name.values()) - longer) <= 2e-9


def test_the_slow_rank_is_named_not_the_one_that_waits():
    own = [task(0, (0,)), task(1, (1,))]
    both = task(2, (0, 1), "sync").with_dependencies(*(t.id for t in own))
    tasks = [*own, both]
    first, second = (
        simulate(tasks, lambda t, slow=slow: Cost(slow if t is own[1] else 1.0, "measured", 0.0)) for slow in (0.9, 3.0)
    )
    found = explain_difference(first, apart(second), tasks)
    assert [piece.id for piece in found.path] == [own[1].id, both.id]
    (line, other) = found.by_task()
    assert (line.name, line.difference) == (own[1].id, pytest.approx(2.1))
    assert (other.name, other.difference) == (both.id, pytest.approx(-0.1))  # it no longer waits for rank 0
    assert found.difference == pytest.approx(2.0)


def test_waiting_inside_a_group_is_told_apart_from_working():
    one = task(0, (0, 1))
    first, second = (simulate([one], lambda t, c=c: Cost(3.0 + c, "measured", 0.0, c)) for c in (0.5, 2.0))
    found = explain_difference(first, apart(second), [one])
    assert {line.name: line.difference for line in found.by_kind()} == {"forward": 0.0, EXCHANGE: 1.5}


def test_time_after_the_last_task_has_a_name_too():
    one = task(0)
    timeline = simulate([one], lambda t: Cost(1.0, "measured", 0.0))
    (line,) = explain_difference(timeline, replace(timeline, step_seconds=1.5), [one]).by_task()
    assert (line.name, line.difference) == (END, 0.5)


@pytest.mark.parametrize("rank", range(4))
@pytest.mark.parametrize(("phases", "cause"), [(("F", "B", "update"), "clock"), (("B",), "kernels")])
def test_a_rank_that_computes_slower_is_found(rank, phases, cause):
    plan = staged_plan(4, 3)
    tasks = expand(plan)
    usual, slow = (
        simulate(tasks, lambda t, f=f: Cost(f if rank in t.ranks and t.phase in phases else 1.0, "measured", 0.0), 4)
        for f in (1.0, 1.3)
    )
    expected = work_of_ranks(usual)
    (found,) = slow_ranks(work_of_ranks(apart(slow)), expected)
    assert (found.rank, found.ratio, found.cause.what) == (rank, pytest.approx(1.2, abs=0.11), cause)
    assert slow_ranks(work_of_ranks(apart(usual)), expected) == []


# ------------------------------------------------------------------------------------------------------------- overlays


def simulated(plan, seconds=1e-3):
    tasks = expand(plan)
    return simulate(tasks, lambda t: Cost(seconds, "measured", 0.0), plan.size), tasks


def measured(path, plan, factors=(1.0,), label="measured"):
    steps = [
        [TracedStep(*simulated(plan, f * 1e-3), label, step=0, run_step=number)] for number, f in enumerate(factors)
    ]
    write_trace(path, build_trace(steps, plan.name))
    return path


@pytest.mark.parametrize("plan", [staged_plan(3, 2), encoder_plan(), sharded_plan(4, [[(0, 2), (2, 2)]])])
def test_the_median_step_of_a_run_lies_over_the_plans_own(plan, tmp_path):
    path = measured(tmp_path / "m.json", plan, (5, 2, 3, 1, 2.5))
    (one,) = overlay_steps([simulated(plan)], path, plan.name, plan.size)
    assert (one.recorded.run_step, one.measured_count, one.step) == (4, 5, 0)
    assert one.explained.difference == pytest.approx(1.5 * one.simulated.step_seconds, abs=1e-8)
    assert one.explained.unmeasured_tasks == ()


@pytest.mark.parametrize(
    ("ran", "said"),
    [
        (staged_plan(3, 3), "no task llm"),
        (staged_plan(4, 2), "no task llm"),
        (sharded_plan(4, [[(0, 4)]]), "no task"),
    ],
)
def test_another_plans_run_is_refused(ran, said, tmp_path):
    plan = staged_plan(3, 2)
    with pytest.raises(InputError, match="another plan") as error:
        overlay_steps([simulated(plan)], measured(tmp_path / "m.json", ran), plan.name, plan.size)
    assert said in error.value.message and error.value.fix


def test_the_same_tasks_on_other_tokens_are_another_plan(tmp_path):
    plan = sharded_plan(4, [[(0, 4)], [(0, 2), (2, 2)]])
    timeline, tasks = simulated(plan)
    longer = [t.changed(sizes=(99,) * len(t.sizes)) for t in tasks]
    with pytest.raises(InputError, match="worked on 99 tokens"):
        overlay_steps(
            [(timeline, tasks)], write(tmp_path / "m.json", TracedStep(timeline, longer, "measured")), "toy", 4
        )


def test_more_ranks_are_another_plan(tmp_path):
    timeline, tasks = simulated(staged_plan(3, 2))
    more = write(tmp_path / "m.json", TracedStep(replace(timeline, ranks=4), tasks, "measured"))
    with pytest.raises(InputError, match="it has 4 ranks"):
        overlay_steps([(timeline, tasks)], more, "toy", 3)


def test_steps_beyond_the_plans_own_are_left_out_unless_there_is_no_other(tmp_path):
    timeline, tasks = simulated(staged_plan(3, 2))
    steps = [[TracedStep(timeline, tasks, "measured", step=step, run_step=step)] for step in (0, 1)]
    write_trace(tmp_path / "m.json", build_trace(steps, "toy"))
    assert [each.step for each in overlay_steps([(timeline, tasks)], tmp_path / "m.json", "toy", 3)] == [0]
    write_trace(tmp_path / "m.json", build_trace(steps[1:], "toy"))
    with pytest.raises(InputError, match="it has steps 1"):
        overlay_steps([(timeline, tasks)], tmp_path / "m.json", "toy", 3)


def test_simulated_times_are_no_measurement(tmp_path):
    plan = staged_plan(3, 2)
    with pytest.raises(InputError, match="not measured"):
        overlay_steps([simulated(plan)], measured(tmp_path / "m.json", plan, label="simulated"), plan.name, plan.size)


def write(path, traced):
    write_trace(path, build_trace([[traced]], "toy"))
    return path
