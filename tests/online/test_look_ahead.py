"""A step is there at once and only becomes better; it is legal, the same on every run, and never of another plan."""

import pytest

from planner import files
from planner.errors import InputError
from planner.online.look_ahead import LEAST_EFFORT
from planner.plan.legal.plan_laws import violations
from planner.plan.step_files import SPENT_FILE, STEP_FILE, PlanHead, PlanningTime, StepFile
from planner.scoring.score import score
from planner.specs.base import with_fields
from planner.specs.inputs import JobOptions, load_job
from tests.examples import soaked
from tests.online.small_jobs import ahead_of, head_of
from tests.plans import degrees_of


def offered(ahead, number):
    return files.read(ahead.slots.folder / str(number) / STEP_FILE, StepFile)


def spent(ahead, number):
    return files.read(ahead.slots.folder / str(number) / SPENT_FILE, PlanningTime)


def exhaust(ahead):
    while ahead.advance():
        pass


def test_the_quickest_step_is_homogeneous(tmp_path):
    """In each micro-batch, and over all of them, groups have one degree."""
    ahead = ahead_of(tmp_path, head_of(tmp_path))
    for number in (1, 2, 3, 4):
        ahead.advance()
        rows = offered(ahead, number).step.micro_batches
        assert len({degrees_of(ahead.head.plan)[name] for row in rows for name in row}) == 1


def test_a_deadline_of_nothing_leaves_the_quickest(tmp_path):
    ahead = ahead_of(tmp_path, head_of(tmp_path, "{deadline_ms: 0}", effort=2))
    exhaust(ahead)
    assert [spent(ahead, number).effort for number in (1, 2, 3, 4)] == [LEAST_EFFORT] * 4
    assert all(violations(ahead.head.complete_plan(offered(ahead, number), "")) == [] for number in (1, 2, 3, 4))


@pytest.mark.slow
def test_waiting_gives_each_step_once_and_the_best_of_its_efforts(tmp_path):
    """What is there is what planning to the end would have given, so that no clock decides what is trained."""
    for name, planning in (("waits", "{wait: true}"), ("not", "per_batch")):
        (tmp_path / name).mkdir()
        ahead = ahead_of(tmp_path / name, head_of(tmp_path / name, planning, rows=12), until=4)
        while ahead.advance():
            if name == "waits":
                assert all(spent(ahead, n).effort == 1 for n in (1, 2, 3) if ahead.slots.offered(n))
    for number in (1, 2, 3):
        a, b = (files.read(tmp_path / name / f"steps/{number}" / STEP_FILE, StepFile) for name in ("waits", "not"))
        assert with_fields(a, head="") == with_fields(b, head="")


def test_steps_are_those_that_planning_all_ahead_gives(tmp_path):
    head = head_of(tmp_path)
    ahead = ahead_of(tmp_path, head, until=5)
    exhaust(ahead)
    inputs = load_job(str(tmp_path / "job.yaml"), JobOptions(batches=5))
    for number in range(1, 5):
        step = offered(ahead, number)
        assert step.items["llm"] == inputs.batches[number].items
        assert step.dropped == inputs.batches[number].dropped
        assert step.first_row == 24 * number
        assert set(name for row in step.step.micro_batches for name in row) <= set(head.groups)
        assert score(ahead.head.complete_plan(step, "")).step_seconds == pytest.approx(
            step.step.outcome.value, rel=1e-8
        )
    assert not ahead.slots.offered(5)


@pytest.mark.slow
def test_taking_makes_room_for_the_next_and_nothing_is_kept(tmp_path):
    ahead = ahead_of(tmp_path, head_of(tmp_path))
    for number in range(1, 6):
        exhaust(ahead)
        assert sorted(ahead.drafts) == [*range(number, number + 4)]
        assert ahead.slots.take(number)
        ahead.advance()
    assert not any(ahead.slots.offered(number) for number in range(1, 6))


