"""Batches of several modules, planned one by one: what planning them all ahead gives, in files that the laws check."""

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from planner import files, pipeline, solve_job
from planner.errors import Infeasible, InputError
from planner.files import FolderQueue
from planner.online.batch_stream import BatchStream
from planner.online.look_ahead import LookAheadPlanner
from planner.online.plan_inputs import inputs_of_plan
from planner.online.plan_step import plan_step, simulate_step
from planner.plan.group_catalogue import process_groups
from planner.plan.legal.plan_laws import violations
from planner.plan.plan_file import Plan
from planner.plan.step_files import SPENT_FILE, STEP_FILE, PlanHead, PlanningTime, StepFile
from planner.scoring import require_memory_in_order, score
from planner.specs.base import with_fields
from planner.specs.inputs import JobOptions, load_job
from planner.strategies.static import assign_batch, solve_fixed
from tests.examples import soaked
from tests.online.several_jobs import (
    LAYOUTS,
    LENGTHS,
    MIXED,
    SAMPLES_FILE,
    STREAM_FILES,
    several_head,
    write_several_job,
)
from tests.runtime.test_plan_channels import channels

AHEAD = {"planning": "ahead"}


def looking_ahead(folder, head, until=4) -> LookAheadPlanner:
    slots = FolderQueue(folder / "steps")
    if not slots.folder.exists():
        slots.reset_taken()
    return LookAheadPlanner(inputs_of_plan(head, folder), head, slots, until)


def exhausted(folder, head, until=4) -> LookAheadPlanner:
    ahead = looking_ahead(folder, head, until)
    while ahead.advance():
        pass
    return ahead


def offered(ahead, number) -> StepFile:
    return files.read(ahead.slots.folder / str(number) / STEP_FILE, StepFile)


def without_seconds(step: StepFile) -> StepFile:
    return with_fields(step, effort=0, step=with_fields(step.step, outcome=None, prediction=None))


# --------------------------------------------------------------------------------------------------- what is planned


EVERY = [*product(LENGTHS, LAYOUTS)]
HALF = [
    (data, layouts) for (at, data), (by, layouts) in product(enumerate(LENGTHS), enumerate(LAYOUTS)) if (at + by) % 2
]


@pytest.mark.parametrize(("data", "layouts"), soaked(EVERY, HALF))
@pytest.mark.every(6)
def test_steps_are_those_that_planning_all_ahead_gives(tmp_path, data, layouts):
    """With their items, who reads them, what was dropped and left out; on groups, channels and process groups that the
    head has.
    """
    head = several_head(tmp_path, data, layouts)
    count = 3 if head.then.batches is None else min(3, head.then.batches + 1)
    ahead = exhausted(tmp_path, head, count)
    batches = load_job(str(tmp_path / "job.yaml"), JobOptions(batches=count)).batches
    inputs = load_job(str(tmp_path / "job.yaml"), JobOptions())
    for number in range(1, count):
        step, batch = offered(ahead, number), batches[number]
        alone = assign_batch(replace(inputs, batches=(batch,), first_row=step.first_row), head)
        whole = ahead.head.complete_plan(step, "")
        assert step.step == with_fields(alone.steps[0], outcome=alone.outcome, prediction=alone.prediction)
        assert whole.uses.items == alone.uses.items == {"llm": batch.items, **batch.streams}
        assert (whole.uses.feeds, whole.edges) == (alone.uses.feeds, alone.edges)
        assert (whole.uses.dropped, whole.uses.left_out) == (batch.dropped, dict(batch.left_out))
        assert violations(whole) == [] and whole.groups == head.groups
        assert process_groups(with_fields(whole, then=None)) <= process_groups(head)
        assert channels(with_fields(whole, then=None)) <= channels(head)


def test_groups_of_one_module_are_none_of_another(tmp_path):
    """A head has process groups of its layouts, and of no layout on the ranks of another module's groups."""
    head = several_head(tmp_path, STREAM_FILES, "apart")
    assert process_groups(head) == process_groups(with_fields(head, then=None))
    pairs = {(channel.source, channel.target) for channel in channels(head)}
    assert pairs == {(source, target) for a in (0,) for b in (1, 2) for source, target in ((a, b), (b, a))} | {
        (source, target) for a in (3,) for b in (1, 2) for source, target in ((a, b), (b, a))
    }


