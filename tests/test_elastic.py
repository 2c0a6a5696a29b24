"""A run that loses ranks goes on without them, as a run planned for those that are left would, and grows again."""

import multiprocessing
import os
import signal
from dataclasses import replace
from itertools import combinations

import pytest

from benchmarks.elastic_faults import JOB, MODEL
from planner import files, pipeline
from planner.errors import Infeasible, InputError, RanksLost
from planner.online.planner_process import plan_on_most
from planner.plan.plan_file import Plan
from planner.runtime import RunOptions
from planner.runtime.__main__ import run_rank
from planner.specs.base import Ranks, with_fields
from planner.specs.hardware.cluster import Cluster, Level, RankKind, device_of_rank, part_of_cluster
from planner.specs.inputs import JobOptions
from planner.specs.inputs import load_job as inputs_of
from planner.workflows.elastic import (
    DEVICE_FILE,
    MOST_STEPS,
    PLAN_FILE,
    DeviceFile,
    Part,
    StepWatch,
    run_elastic,
    train_part,
)
from tests.checkpoint_files import saved_tensors

IN_PAIRS = JOB.replace("degrees: [1, 2]", "strategy: parallel_search\nfix: {layouts: {llm: {tp: 2}}}")
STEPS, KILLED_AFTER, GROWN_AFTER, CHECKPOINT = 7, 3, 4, 2
ALL = (0, 1, 2, 3)


@pytest.fixture
def case(tmp_path):
    """A function that solves a job beside its model, and returns the plan with options of an elastic run of it."""

    def solved(job=JOB, batches=2):
        (tmp_path / "model.yaml").write_text(MODEL)
        (tmp_path / "job.yaml").write_text(job)
        plan = pipeline.solve(str(tmp_path / "job.yaml"), JobOptions(batches=batches, effort=1)).plan
        files.write(tmp_path / "plan.yaml", plan)
        source, saved = str(tmp_path / "plan.yaml"), tmp_path / "saved"
        options = RunOptions(STEPS, seed=3, base=tmp_path, source=source, save=saved, elastic=True)
        return plan, replace(options, save_every=CHECKPOINT, keep=STEPS)

    return solved


# ------------------------------------------------------------------------------------------------------ which devices


def test_a_part_of_a_cluster_has_the_devices_of_its_ranks():
    kinds = tuple(RankKind(kind=kind, count=count, per_node=2) for kind, count in (("a", 2), ("b", 3)))
    level = Level(name="all", ranks=5, gb_per_s=1.0, latency_us=1.0)
    cluster = Cluster(format=Cluster.FORMAT, name="c", source="", ranks=kinds, levels=(level,))
    for ranks in (each for count in range(1, 6) for each in combinations(range(5), count)):
        part = part_of_cluster(cluster, ranks)
        assert [device_of_rank(part, at) for at in range(part.size)] == [device_of_rank(cluster, r) for r in ranks]


@pytest.mark.slow
def test_as_many_devices_go_on_as_the_job_can_use(case, tmp_path):
    case(IN_PAIRS, 1)
    inputs = inputs_of(str(tmp_path / "job.yaml"), JobOptions())
    sizes = {count: plan_on_most(inputs, Ranks(range(count)), pipeline.plan_of).size for count in (4, 3, 2)}
    assert sizes == {4: 4, 3: 2, 2: 2}  # stages of tp need pairs
    with pytest.raises(Infeasible, match="no plan of the job is for 1 of its ranks"):
        plan_on_most(inputs, Ranks((3,)), pipeline.plan_of)


def test_the_file_of_devices_is_read_again_and_again(tmp_path, caplog):
    file = DeviceFile(tmp_path, 4)
    assert file.begin(3) == Ranks((0, 1, 2)) and file.begin(4) == Ranks((0, 1, 2))  # what was left before stays
    (tmp_path / DEVICE_FILE).write_text("0,2-3")
    assert file.differs_from(Ranks((0, 1))) and not file.differs_from(Ranks((0, 2, 3)))
    for text in ("", "4", "two", "1,0", "-1", "0-99"):
        (tmp_path / DEVICE_FILE).write_text(text)
        with pytest.raises(InputError, match="is no choice of devices"):
            file.read()
        assert not file.differs_from(Ranks((1,))) and not file.differs_from(Ranks((0,)))  # a run keeps its own
    assert [text.count("no choice") for text in caplog.messages] == [1] * 6  # said once each


# ----------------------------------------------------------------------------------------------------------- refusals


