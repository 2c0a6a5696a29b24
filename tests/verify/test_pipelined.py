"""A plan's passes as a pipeline: what its orders are simulated to take, and a bound that none of them beats."""

from random import Random

import pytest

from planner.orders import floor_of, seconds_of, times
from planner.orders.timing import fits
from planner.plan.expand import expand
from planner.plan.schedules import schedule
from planner.specs.base import changed
from planner.strategies import parallel_search
from planner.strategies.pipeline_order import written
from planner.verify.pipelined import order_seconds, parts, pipelines
from planner.verify.score import pricing_of, score
from tests.pipelines import words
from tests.static_jobs import small_cluster, static_inputs

LETTERS = {"F": "F", "B": "IW", "I": "I", "W": "W"}


@pytest.fixture
def laid(tmp_path, monkeypatch):
    """A plan of a pipeline without anything that sends share."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def write(ranks=4, sizes=(4096, 2048, 3000, 1024, 4000, 2500), fixed="pp: 4, vpp: 1, micro_batch: 1"):
        inputs = static_inputs(tmp_path, "llama-3-8b", small_cluster(tmp_path, "h100-80gb", ranks), sizes, fixed)
        return parallel_search.plan(inputs, None)

    return write


def in_order(plan, order):
    (module,) = plan.layouts
    return changed(plan, steps=(changed(plan.steps[0], order={module: order}),))


@pytest.mark.parametrize("name", ["1f1b", "zb_h1", "zb_h2", "gpipe"])
def test_an_order_takes_what_the_simulator_says(laid, name):
    plan = laid()
    (replica,) = pipelines(plan, pricing_of(plan), expand(plan))
    order = tuple("".join(LETTERS[p] for p, _, _ in slots) for slots in schedule(name, 4, 6))
    simulated = score(in_order(plan, written(order, True)))
    assert seconds_of(replica.pipeline, order, "step") == pytest.approx(simulated.value, rel=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_what_an_order_holds_is_what_the_simulator_counts(laid, seed):
    plan, chance = laid(ranks=4, sizes=(4096, 2048, 3000), fixed="pp: 2, tp: 2, vpp: 1, micro_batch: 1"), Random(seed)
    (replica,) = pipelines(plan, pricing_of(plan), expand(plan))
    every, checked = [*words(3)], 0
    for _ in range(8):
        order = (chance.choice(every), chance.choice(every))
        if times(replica.pipeline, order) is None:
            continue
        scored = score(in_order(plan, written(order, True)))
        checked += 1
        assert scored.value >= floor_of(replica.pipeline, "step").seconds or not fits(replica.pipeline, order)
        assert scored.bound.seconds <= scored.value or not fits(replica.pipeline, order)
        assert scored.bound.by in ("order", "busiest_rank")
    assert checked


def test_where_activations_are_made_again_backward_stays_whole(laid):
    plan = laid(fixed="pp: 4, vpp: 1, micro_batch: 1, recompute: full")
    assert not parts(plan)
    (replica,) = pipelines(plan, pricing_of(plan), expand(plan))
    assert not any(map(any, replica.pipeline.weights))
    whole = pricing_of(plan)
    backwards = [whole.price(task).value for task in expand(plan) if task.phase == "B" and 0 in task.ranks]
    assert sum(replica.pipeline.inputs[0]) == pytest.approx(sum(backwards))


def test_orders_that_mix_up_micro_batches_are_not_bounded_by_those_that_do_not(laid):
    plan = laid(ranks=4, sizes=(4096, 2048), fixed="pp: 2, tp: 2, vpp: 1, micro_batch: 1")
    kept = in_order(plan, ("F0 F1 I0 W0 I1 W1", "F0 I0 W0 F1 I1 W1"))
    mixed = in_order(plan, ("F1 F0 I1 W1 I0 W0", "F1 I1 W1 F0 I0 W0"))
    assert order_seconds(kept, pricing_of(kept), expand(kept)) > 0
    assert order_seconds(mixed, pricing_of(mixed), expand(mixed)) == 0


def test_each_replica_is_a_pipeline_of_its_own(laid):
    plan = laid(ranks=4, sizes=(4096, 2048, 3000, 1024), fixed="pp: 2, vpp: 1, micro_batch: 1, cp: 1, tp: 1")
    found = pipelines(plan, pricing_of(plan), expand(plan))
    assert len(found) == 2
    assert all(each.rows == (0, 1) for each in found)
    assert found[0].pipeline.forward != found[1].pipeline.forward