def test_a_step_is_there_before_it_is_simulated_and_stays_what_it_is(tmp_path):
    head = several_head(tmp_path)
    ahead = looking_ahead(tmp_path, head, until=5)
    for _ in range(4):
        assert ahead.advance()
    first = {number: offered(ahead, number) for number in (1, 2, 3, 4)}
    assert all(
        step.effort == 0 and step.step.outcome is None and step.step.prediction is None for step in first.values()
    )
    for number, step in first.items():
        assert violations(ahead.head.complete_plan(step, str(number))) == []
    exhausted(tmp_path, head, until=5)
    for number, step in first.items():
        now = offered(ahead, number)
        assert without_seconds(now) == step and now.effort == 2
        plan = ahead.head.complete_plan(now, "")
        assert score(plan).step_seconds == pytest.approx(now.step.outcome.value, rel=1e-8)
        assert files.read(ahead.slots.folder / str(number) / SPENT_FILE, PlanningTime).effort == 2


@pytest.mark.slow
def test_the_layouts_of_the_first_batch_stay(tmp_path):
    """Whatever decides them, it is asked once; later batches are assigned to its layouts."""
    inputs = load_job(write_several_job(tmp_path, STREAM_FILES, **AHEAD), JobOptions(batches=4))
    asked = []

    def decide(alone):
        asked.append(alone.batches)
        return solve_fixed(alone)

    solved = solve_job.solve_each(inputs, decide, lambda *_: None)
    assert asked == [inputs.batches[:1]] and len(solved.plan.steps) == len(solved.step_seconds) == 4
    assert violations(solved.plan) == []


@pytest.mark.parametrize("data", [STREAM_FILES, SAMPLES_FILE, MIXED])
@pytest.mark.every(3)
def test_planning_ahead_joins_all_that_batches_have(tmp_path, data):
    job = write_several_job(tmp_path, data, **AHEAD)
    plan = pipeline.solve(job, JobOptions(batches=4)).plan
    batches = load_job(job, JobOptions(batches=4)).batches
    assert len(plan.steps) == 4 and plan.then is None
    for name in ("vit", "ear"):
        assert plan.uses.items[name] == {item: size for batch in batches for item, size in batch.streams[name].items()}
        assert plan.uses.feeds[name] == {
            item: readers[0] if len(readers) == 1 else readers
            for batch in batches
            for item, readers in batch.feeds[name]["llm"].items()
        }
        lost = tuple(item for batch in batches for item in batch.left_out.get(name, ()))
        assert plan.uses.left_out.get(name, ()) == lost
    assert plan.uses.left_out and plan.uses.dropped == tuple(sample for batch in batches for sample in batch.dropped)
    head = pipeline.solve(write_several_job(tmp_path, data), JobOptions(batches=2)).plan
    assert head.steps == plan.steps[:2] and head.then
    step = offered(exhausted(tmp_path, head, until=3), 2)
    assert with_fields(step.step, outcome=plan.steps[2].outcome) == plan.steps[2]


@pytest.mark.slow
def test_an_item_of_two_batches_is_refused_ahead_and_computed_in_both_one_by_one(tmp_path):
    job = write_several_job(tmp_path, STREAM_FILES, **AHEAD)
    with (tmp_path / "images.csv").open("a") as images:
        images.write("8,3+6\n")
    with pytest.raises(InputError, match="of `vit` is read by samples of 2 batches") as refused:
        pipeline.solve(job, JobOptions(batches=2))
    assert "planning: per_batch" in refused.value.fix
    (tmp_path / "job.yaml").write_text((tmp_path / "job.yaml").read_text().replace("ahead", "per_batch"))
    head = pipeline.solve(job).plan
    (shared,) = head.uses.items["vit"].keys() & offered(exhausted(tmp_path, head, until=2), 1).items["vit"].keys()
    assert head.uses.feeds["vit"][shared] == 3 and offered(looking_ahead(tmp_path, head), 1).feeds["vit"][shared] == 6


