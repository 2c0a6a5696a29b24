"""The stored plans: solver-made ones come out again byte for byte, hand-written ones are taken like any other."""

from pathlib import Path

import pytest

from planner import files, pipeline
from planner.check.actions_case import decided_today, read_actions
from planner.check.case import unsourced
from planner.check.loader_case import divided_today
from planner.costs.compute.assumed_rates import ASSUMED_RATES
from planner.plan.plan_file import Plan
from planner.plan.tasks.expand import expand
from planner.scoring.bounds.plan_space import plan_space_seconds
from planner.scoring.bounds.step_bounds import SPACE
from planner.scoring.score import outcome_of, prediction_of, require_memory, score
from planner.solve_job import inputs_again
from planner.specs.base import with_fields
from planner.specs.loader import LoaderFile
from planner.why import asked_inputs

GOLDEN = Path(__file__).parent / "golden"
SOLVED = sorted(path.parent for path in GOLDEN.rglob("job.yaml"))
BY_HAND = sorted((GOLDEN / "by_hand").iterdir())
TASKS = [each for each in SOLVED if each.parent.name == "task_waves"]
BUBBLES = files.read(GOLDEN / "by_hand/encoder-in-bubbles/plan.yaml", Plan)
GAPS = files.read(GOLDEN / "by_hand/backward-in-gaps/plan.yaml", Plan)
CHAIN = files.read(GOLDEN / "by_hand/modules-in-a-chain/plan.yaml", Plan)
DEVICES = files.read(GOLDEN / "by_hand/shared-devices/plan.yaml", Plan)
MIXED = files.read(GOLDEN / "by_hand/mixed-groups/plan.yaml", Plan)


def name_of(folder: Path) -> str:
    return f"{folder.parent.name}/{folder.name}"


# Solved in seconds: `make check` solves them, too
LONG = ("eyes-16", "llama-3-8b-h100x8", "one-stage", "qwen3-30b-a3b-h100x16", "three-towers", "two-stages")


@pytest.mark.slow
@pytest.mark.parametrize(
    "folder",
    [pytest.param(each, marks=pytest.mark.soak if each.name in LONG else ()) for each in SOLVED],
    ids=name_of,
)
@pytest.mark.every(3)
def test_the_job_gives_the_stored_plan(folder, tmp_path, monkeypatch):
    """Wherever it is solved: `planner solve tests/golden/…/job.yaml -o tests/golden/…/plan.yaml` writes it anew."""
    stored = (folder / "plan.yaml").read_text(encoding="utf-8")
    plan = files.parse(stored, Plan, "plan.yaml")
    assert plan.made.strategy == folder.parent.name
    monkeypatch.chdir(tmp_path)
    assert files.dump(pipeline.plan_of(inputs_again(folder / "job.yaml", plan))) == stored


@pytest.mark.parametrize("path", sorted(GOLDEN.rglob("actions.yaml")), ids=lambda path: path.parent.name)
@pytest.mark.every(3)
def test_the_policy_takes_the_stored_decisions(path):
    """`planner check tests/golden --update` writes them anew."""
    assert files.dump(decided_today(read_actions(path), path.parent)) == path.read_text()


@pytest.mark.parametrize("path", sorted(GOLDEN.rglob("loader.yaml")), ids=lambda path: path.parent.name)
def test_the_stored_shares_are_divided_again(path):
    """`planner check tests/golden --update` writes them anew; the stages are those of the example."""
    assert files.dump(divided_today(files.read(path, LoaderFile))) == path.read_text()
    example = Path(__file__).parents[1] / "docs" / "examples" / "loaders" / "stages.yaml"
    assert with_fields(files.read(path, LoaderFile), shares=None) == files.read(example, LoaderFile)


QUICK = ("demo", "flexsp-gpt-7b", "offload-h200x8")  # solved within a second


