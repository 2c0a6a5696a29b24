"""Ranks that meet once a step: the rank that is done last sets the pace, and slack is what a group can really take."""

from dataclasses import replace
from pathlib import Path

import pytest

from planner import pipeline
from planner.costs import step_prices
from planner.costs.pricing import pricing_of
from planner.errors import InputError
from planner.scoring.score import score
from planner.simulate import simulate
from planner.specs import inputs as job_inputs
from planner.specs.base import with_fields
from planner.units import MS
from planner.why import WhyGroup, WhyItem, WhyPlan
from planner.why.apply_changes import apply_changes, apply_implied
from planner.why.group_loads import group_loads, slack_over_step
from planner.why.item_degrees import tokens_with_offload
from planner.why.plan_problem import plan_inputs
from planner.why.step_facts import step_facts
from tests.examples import soaked

GOLDEN = Path(__file__).parents[1] / "golden"
MEETINGS = {"sync=step", "strategy=data_ranks", "zero=2"}
BACK = {"sync=micro_batch", "strategy=sequence_groups", "zero=3"}


@pytest.fixture(scope="module")
def plan():
    return pipeline.solve("demo-step-cpu-4", job_inputs.JobOptions(effort=1)).plan


@pytest.fixture(scope="module")
def wide():
    inputs = job_inputs.load_job("flexsp-gpt-7b-a100x64", job_inputs.JobOptions(effort=1))
    layout = with_fields(inputs.job.layout, zero=2)
    job = with_fields(inputs.job, strategy="data_ranks", sync="step", layout=layout)
    return pipeline.decide(replace(inputs, job=job)).plan


def when_longer(plan, load, seconds):
    """The end of the last backward if one group took so much longer."""
    name = f"/B/{load.micro_batch}/{load.group}"
    tasks = score(plan).tasks
    price = step_prices(pricing_of(plan), tasks)

    def slower(task):
        cost = price(task)
        return replace(cost, value=cost.value + seconds) if task.id.endswith(name) else cost

    timeline = simulate(tasks, slower, plan.size)
    return max(event.end for event in timeline.events if event.phase == "B")


@pytest.mark.slow
def test_a_group_can_take_its_slack_and_no_more(plan):
    placed = group_loads(plan, score(plan))
    end = when_longer(plan, placed[0], 0.0)
    assert any(load.slack for load in placed) and not all(load.slack for load in placed)
    for load in placed:
        assert when_longer(plan, load, load.slack) == pytest.approx(end, rel=1e-9)
        more = 0.01 * load.seconds
        assert when_longer(plan, load, load.slack + more) == pytest.approx(end + more, rel=1e-9)


def test_a_rank_held_up_by_another_delays_what_follows():
    """Rank 0 works alone, then both together, then rank 1 alone: only beside the first is there time to spare."""
    seconds = {(0, "a"): 3.0, (0, "b"): 1.0, (1, "ab"): 2.0, (2, "b"): 1.0}
    paces = slack_over_step({"a": (0,), "b": (1,), "ab": (0, 1)}, seconds)
    assert {key: pace.slack for key, pace in paces.items()} == {
        (0, "a"): 0.0, (0, "b"): 2.0, (1, "ab"): 0.0, (2, "b"): 0.0
    }  # fmt: skip
    assert {pace.critical for pace in paces.values()} == {"rank 1"}
    assert paces[0, "a"].rank_seconds == 5.0 and paces[1, "ab"].rank == 0


@pytest.mark.slow
@pytest.mark.parametrize("which", ["plan", "wide"])
@pytest.mark.every(2)
def test_the_last_rank_and_what_comes_once_make_the_step(which, request):
    made = request.getfixturevalue(which)
    scored = score(made)
    placed = group_loads(made, scored)
    (pace,) = {load.waits_for for load in placed} - {""}
    last = int(pace.removeprefix("rank "))
    mine = [load for load in placed if last in load.ranks]
    once = sum(e.seconds for e in scored.timeline.critical_path() if e.phase not in ("F", "B"))
    assert sum(load.seconds for load in mine) + once == pytest.approx(scored.step_seconds)
    for load in placed:
        own = sum(other.seconds for other in placed if load.rank in other.ranks)
        assert load.rank in load.ranks and load.rank_seconds == pytest.approx(own)
        assert load.slack <= scored.step_seconds - once - load.rank_seconds + 1e-9