def test_what_cannot_be_planned_anew_is_refused_before_it_runs(case, tmp_path, monkeypatch):
    plan, options = case()

    def refusal(plan=plan, **others):
        with pytest.raises(InputError) as raised:
            run_elastic(plan, replace(options, **others), None, None, print)
        return f"{raised.value.message}, at {raised.value.where}"

    assert refusal(save=None, save_every=None) == "nothing says where to save, at --elastic"
    many = with_fields(plan, steps=plan.steps * (MOST_STEPS // 2 + 1))
    assert refusal(many).startswith(f"all {MOST_STEPS + 2} steps of the plan would be planned anew")
    other = with_fields(plan, made=with_fields(plan.made, first_row=1))
    assert refusal(other).startswith("its job gives other samples than the plan has")
    assert "the plan's job, whose data the next batches come from, is missing" in refusal(base=tmp_path / "elsewhere")
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert refusal() == "another launcher starts the ranks, at --elastic"
    with pytest.raises(InputError, match="torchrun starts ranks again") as raised:
        run_rank(options.source, options)
    assert raised.value.where == "--elastic"


# ------------------------------------------------------------------------------------------------------ lost and grown


def rank_process(rank):
    """The process of a rank of the run that this process has launched."""
    return next(each.pid for each in multiprocessing.active_children() if each.name == f"rank {rank}")


def train(plan, options, job, devices, on_step):
    return pipeline.run(plan, options, on_step, job, devices)


@pytest.mark.slow
def test_a_killed_rank_is_left_behind_and_comes_back(case, tmp_path):
    """Of 4 ranks one is killed: 3 go on, bit for bit as a run planned for 3; then 4 again, with no step twice."""
    plan, options = case()
    saved, parts, said = tmp_path / "saved", [], []

    def injured(plan, options, job, devices, on_step):
        parts.append((plan, options, devices.numbers))

        def hear(step):
            on_step(step)
            if len(parts) == 1 and step.step == KILLED_AFTER:
                os.kill(rank_process(1), signal.SIGKILL)
            if len(parts) == 2 and step.step == GROWN_AFTER:
                (saved / DEVICE_FILE).write_text("0-3")

        return train(plan, options, job, devices, hear)

    done = run_elastic(plan, options, None, injured, said.append)
    assert [(part.size, numbers) for part, _, numbers in parts] == [(4, ALL), (3, (0, 2, 3)), (4, ALL)]
    lost, grown = done.continuations
    assert (lost.change.lost, lost.change.steps_done, lost.resumed_from) == ((1,), KILLED_AFTER, CHECKPOINT)
    assert not grown.change.lost and grown.change.steps_done == grown.resumed_from == done.ran.steps_before
    assert GROWN_AFTER <= grown.resumed_from < STEPS and len(done.ran.losses) == STEPS - grown.resumed_from
    assert "killed by SIGKILL" in said[0] and "3 ranks, devices 0,2-3, from step 2 (1 step trained again)" in said[1]

    (_, small, _), ended = parts[1], grown.resumed_from
    assert small.resume == saved and files.read(saved / PLAN_FILE, Plan) == parts[2][0]
    alone = RunOptions(ended, seed=3, resume=saved / "kept" / f"step-{CHECKPOINT}", save=tmp_path / "alone")
    pipeline.run(parts[1][0], alone, lambda _: None)
    for kind in ("weights", "exp_avg", "exp_avg_sq"):
        of_three = saved_tensors(saved / "kept" / f"step-{ended}", "llm", kind)
        of_alone = saved_tensors(tmp_path / "alone", "llm", kind)
        assert all((of_three[name] == of_alone[name]).all() for name in of_alone) and of_three.keys() == of_alone.keys()


@pytest.mark.slow
def test_where_no_ranks_can_go_on_the_error_says_what_was_lost(case, tmp_path):
    """A job of pairs has two of its devices; one is lost."""
    plan, options = case(IN_PAIRS, 1)
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / DEVICE_FILE).write_text("1,3")
    seen = []

    def loses(plan, options, job, devices, on_step):
        seen.append((plan.size, devices.numbers))
        raise RanksLost("rank 0 is gone", where="rank 0, task a", ranks=(0,))

    with pytest.raises(Infeasible) as raised:
        run_elastic(plan, options, None, loses, seen.append)
    assert "devices 1,3, from the beginning" in seen[1]
    assert seen[2:] == [(2, (1, 3)), "rank 0 is gone (at rank 0, task a)"]
    said = "rank 0 is gone (at rank 0, task a); no plan of the job is for 1 of its ranks: "
    assert raised.value.message.startswith(said) and (tmp_path / "saved" / DEVICE_FILE).read_text() == "3\n"
    last = Part(plan, options, "job.yaml", Ranks((2,)))
    with pytest.raises(RanksLost):  # nobody is left to plan for
        train_part(last, loses, DeviceFile(tmp_path, 4), StepWatch(print, None, 0))