@pytest.mark.slow
@pytest.mark.parametrize(
    "folder",
    [pytest.param(each, marks=() if each.name in QUICK else pytest.mark.soak) for each in SOLVED if each not in TASKS],
    ids=name_of,
)
@pytest.mark.every(3)
def test_a_plan_tells_its_whole_job(folder):
    """Solved from the plan alone, without the job and the files that it names, the same comes out; a plan of several
    tasks does not say the samples of each.
    """

    def decisions(plan: Plan) -> Plan:
        return with_fields(unsourced(plan), alternatives=())  # which say whose layout it is

    stored = files.read(folder / "plan.yaml", Plan)
    assert decisions(pipeline.plan_of(asked_inputs(stored))) == decisions(stored)


@pytest.mark.parametrize("folder", [*SOLVED, *BY_HAND], ids=name_of)
@pytest.mark.every(7)
def test_a_stored_plan_is_legal_and_worth_what_it_says(folder):
    plan = pipeline.read_plan(folder / "plan.yaml")
    (s,) = pipeline.simulate(plan)
    require_memory(plan, s)
    again, outcome = outcome_of(s, ""), plan.outcome
    if outcome.bound_by == SPACE:  # over all layouts, which solving the job again finds
        assert outcome.value == again.value and outcome.bound <= plan_space_seconds(plan) * (1 + 1e-8)
    else:
        assert with_fields(outcome, status=again.status, effort="") == again
    assert plan.prediction == prediction_of(s)
    assert all(not source.path.startswith("/") for source in plan.uses.sources.values())


@pytest.mark.parametrize("folder", BY_HAND, ids=name_of)
def test_written_by_hand_and_said_so(folder):
    plan = files.read(folder / "plan.yaml", Plan)
    assert (plan.outcome.status, plan.made.strategy) == ("by_hand", "by_hand")
    assert not (folder / "job.yaml").exists()
    assert files.parse(files.dump(plan), Plan, "again") == plan


# ------------------------------------------------------------------------------------------------ the mixed groups


def test_every_rank_gathers_computes_and_reduces_twice():
    for rank in range(4):
        phases = [task.phase for task in expand(MIXED) if rank in task.ranks]
        assert phases == ["gather", "F", "B", "sync", "gather", "F", "B", "sync", "update"]


# --------------------------------------------------------------------------------------------- the shared devices


def test_images_run_beside_the_decoder_as_far_as_shares_go():
    """Whole ones before it, those of the next micro-batch at its side, from when the outputs of the first are on their
    way; and nothing ever holds more than a device.
    """
    timeline, tasks = score(DEVICES).timeline, {task.id: task for task in expand(DEVICES)}
    events = {event.id: event for event in timeline.events if event.stream == "compute"}
    first, early, later = (events[f"{name}/v0-1"] for name in ("vit[0-3]/F/0", "vit[0-3]/F/1", "vit[0-3]/B/1"))
    beside = events["llm[0-3]/F/0/g0-1"]
    assert first.end <= early.start <= beside.start < beside.end < early.end
    assert later.start > events["llm[0-3]/B/1/g0-1"].start
    for rank, now in ((rank, event.start) for event in events.values() for rank in event.ranks):
        running = [event for event in events.values() if rank in event.ranks and event.start <= now < event.end]
        assert sum(tasks[event.id].share for event in running) <= 1


# ------------------------------------------------------------------------------------------ the encoder in bubbles


def of_rank(tasks, rank):
    """What one rank computes, in order: module, phase, micro-batch."""
    return [f"{t.module}.{t.phase}{t.micro_batch}" for t in tasks if rank in t.ranks and t.phase in "FB"]


