"""The measured memory of a step equals a sum kept by hand, and the bytes that a run really holds."""

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from planner.costs.pricing import Pricing
from planner.launch.processes import launch
from planner.launch.worker import joined_world
from planner.runtime.execute.early_stop import EarlyStop
from planner.runtime.execute.training_loop import prepare_executor, train_steps
from planner.runtime.measure.gpu_memory import CudaMemoryCounter, MemorySnapshot, StepMemory, memory_counter
from planner.runtime.measure.metrics_file import metrics_line
from planner.runtime.run_options import RunOptions
from planner.runtime.run_result import RankMemory, StepResult
from planner.scoring.plan_memory import PlanMemory
from tests.runtime.test_memory_snapshot import Asked
from tests.runtime.training_worlds import spread

FEW = st.lists(st.integers(-50, 50), max_size=6)  # tensors made and freed
SLACK = 7  # that the allocator has beside them


class ByHand:
    """Counts as the allocator does."""

    def __init__(self, outside=0):
        self.now, self.most, self.given = 100, 100, outside

    def change(self, amounts):
        for amount in amounts:
            self.now = max(0, self.now + amount)
            self.most = max(self.most, self.now)

    def allocated(self):
        return self.now

    def peaks(self):
        return self.most, self.most + SLACK

    def outside(self):
        return self.given

    def reset(self):
        self.most = self.now


def running(start, amounts):
    """The sums after each change, from the first."""
    sums = [start]
    for amount in amounts:
        sums.append(max(0, sums[-1] + amount))
    return sums


@given(before=FEW, passes=FEW, closing=FEW, times=st.integers(1, 3))
def test_each_phase_has_its_own_peak(before, passes, closing, times):
    """Whatever came before the step, and in steps before."""
    counter = ByHand(outside=3)
    watch = StepMemory(counter)
    for _ in range(times):
        counter.change(before)
        held = counter.now
        watch.begin()
        counter.change(passes)
        between = counter.now
        watch.end_passes()
        counter.change(closing)
        found = watch.end()
    in_passes, in_closing = max(running(held, passes)), max(running(between, closing))
    assert found == RankMemory(held, in_passes, in_closing, max(in_passes, in_closing) + SLACK, 3)
    assert found.held <= found.passes and found.peak <= found.reserved


def test_the_cpu_is_not_counted():
    watch = StepMemory(memory_counter(torch.device("cpu")))
    watch.begin()
    watch.end_passes()
    assert watch.end() is None


def test_what_torch_is_asked_on_a_gpu(monkeypatch):
    """Of 100 bytes 20 are free and the allocator has 50: 30 are others'."""
    stats = {"allocated_bytes": {"all": {"peak": 40}}, "reserved_bytes": {"all": {"peak": 60}}}
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (20, 100))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 50)
    monkeypatch.setattr(torch.cuda, "memory_stats_as_nested_dict", lambda device: stats)
    counter = memory_counter(torch.device("cuda", 0))
    assert isinstance(counter, CudaMemoryCounter) and (counter.outside(), counter.peaks()) == (30, (40, 60))


def test_a_line_of_metrics_has_the_rank_that_held_most():
    ranks = (RankMemory(1, 5, 2, 6, 1), RankMemory(1, 2, 9, 9, 0), RankMemory(1, 8, 8, 20, 7))
    step = StepResult(1.0, 1, 1.0, (), tuple(rank.peak for rank in ranks), memory=ranks)
    line = metrics_line(1, step)
    expected = {"rank": 1, "held": 1, "passes": 2, "update": 9, "reserved": 9, "outside": 0}
    assert (line["peak_bytes"], line["memory_bytes"]) == (9, expected)


# ------------------------------------------------------------------------------------------------------- in a real run


class Live(ByHand):
    """Bytes of the weights, gradients and moments that a rank holds at the moment it is asked."""

    def __init__(self, executor):
        super().__init__()
        self.executor = executor
        self.updates = []  # that there had been, when peaks were asked for

    def allocated(self):
        held = 0
        for module, optimizer in self.executor.optimizers.items():
            for _, shard in self.executor.local.parameters(module):
                state = optimizer.state.get(shard, {}).values()
                moments = (value for value in state if value.dim())  # and not how many steps
                held += sum(local(x).nbytes for x in (shard, shard.grad, *moments) if x is not None)
        return held

    def peaks(self):
        states = (state for each in self.executor.optimizers.values() for state in each.state.values())
        self.updates.append(max((int(state.get("step", 0)) for state in states), default=0))
        return self.allocated(), self.allocated()


def local(x):
    return getattr(x, "to_local", lambda: x)()


class Log(Asked):
    """Keeps nothing but how it was asked."""

    def write(self, path):
        self.asked.append(path.name)


def watched(worker, plans, folder, options):
    """Each plan's run with bytes that are counted here, and what its history was asked."""
    found = {}
    with joined_world(worker, timeout_s=60):
        for name, plan in plans.items():
            executor, log = prepare_executor(worker, plan, options), Log()
            live = Live(executor)
            executor.memory = StepMemory(live)
            snapshot = MemorySnapshot(folder, worker.rank, log)
            with snapshot.recording():
                result = train_steps(executor, options, EarlyStop(worker, options.max_seconds), snapshot)
            found[name] = SimpleNamespace(result=result, asked=log.asked, updates=live.updates)
    return found


PLANS = {
    "ZeRO-3": spread(2, dp=2, zero=3, dtype="float32"),
    "stages": spread(2, pp=2, zero=0, dtype="float32", order="1f1b"),
    "tensor parallel": spread(2, tp=2, zero=0, dtype="float32"),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return launch(watched, 2, PLANS, tmp_path_factory.mktemp("snapshot"), RunOptions(steps=3))


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANS)
def test_a_rank_holds_what_the_plan_has_for_it(runs, name):
    """To the byte: in float32 nothing is copied, and ends of stages differ from each other."""
    plan = PLANS[name]
    uses = plan.uses
    holding = PlanMemory(plan, Pricing(uses.models, plan.layouts, uses.cluster, uses.prices, uses.devices))
    parts = [holding.static_footprint(rank) for rank in (0, 1)]
    for step in runs[0][name].result.steps:
        assert [rank.held for rank in step.memory] == [float(each.weights + each.optimizer) for each in parts]
        with_gradients = [float(each.states) for each in parts]  # a counter that sees no buffers of FSDP2
        assert [rank.passes for rank in step.memory] == with_gradients == [rank.update for rank in step.memory]
        assert step.peak_bytes == tuple(rank.peak for rank in step.memory)


@pytest.mark.slow
def test_passes_end_before_the_update_and_the_step_behind_it(runs):
    for found in runs:
        assert found["ZeRO-3"].updates == [0, 0, 0, 1, 1, 2, 2, 3]  # the warm-up has none


@pytest.mark.slow
def test_the_start_and_the_last_step_are_recorded(runs):
    for rank, found in enumerate(runs):
        assert found["ZeRO-3"].asked == ["start", "stop", "stop", "start", f"rank-{rank}.pickle"]


@pytest.mark.slow
def test_where_time_may_end_a_run_every_step_is_recorded(tmp_path):
    (found,) = launch(watched, 1, {"short": alone()}, tmp_path, RunOptions(steps=9, max_seconds=1e-9))
    assert found["short"].asked == ["start", "start", "rank-0.pickle"]


def alone():
    return spread(1, dp=1, zero=0, dtype="float32")
