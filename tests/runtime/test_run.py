"""The faces of a run: local processes that report and can be killed, and ranks under somebody else's launcher."""

import json
import multiprocessing
import os
import signal

import pytest

from planner.errors import RunFailed
from planner.files import write
from planner.plan.plan_file import Group, Layout, Step
from planner.runtime import RunOptions, run
from planner.specs.base import Ranks, with_fields
from tests.plans import decoder, plan_of, sharded_plan, uses
from tests.runtime.ranks_by_hand import run_ranks


def two_ranks():
    return sharded_plan(2, [[(0, 2)], [(0, 1), (1, 1)], [(1, 1)]])


def alone():
    """Gradient accumulation on one rank, without sharding."""
    return plan_of(
        1,
        uses(1, {"llm": decoder()}, {"llm": {0: 24, 1: 16}}),
        {"llm": Layout(ranks=Ranks((0,)), dp=1, zero=0, dtype="float64")},
        {"g": Group(ranks=Ranks((0,)))},
        Step(sync="step", micro_batches=({"g": (0,)}, {"g": (1,)})),
    )


@pytest.mark.slow
def test_a_run_reports_and_returns():
    heard = []
    result = run(alone(), RunOptions(steps=3, verify=True), heard.append)
    assert [(p.step, p.of, p.tokens) for p in heard] == [(1, 3, 40), (2, 3, 40), (3, 3, 40)]
    assert [(p.loss, p.seconds) for p in heard] == [(step.loss, step.seconds) for step in result.steps]
    assert result.verify.steps == 1 and result.verify.items == 2
    assert result.verify.loss_rel_err <= 1e-12 and result.verify.grad_rel_err <= 1e-12
    assert result.ranks == 1 and result.machine.startswith("1 process on ") and result.torch
    assert {m.id.split("/")[1] for m in result.steps[0].measured} == {"F", "B", "update"}


@pytest.mark.gpu
@pytest.mark.parametrize(("dtype", "allowed"), [("float32", 1e-5), ("bf16", 5e-2)])
def test_a_run_on_a_gpu(dtype, allowed):
    plan = alone()
    device = with_fields(plan.uses.devices["toy"], kind="cuda")
    result = run(
        with_fields(plan, uses=with_fields(plan.uses, devices={"toy": device})), RunOptions(3, True, dtype), print
    )
    assert result.verify.grad_rel_err <= allowed
    assert result.machine.startswith("1 x ")
    for step in result.steps:
        (memory,) = step.memory
        assert step.peak_bytes[0] == memory.peak
        assert 0 < memory.held < memory.passes and memory.held <= memory.update
        assert memory.peak <= memory.reserved and memory.outside > 0
        assert 0 < sum(m.end - m.start for m in step.measured) <= step.seconds


@pytest.mark.slow
def test_a_killed_rank_is_named_with_its_task_and_leaves_nobody_behind():
    plan = with_fields(two_ranks(), layouts={"llm": with_fields(two_ranks().layouts["llm"], dtype="float32")})
    seen = []

    def kill(progress):
        seen.append(progress.step)
        if progress.step == 3:
            (victim,) = (child for child in multiprocessing.active_children() if child.name == "rank 1")
            os.kill(victim.pid, signal.SIGKILL)

    with pytest.raises(RunFailed) as failed:
        run(plan, RunOptions(steps=100_000), kill)
    assert failed.value.message == "rank 1 failed: killed by SIGKILL"
    assert failed.value.where.startswith("rank 1, task ")  # of the model, or items or end of a step
    assert failed.value.exit_code == 5
    assert 3 <= seen[-1] < 50_000
    assert not multiprocessing.active_children()


@pytest.mark.slow
def test_under_torchrun_the_first_rank_prints_json(tmp_path):
    write(tmp_path / "plan.yaml", two_ranks())
    done, other = run_ranks(2, tmp_path / "plan.yaml", "--steps=2", "--verify", "--dtype=float64")
    assert (done.returncode, other) == (0, (0, "", "")), done.stderr
    first, second, summary = map(json.loads, done.stdout.splitlines())
    assert (first["step"], second["step"], second["of"]) == (1, 2, 2)
    assert summary["losses"] == [first["loss"], second["loss"]]
    assert summary["verify"]["grad_rel_err"] <= 1e-12
    assert (summary["peak_bytes"], summary["memory_bytes"]) == ([None, None], None)
    assert all({*sent} == {"dp", "ulysses"} and min(sent.values()) > 0 for sent in summary["sent_bytes"])


@pytest.mark.slow
@pytest.mark.parametrize(("world_size", "says"), [(1, "more ranks than there are processes"), (4, "fewer ranks")])
def test_ranks_and_processes_must_agree(tmp_path, world_size, says):
    write(tmp_path / "plan.yaml", two_ranks())
    done, *others = run_ranks(world_size, tmp_path / "plan.yaml")
    assert done.returncode == 2 and others == [(2, "", "")] * (world_size - 1)
    assert says in done.stderr and "Traceback" not in done.stderr
    assert "torchrun --nproc-per-node 2" in done.stderr


def test_a_missing_plan(tmp_path):
    (done,) = run_ranks(1, tmp_path / "none.yaml")
    assert done.returncode == 2 and "cannot read the file" in done.stderr and "Traceback" not in done.stderr