def test_each_stage_follows_1f1b_with_the_encoder_where_it_was_put():
    tasks = expand(BUBBLES)
    llm = {
        0: ["F0", "F1", "F2", "F3", "B0", "B1", "B2", "B3"],
        2: ["F0", "F1", "F2", "B0", "F3", "B1", "B2", "B3"],
        4: ["F0", "F1", "B0", "F2", "B1", "F3", "B2", "B3"],
        6: ["F0", "B0", "F1", "B1", "F2", "B2", "F3", "B3"],
    }
    for first, order in llm.items():
        for rank in (first, first + 1):
            done = of_rank(tasks, rank)
            assert [name.removeprefix("llm.") for name in done if name.startswith("llm")] == order
    assert of_rank(tasks, 0)[:2] == ["vit.F0", "llm.F0"]
    assert of_rank(tasks, 2)[:2] == ["vit.F0", "llm.F0"]
    assert of_rank(tasks, 4)[:5] == ["llm.F0", "llm.F1", "vit.F1", "vit.F1", "llm.B0"]
    assert of_rank(tasks, 6)[:4] == ["llm.F0", "llm.B0", "vit.F1", "llm.F1"]


def test_items_wait_for_the_images_that_feed_them():
    by_id = {task.id: task for task in expand(BUBBLES)}
    recv = {0: "vit[24-47]/recvF/0/v0>llm", 1: "vit[24-47]/recvF/0/v0>llm", 3: "vit[24-47]/recvF/1/v1>llm"}
    for row in range(4):
        waits = [i for i in by_id[f"llm[0-19]/F/{row}/all"].after if i.startswith("vit")]
        assert waits == ([recv[row]] if row in recv else [])
    back = by_id["vit[24-47]/sendB/0/v0>llm"]
    assert back.after == ("llm[0-19]/B/0/all", "llm[0-19]/B/1/all")


def test_a_piece_runs_beside_the_send_it_names():
    timeline = score(BUBBLES).timeline
    events = {event.id: event for event in timeline.events}
    assert events["vit[0-11]/F/1/v1"].start == events["llm[40-59]/sendF/1/all"].start
    assert events["vit[0-11]/F/1/v1"].end > events["llm[40-59]/sendF/1/all"].end


def test_what_crosses_the_edge_went_through_the_projector():
    """Four patches become one token as wide as the LLM: 8192 patches are 2048 tokens of 5120 numbers of two bytes."""
    events = {event.id: event for event in score(BUBBLES).timeline.events}
    a_rank, level = 2048 * 5120 * 2 / 2, BUBBLES.uses.cluster.levels[0]
    seconds = level.latency_us * 1e-6 + a_rank / (ASSUMED_RATES.link_share * level.gb_per_s * 1e9)
    assert events["vit[24-47]/sendF/1/v1>llm"].seconds == pytest.approx(seconds)


# -------------------------------------------------------------------------------- several modules, and placed backwards


def test_gradients_come_from_all_that_read():
    by_id = {task.id: task for task in expand(CHAIN)}
    back = by_id["fuse[0-1]/sendB/0/r0>llm"]
    assert {*back.after} == {"llm[0-1]/B/0/a", "llm[0-1]/B/0/b"}  # one item at the head of two samples
    assert by_id["vit[0-3]/sendB/0/r2>fuse"].after == ("fuse[0-1]/B/0/r0", "fuse[0-1]/B/1/r1")


def test_backwards_of_the_encoder_lie_in_the_gaps():
    tasks = expand(GAPS)
    assert of_rank(tasks, 0)[-5:] == ["llm.B2", "vit.B2", "llm.B3", "llm.B4", "llm.B5"]
    assert of_rank(tasks, 2)[-3:] == ["llm.B4", "vit.B1", "llm.B5"]
    of_one = [f"{t.module}.{t.phase}{t.micro_batch}" for t in tasks if 1 in t.ranks and t.phase in "FBIW"]
    assert of_one[-4:] == ["llm.B4", "vit.I3", "llm.B5", "vit.W3"]
    bare = with_fields(GAPS, steps=(with_fields(GAPS.steps[0], order={}),))
    assert score(GAPS).timeline.step_seconds < score(bare).timeline.step_seconds
