"""A plan's passes as a pipeline: what its orders are simulated to take, and a bound that none of them beats."""

from random import Random

import pytest

from planner.orders import floor_of_any, search, seconds_of, times
from planner.orders.timing import fits
from planner.plan.expand import expand
from planner.plan.schedules import schedule
from planner.plan.schedules.explicit import printed
from planner.specs.base import changed
from planner.strategies import parallel_search
from planner.strategies.pipeline_order import slots_of, written
from planner.verify import pipelined
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
        assert scored.value >= floor_of_any(replica.pipeline, "step").seconds or not fits(replica.pipeline, order)
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


def test_the_bound_is_the_same_whatever_the_sequence_of_an_order(laid):
    plan = laid(ranks=4, sizes=(4096, 2048), fixed="pp: 2, tp: 2, vpp: 1, micro_batch: 1")
    kept = in_order(plan, ("F0 F1 I0 W0 I1 W1", "F0 I0 W0 F1 I1 W1"))
    mixed = in_order(plan, ("F1 F0 I1 W1 I0 W0", "F1 I1 W1 F0 I0 W0"))
    assert order_seconds(kept, pricing_of(kept), expand(kept)) > 0
    bounds = [order_seconds(plan, pricing_of(plan), expand(plan)) for plan in (kept, mixed)]
    assert bounds[0] == bounds[1]
    assert all(score(plan).value >= bounds[0] for plan in (kept, mixed))


@pytest.mark.parametrize("seed", range(6))
def test_rows_in_another_sequence_never_beat_the_bound(laid, seed):
    """Of random sequences, as rows of the step and as numbers in the order."""
    chance = Random(seed)
    plan = laid(ranks=4, sizes=(4096, 300, 3000, 900, 2000), fixed="pp: 4, vpp: 1, micro_batch: 1")
    (replica,) = pipelines(plan, pricing_of(plan), expand(plan))
    turned = chance.sample(range(5), 5)
    problem = replica.pipeline.permuted(turned)
    order = search(problem, effort=1).order
    rows = plan.steps[0].micro_batches
    moved = changed(plan.steps[0], micro_batches=tuple(rows[k] for k in turned))
    by_rows = score(in_order(changed(plan, steps=(moved,)), written(order, True)))
    slots = [[(p, turned[k], c) for p, k, c in slots_of(word, True)] for word in order]
    by_numbers = score(in_order(plan, printed(slots)))
    assert by_rows.value == pytest.approx(by_numbers.value) == pytest.approx(seconds_of(problem, order, "step"))
    assert by_rows.bound.seconds == pytest.approx(by_numbers.bound.seconds)
    assert by_rows.bound.seconds <= by_rows.value * (1 + 1e-9)


def test_of_very_many_replicas_some_bound_the_step(laid, monkeypatch):
    plan = laid(ranks=8, sizes=(4096, 2048, 300, 1024, 700, 1500, 900, 200), fixed="pp: 2, vpp: 1, cp: 1, tp: 1")
    tasks, pricing = expand(plan), pricing_of(plan)
    of_each = [floor_of_any(each.pipeline, "step").seconds for each in pipelines(plan, pricing, tasks)]
    assert len(set(of_each)) > 1
    monkeypatch.setattr(pipelined, "LOOKED_AT", 1)
    assert order_seconds(plan, pricing, tasks) in of_each
    monkeypatch.setattr(pipelined, "LOOKED_AT", len(of_each))
    assert order_seconds(plan, pricing, tasks) == max(of_each)


def test_each_replica_is_a_pipeline_of_its_own(laid):
    plan = laid(ranks=4, sizes=(4096, 2048, 3000, 1024), fixed="pp: 2, vpp: 1, micro_batch: 1, cp: 1, tp: 1")
    found = pipelines(plan, pricing_of(plan), expand(plan))
    assert len(found) == 2
    assert all(each.rows == (0, 1) for each in found)
    assert found[0].pipeline.forward != found[1].pipeline.forward