def test_a_planner_that_was_killed_goes_on_where_the_folder_stands(tmp_path):
    head = head_of(tmp_path)
    once = ahead_of(tmp_path, head)
    exhaust(once)
    text = {number: (once.slots.folder / str(number) / STEP_FILE).read_bytes() for number in (1, 2, 3, 4)}
    once.slots.take(1)
    again = ahead_of(tmp_path, head)
    exhaust(again)
    assert again.next == 2 and again.slots.offered(5) and not again.slots.offered(1)
    assert all((again.slots.folder / str(number) / STEP_FILE).read_bytes() == text[number] for number in (2, 3, 4))
    assert spent(again, 2).seconds == spent(once, 2).seconds  # not planned a second time


@pytest.mark.soak
def test_killed_at_any_moment_it_ends_with_the_same_steps(tmp_path):
    head = head_of(tmp_path)
    whole = ahead_of(tmp_path, head, until=4)
    exhaust(whole)
    want = {number: (whole.slots.folder / str(number) / STEP_FILE).read_bytes() for number in (1, 2, 3)}
    whole.slots.clear()
    for pieces in (1, 2, 5, 3, 4, 6, 1, 6):  # of work in each life
        ahead = ahead_of(tmp_path, head, until=4)
        for _ in range(pieces):
            ahead.advance()
        (ahead.slots.folder / ".2").mkdir(exist_ok=True)  # as half a piece would lie there
    assert not ahead.advance()
    assert {number: (whole.slots.folder / str(number) / STEP_FILE).read_bytes() for number in want} == want


@pytest.mark.soak
def test_a_run_that_begins_anew_is_planned_anew(tmp_path):
    ahead = ahead_of(tmp_path, head_of(tmp_path))
    for number in range(1, 4):
        exhaust(ahead)
        ahead.slots.take(number)
    exhaust(ahead)
    ahead.slots.reset_taken()
    exhaust(ahead)
    assert ahead.next == 1 and all(ahead.slots.offered(number) for number in (1, 2, 3, 4))


@pytest.mark.slow
@pytest.mark.parametrize("damage", soaked(["format: planner.step/1\n", "", "{", None], ["{", None]))
@pytest.mark.every(2)
def test_steps_of_another_plan_and_damaged_ones_are_planned_again(tmp_path, damage):
    head = head_of(tmp_path)
    before = ahead_of(tmp_path, with_fields(head, name="other") if damage is None else head)
    exhaust(before)
    if damage is not None:
        (before.slots.folder / "2" / STEP_FILE).write_text(damage)
    ahead = ahead_of(tmp_path, head)
    exhaust(ahead)
    for number in (1, 2, 3, 4):
        assert offered(ahead, number).head == ahead.head.digest
        assert violations(ahead.head.complete_plan(offered(ahead, number), "")) == []


def test_a_step_of_another_plan_is_refused(tmp_path):
    head = head_of(tmp_path)
    ahead = ahead_of(tmp_path, head)
    exhaust(ahead)
    with pytest.raises(InputError, match="follows another plan"):
        PlanHead(with_fields(head, name="other")).complete_plan(offered(ahead, 1), "1")
    with pytest.raises(InputError, match="assigned nowhere"):
        step = offered(ahead, 1)
        rows = step.step.micro_batches[1:]
        ahead.head.complete_plan(with_fields(step, step=with_fields(step.step, micro_batches=rows)), "1")
    with pytest.raises(InputError, match="no outcome or no prediction"):
        ahead.head.complete_plan(with_fields(step, step=with_fields(step.step, outcome=None)), "1")


@pytest.mark.slow
def test_a_run_that_goes_on_is_planned_from_where_it_does(tmp_path):
    ahead = ahead_of(tmp_path, head_of(tmp_path))
    assert ahead.advance() and ahead.slots.offered(1)  # nobody has said yet
    ahead.slots.reset_taken(7)
    exhaust(ahead)
    assert sorted(ahead.drafts) == [7, 8, 9, 10]
    assert (offered(ahead, 7).number, offered(ahead, 7).first_row) == (7, 24 * 7)
