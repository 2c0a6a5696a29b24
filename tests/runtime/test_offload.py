"""Ranks whose activations wait in host memory compute what one process does."""

import pytest
import torch

from planner.launch.processes import launch
from planner.launch.worker import joined_world
from planner.models.autograd.activation_offload import ActivationOffload, HostCopier, offloading_activations
from planner.models.build import build
from planner.models.inputs.training_items import synthetic_batch
from planner.plan.legal.plan_laws import require_legal
from planner.plan.plan_file import OffloadedItem
from planner.plan.tasks.expand import expand
from planner.runtime.execute.training_loop import prepare_executor
from planner.runtime.run_options import RunOptions
from planner.specs.base import with_fields
from tests.examples import soaked
from tests.runtime.training_worlds import DECODER, asked_for, run_all, spread

pytestmark = pytest.mark.slow

DEEP = with_fields(DECODER, layers=8)


def offloaded(plan, *ratios):
    """The plan with these shares of its items offloaded, over and over."""
    step, given = plan.steps[0], iter(ratios * 99)
    rows = tuple(
        {group: tuple(OffloadedItem(item, offload=next(given)) for item in items) for group, items in row.items()}
        for row in step.micro_batches
    )
    return with_host(with_fields(plan, steps=(with_fields(step, micro_batches=rows),)))


def by_layout(plan, ratio):
    """With this share of every item that does not say its own."""
    return with_host(with_fields(plan, layouts={"llm": with_fields(plan.layouts["llm"], offload=ratio)}))


def with_host(plan):
    devices = {name: with_fields(device, host_gb_per_s=10.0) for name, device in plan.uses.devices.items()}
    plan = with_fields(plan, uses=with_fields(plan.uses, devices=devices))
    require_legal(plan, "made up")
    return plan


PLANS = {
    "pipeline": offloaded(spread(4, DEEP, pp=2, dp=2, zero=1), 1.0, 0.5),
    "zero 3": offloaded(spread(4, dp=4, zero=3, rows=[[(0, 1), (2, 3)], [(0, 1, 2, 3)]]), 0.6),
    "full": offloaded(spread(4, DEEP, pp=2, dp=2, zero=0, recompute="full"), 1.0),
    "selective": offloaded(spread(4, dp=4, zero=3, recompute="selective"), 0.9, 0.0),
    "by the layout": by_layout(spread(4, dp=4, zero=1), 0.7),
    "by the layout, cp": by_layout(spread(4, dp=2, cp=2, zero=3, rows=[[(0, 1), (2, 3)]]), 0.7),
    "by layers": offloaded(spread(4, dp=4, zero=1, recompute={"0-1": "full", 2: "selective"}), 0.9),
}


@pytest.fixture(scope="module")
def results(request):
    return run_all(4, {name: PLANS[name] for name in asked_for(request, "name")})


@pytest.mark.parametrize("name", soaked(PLANS, ("pipeline", "by the layout, cp", "by layers")))  # soak: all
def test_loss_and_gradients_are_those_of_one_process(results, name):
    verified = results[name].verify
    assert (verified.loss_rel_err <= 1e-12, verified.grad_rel_err <= 1e-12) == (True, True), verified


def test_what_the_layout_says_holds_for_items_that_say_nothing():
    plain = spread(4, dp=4, zero=1)
    assert expand(by_layout(plain, 0.7)) == expand(offloaded(plain, 0.7)) != expand(plain)
    assert expand(by_layout(offloaded(plain, 0.2, 0.0), 0.7)) == expand(offloaded(plain, 0.2, 0.0))


def moved(worker, plan, options):
    """Bytes that each micro-batch of this rank had on the host."""
    with joined_world(worker, timeout_s=60):
        executor = prepare_executor(worker, plan, options)
        executor.step(expand(plan))
        return [flight.offload.host_bytes for flight in executor.flights.values() if flight.offload]


def test_what_moves_are_the_activations_alone_by_tokens():
    rows = [[(0,), (1,)]] * 2
    plan = offloaded(spread(2, dp=2, zero=3, rows=rows), 0.5, 0.25, 0.0, 0.0, 1.0, 1.0)
    found = launch(moved, 2, plan, RunOptions(steps=1, seed=5))
    want = []
    for task in expand(plan):
        if task.phase == "F" and any(task.offload):
            ratio = sum(share * size for share, size in zip(task.offload, task.sizes, strict=True)) / task.tokens
            offload = ActivationOffload(ratio, HostCopier(torch.device("cpu")))
            with offloading_activations(offload):
                model = build(DECODER, dtype=torch.float64)
                model(synthetic_batch(DECODER, [*zip(task.items, task.sizes, strict=True)], seed=5))
            want.append((task.ranks[0], task.micro_batch, offload.host_bytes))
    assert [size for rank in (0, 1) for size in found[rank]] == [size for *_, size in sorted(want)]
    assert len(want) == 3