def test_a_first_batch_without_images_has_room_for_later_ones(tmp_path):
    job = write_several_job(tmp_path)
    head = pipeline.solve(job, JobOptions(first_row=12)).plan  # of which no sample has any
    assert not head.uses.items["vit"] and not head.uses.items["ear"]
    step = offered(exhausted(tmp_path, head, until=2), 1)
    assert step.items["vit"] and step.first_row == 18
    assert all(name in head.groups for row in step.step.micro_batches for groups in row.values() for name in groups)


# ------------------------------------------------------------------------------------------------------ what is checked


@pytest.fixture(scope="module")
def step_and_head(tmp_path_factory) -> tuple[PlanHead, StepFile]:
    folder = tmp_path_factory.mktemp("job")
    head = several_head(folder)
    return PlanHead(head), offered(exhausted(folder, head, until=2), 1)


def moved(step: StepFile, **fields) -> StepFile:
    return with_fields(step, step=with_fields(step.step, **fields))


def rows_without(step: StepFile, module: str) -> tuple:
    return tuple({name: of for name, of in row.items() if name != module} for row in step.step.micro_batches)


EDITS: dict[str, tuple[Callable[[StepFile], StepFile], str, str]] = {
    "a reader that is in no batch": (
        lambda step: with_fields(step, feeds=step.feeds | {"vit": {**step.feeds["vit"], 4: 0}}),
        "item 4 of `vit` feeds item 0 of `llm`, and one of them is unknown",
        "(feeds.vit)",
    ),
    "an image that nobody reads": (
        lambda step: with_fields(step, feeds=step.feeds | {"vit": {}}),
        "item 4 of `vit` feeds nothing",
        "(feeds.vit)",
    ),
    "more outputs than tokens": (
        lambda step: with_fields(step, items=step.items | {"vit": {**step.items["vit"], 4: 4 * 500}}),
        "outputs of encoders stand for them",
        "(feeds)",
    ),
    "an image that no group computes": (
        lambda step: moved(step, micro_batches=rows_without(step, "vit")),
        "item 4 of `vit` is assigned nowhere",
        "(items.vit)",
    ),
    "a module that is missing": (
        lambda step: with_fields(step, items={name: of for name, of in step.items.items() if name != "ear"}),
        "has no items",
        "(items.ear)",
    ),
    "an edge that there is not": (
        lambda step: with_fields(step, feeds=step.feeds | {"eye": {0: 6}}),
        "no edge leads from `eye`",
        "(feeds.eye)",
    ),
    "a group that there is not": (
        lambda step: moved(step, micro_batches=({"llm": {"llm.dp9": (6,)}}, *step.step.micro_batches)),
        "no group is called `llm.dp9`",
        "(step.micro_batches[0])",
    ),
    "a group of another module": (
        lambda step: moved(step, micro_batches=(*step.step.micro_batches, {"ear": {"vit.dp0": (2,)}})),
        "item 2 of `ear` is assigned 2 times",
        "(items.ear)",
    ),
    "an outcome without a prediction": (lambda step: moved(step, prediction=None), "no outcome or no prediction", ""),
    "another plan's": (lambda step: with_fields(step, head="f" * 16), "follows another plan", ""),
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_step_is_refused_where_it_is_wrong(step_and_head, tmp_path, edit):
    head, step = step_and_head
    change, message, place = EDITS[edit]
    path = tmp_path / "step.yaml"
    files.write(path, change(step))
    with pytest.raises(InputError) as refused:
        head.complete_plan(files.read(path, StepFile), str(path))
    assert message in refused.value.message and str(path) in refused.value.where and refused.value.fix
    assert place in refused.value.where


def test_a_step_reads_back_as_it_was_written(step_and_head):
    head, step = step_and_head
    text = files.dump(step)
    again = files.parse(text, StepFile, "")
    assert again == step and files.dump(again) == text
    assert [*again.items] == ["llm", "vit", "ear"] and set(again.feeds) == {"vit", "ear"}
    assert head.complete_plan(again, "") == head.complete_plan(step, "")


@pytest.mark.parametrize("layouts", LAYOUTS)
@pytest.mark.every(4)
def test_memory_in_the_order_of_tasks_is_that_of_the_simulated_step(tmp_path, layouts):
    """Never less: so what may be taken before it is simulated fits when it is."""
    plan = several_head(tmp_path, MIXED, layouts, most=400)
    found = score(plan)
    in_order = found.plan_memory.in_order(found.tasks).peaks
    for peak, simulated in zip(in_order, found.memory.peaks, strict=True):
        assert peak >= simulated * (1 - 1e-12)
    assert max(in_order) == pytest.approx(max(found.memory.peaks), rel=1e-9)
    fullest = max(range(4), key=lambda rank: in_order[rank])
    device = with_fields(plan.uses.devices["cpu"], memory_gib=in_order[fullest] / 2**30)
    tight = with_fields(plan, uses=with_fields(plan.uses, devices={"cpu": device}))
    with pytest.raises(Infeasible, match="GiB"):
        require_memory_in_order(tight)
    require_memory_in_order(plan)


@pytest.mark.slow
def test_what_does_not_fit_names_its_step(tmp_path):
    """A later batch that is too much for a rank ends planning, before and where it is simulated."""
    head = several_head(tmp_path)
    inputs = inputs_of_plan(head, tmp_path)
    batch = BatchStream(inputs)[1]
    step = plan_step(replace(inputs, first_row=6), PlanHead(head), 1, batch)
    small = with_fields(head.uses.devices["cpu"], memory_gib=0.01)
    tight = PlanHead(with_fields(head, uses=with_fields(head.uses, devices={"cpu": small})))
    with pytest.raises(Infeasible, match="would hold") as refused:
        plan_step(replace(inputs, first_row=6, devices={"cpu": small}), tight, 1, batch)
    assert refused.value.where.startswith("step 1")
    with pytest.raises(Infeasible, match="would hold") as refused:
        simulate_step(inputs, tight, with_fields(step, head=tight.digest))
    assert refused.value.where.startswith("step 1")


@pytest.mark.parametrize("file", ["images.csv", "clips.csv", "rows.txt", "job.yaml"])
@pytest.mark.every(2)
def test_data_that_changed_is_refused(tmp_path, file):
    head = several_head(tmp_path)
    with (tmp_path / file).open("a") as changed:
        changed.write("\n")
    with pytest.raises(InputError, match="changed since the plan was made") as refused:
        inputs_of_plan(head, tmp_path)
    assert file in refused.value.where


@pytest.mark.parametrize("data", LENGTHS)
@pytest.mark.every(3)
def test_the_inputs_are_found_again(tmp_path, data):
    head = several_head(tmp_path, data)
    again: Plan = pipeline.plan_of(inputs_of_plan(head, tmp_path))
    assert again.steps == head.steps


@pytest.mark.slow
def test_a_batch_that_holds_too_much_is_computed_in_smaller_micro_batches(tmp_path):
    job = Path(write_several_job(tmp_path, layouts="sharded", most=400, rows=12))
    job.write_text(job.read_text().replace("llm: {dp: 4, zero: 3}", "llm: {dp: 4, zero: 3, micro_batch: 3}"))
    head = pipeline.solve(str(job), JobOptions()).plan
    inputs = replace(inputs_of_plan(head, tmp_path), first_row=12)
    batch = BatchStream(inputs)[1]
    usual = plan_step(inputs, PlanHead(head), 1, batch)
    found = score(PlanHead(head).complete_plan(usual, ""))
    device, most = head.uses.devices["cpu"], found.plan_memory.allowed_bytes(0)
    small = with_fields(device, memory_gib=0.999 * max(found.memory.peaks) / most * device.memory_gib)
    tight = PlanHead(with_fields(head, uses=with_fields(head.uses, devices={"cpu": small})))
    step = plan_step(replace(inputs, devices={"cpu": small}), tight, 1, batch)
    assert len(usual.step.micro_batches) == 1 < len(step.step.micro_batches)
    require_memory_in_order(tight.complete_plan(step, ""))
    again = assign_batch(replace(inputs, devices={"cpu": small}, batches=(batch,)), head)
    assert again.steps[0].micro_batches == step.step.micro_batches