def test_ranks_have_their_own_numbers_of_micro_batches(plan):
    said = step_facts(plan, score(plan))
    rows = plan.steps[0].micro_batches
    counts = [sum(any(rank in plan.groups[name].ranks for name in row) for row in rows) for rank in range(plan.size)]
    assert (said.fewest_of_rank, said.most_of_rank) == (min(counts), max(counts))
    assert said.unheld == 0
    comm = said.exchange_across + said.exchange_within + said.other_comm
    assert said.compute + comm + said.idle == pytest.approx(said.value)


@pytest.mark.slow
def test_a_rank_without_any_group_waits_for_nobody(plan):
    answer = pipeline.why_not(plan, ("degrees=3",))  # of four ranks: one has nothing to do, the others are never idle
    assert answer.after is not None
    once = plan.uses.prices.timing.step_ms * MS
    longest = answer.after.compute + answer.after.exchange_within - once
    assert answer.after.unheld == pytest.approx(longest / 3, rel=0.01)  # compute has the update in it
    assert answer.after.unheld <= answer.after.idle
    assert any("without a group" in clause.text for clause in answer.because)


def test_what_is_said_to_be_held_is_on_the_devices():
    made = pipeline.read_plan(GOLDEN / "data_ranks/offload-h200x8/plan.yaml")
    offloaded = [load for load in group_loads(made, score(made)) if load.held < load.tokens]
    assert offloaded
    for load in offloaded:
        assert load.held <= load.room


@pytest.mark.slow
def test_more_of_a_machine_never_makes_its_step_longer(plan):
    answer = pipeline.why(plan)
    assert isinstance(answer, WhyPlan)
    assert answer.again == pytest.approx(plan.outcome.value)
    memory, node = answer.sensitivities
    assert memory.saved is not None and memory.saved >= 0
    assert node.saved is not None and node.saved > 0


@pytest.mark.soak
def test_items_and_groups_are_where_the_plan_has_them(plan):
    for item in list(plan.uses.items["llm"])[:2]:
        answer = pipeline.why(plan, str(item))
        assert isinstance(answer, WhyItem)
        assert item in answer.load.items
        (chosen,) = [c for c in answer.choices if c.chosen]
        assert chosen.ranks == answer.load.ranks and chosen.step_seconds == answer.value
        others = [c for c in answer.choices if c.step_seconds is not None and not c.chosen]
        assert others
        for c in others:
            asked = pipeline.why_not(plan, (f"items.{item}.degree={c.degree}",))
            assert asked.after is not None and asked.after.value == c.step_seconds
    for name in plan.groups:
        group = pipeline.why(plan, name)
        assert isinstance(group, WhyGroup)
        assert len(group.loads) == sum(name in row for row in plan.steps[0].micro_batches)


def test_what_is_offloaded_needs_less_room(plan):
    assert tokens_with_offload(plan, 900) == 900  # this device states no way to its host
    devices = {name: with_fields(d, host_gb_per_s=1e6) for name, d in plan.uses.devices.items()}
    assert tokens_with_offload(with_fields(plan, uses=with_fields(plan.uses, devices=devices)), 900) < 900


@pytest.fixture(scope="module")
def meeting():
    return pipeline.solve("demo-cpu-4").plan


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "back"),
    soaked(
        [("sync=step", "sync=micro_batch"), ("strategy=data_ranks", "strategy=sequence_groups"), ("zero=2", "zero=3")],
        [("zero=2", "zero=3")],
    ),
)
@pytest.mark.every(2)
def test_meeting_once_a_step_and_back(meeting, change, back):
    """Whichever of the three is asked for, the other two follow; and the way back gives the plan's own value."""
    there = pipeline.why_not(meeting, (change,))
    assert {change, *there.follows} == MEETINGS
    assert there.after is not None and (there.before.sync, there.after.sync) == ("micro_batch", "step")
    assert any("once a step" in clause.text for clause in there.because)
    inputs, _, unable = apply_implied(apply_changes(plan_inputs(meeting), (change,)), (change,))
    assert not unable
    other = pipeline.decide(inputs).plan
    assert other.outcome.value == pytest.approx(there.after.value, rel=1e-8)
    answer = pipeline.why_not(other, (back,))
    assert {back, *answer.follows} == BACK
    assert answer.after is not None and answer.after.value == pytest.approx(meeting.outcome.value, rel=1e-8)


def test_what_contradicts_itself_is_not_possible(plan):
    answer = pipeline.why_not(plan, ("strategy=sequence_groups", "sync=step"))
    assert answer.infeasible is not None and answer.infeasible.where.startswith("strategy")
    with pytest.raises(InputError, match="one of"):
        pipeline.why(plan, "g0-3")
