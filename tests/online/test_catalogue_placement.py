"""Ranks that meet once a step, and jobs that leave it open, planned batch by batch: legal, and worth what they say."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import files, pipeline
from planner.costs.packing_problem import once_a_step_seconds
from planner.costs.pricing import pricing_of
from planner.errors import InputError
from planner.online.catalogue_placement import place_on_catalogue, place_step
from planner.plan.legal.plan_laws import violations
from planner.plan.plan_file import Group, assignments, group_name
from planner.plan.step_files import STEP_FILE, PlanHead, StepFile
from planner.runtime import RunOptions
from planner.scoring.score import score
from planner.specs.base import Ranks, with_fields
from planner.specs.inputs import JobOptions
from tests.examples import examples, soaked
from tests.online.small_jobs import FILE, ahead_of, write_job
from tests.plans import degrees_of

ONCE = "layout: {zero: 2, dtype: float32}\nstrategy: data_ranks\nsync: step"
THREES = "[1, 3]\nfix: {items: {0: {degree: 3}, 1: {degree: 3}}}"
OPEN = "layout: {dtype: float32}\nstrategy: best"


def head_of(folder, layout, degrees="[1, 2, 4]", effort=1, planning="per_batch"):
    job = write_job(folder, planning, FILE)
    text = job.read_text().replace("layout: {zero: 3, dtype: float32}", layout)
    text = text.replace("tokens_per_rank: 384", "tokens_per_rank: 512")  # the longest fits a rank
    job.write_text(text.replace("degrees: [1, 2, 4]", f"degrees: {degrees}"))
    return pipeline.solve(str(job), JobOptions(effort=effort)).plan


@pytest.mark.soak
@pytest.mark.parametrize("layout", soaked([ONCE, OPEN], [ONCE]))
def test_steps_are_there_at_once_only_become_better_and_are_worth_what_they_say(tmp_path, layout):
    head = head_of(tmp_path, layout, effort=2)
    ahead = ahead_of(tmp_path, head)
    worth = {}
    while ahead.advance():
        for number in (1, 2, 3, 4):
            if not ahead.slots.offered(number):
                continue
            whole = ahead.head.complete_plan(files.read(ahead.slots.folder / str(number) / STEP_FILE, StepFile), "")
            assert violations(whole) == []
            assert whole.outcome.value <= worth.get(number, whole.outcome.value)
            worth[number] = whole.outcome.value
    assert len(worth) == 4
    for number in worth:
        whole = ahead.head.complete_plan(files.read(ahead.slots.folder / str(number) / STEP_FILE, StepFile), "")
        assert whole.outcome.value == pytest.approx(score(whole).step_seconds, rel=1e-8)
        assert whole.outcome.bound <= whole.outcome.value * (1 + 1e-9)
        assert whole.layouts == head.layouts and whole.steps[0].sync == head.steps[0].sync


@pytest.mark.slow
def test_the_head_of_an_open_job_settles_when_ranks_meet(tmp_path):
    head = head_of(tmp_path, OPEN)
    each = {(other.strategy, other.zero, other.sync) for other in head.alternatives}
    (layout,) = head.layouts.values()
    each |= {(head.made.strategy, layout.zero, head.steps[0].sync)}
    assert {("data_ranks", 1), ("data_ranks", 2), ("sequence_groups", 3)} < {(name, zero) for name, zero, _ in each}
    assert all(other.value is None or other.value >= head.outcome.value for other in head.alternatives)
    files.write(tmp_path / "plan.yaml", head)
    assert PlanHead(files.read(tmp_path / "plan.yaml", type(head))).digest == PlanHead(head).digest


def mirrored(head):
    """The head's step on the ranks in reverse, which are alike: its value is the same, its blocks may be others."""
    blocks = {name: Ranks(sorted(head.size - 1 - rank for rank in group.ranks)) for name, group in head.groups.items()}
    rows = tuple(
        {group_name(blocks[name]): entries for name, entries in row.items()} for row in head.steps[0].micro_batches
    )
    groups = {group_name(b): Group(ranks=b, split=head.groups[name].split) for name, b in blocks.items()}
    used = {name for row in rows for name in row}
    return with_fields(
        head,
        then=None,
        groups={name: group for name, group in groups.items() if name in used},
        steps=(with_fields(head.steps[0], micro_batches=rows),),
    )


def contents(plan):
    """Degree and items of every group in every micro-batch."""
    rows = plan.steps[0].micro_batches
    return sorted((degrees_of(plan)[a.group], a.items) for row in rows for a in assignments(plan, row))


def test_what_is_not_in_the_catalogue_is_laid_anew_as_one_step(tmp_path):
    head = head_of(tmp_path, ONCE, degrees=THREES)
    plan = mirrored(head)
    (three,) = (name for name, group in plan.groups.items() if len(group.ranks) == 3)
    head = with_fields(head, groups={name: group for name, group in head.groups.items() if name != three})
    assert plan.groups.keys() - head.groups.keys() == {three}  # the other three ranks of four
    laid = place_on_catalogue(head, plan)
    assert violations(with_fields(laid, groups=head.groups)) == violations(laid) == []
    assert all(head.groups[name] == group for name, group in laid.groups.items())
    assert contents(laid) == contents(plan)
    assert laid.outcome.value == pytest.approx(score(laid).step_seconds, rel=1e-8)
    assert laid.outcome.bound <= laid.outcome.value * (1 + 1e-9)


def test_no_room_in_the_catalogue_is_an_input_error(tmp_path):
    head = head_of(tmp_path, ONCE, degrees=THREES)
    pairs = {name: group for name, group in head.groups.items() if len(group.ranks) != 3}
    with pytest.raises(InputError, match="not in the plan's catalogue"):
        place_on_catalogue(with_fields(head, groups=pairs), mirrored(head))


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    return head_of(tmp_path_factory.mktemp("alone"), ONCE, degrees="[1]")


@pytest.mark.slow
@given(st.lists(st.integers(0, 3), min_size=96, max_size=96))
@examples(20, deadline=None)
def test_single_ranks_are_laid_longest_first(alone, places):
    """Wherever their micro-batches lay: by falling length, at most 4/3 of the best that there is (Graham)."""
    cells = [a for row in alone.steps[0].micro_batches for a in assignments(alone, row)]
    begun, rows = [0] * 4, []
    for a, rank in zip(cells, places, strict=False):
        if begun[rank] == len(rows):
            rows.append({})
        rows[begun[rank]][f"g{rank}"] = a.entries
        begun[rank] += 1
    moved = with_fields(alone, steps=(with_fields(alone.steps[0], micro_batches=tuple(rows)),))
    known = {group.ranks: name for name, group in alone.groups.items()}
    laid = with_fields(moved, steps=(with_fields(moved.steps[0], micro_batches=place_step(moved, known)),))
    assert violations(laid) == [] and contents(laid) == contents(moved)
    once = once_a_step_seconds(pricing_of(alone), "llm", 0.0)  # a CPU hides nothing
    best = min(score(alone).step_seconds, score(moved).step_seconds) - once
    assert score(laid).step_seconds - once <= (4 / 3 - 1 / 12) * best * (1 + 1e-9)


@pytest.mark.soak
@pytest.mark.parametrize("layout", [ONCE, OPEN])
def test_ranks_train_as_one_process_while_the_next_steps_are_planned(tmp_path, layout):
    head = head_of(tmp_path, layout, planning="{wait: true, look_ahead: 1}")
    ran = pipeline.run(head, RunOptions(steps=4, verify=True, dtype="float64", base=tmp_path), lambda _: None)
    assert len(ran.losses) == 4 and len(ran.plannings) == 3
    assert ran.verified.steps == 4 and ran.verified.grad_rel_err <= 1e-12
