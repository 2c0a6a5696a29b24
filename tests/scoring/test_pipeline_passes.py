"""A plan's passes as a pipeline: what its orders are simulated to take, and a bound that none of them beats."""

from functools import cache
from random import Random

import pytest

from planner.orders import bound_any_sequence, objective_seconds, search_order, slot_times
from planner.orders.slot_timing import fits_memory
from planner.plan.schedules import schedule_slots
from planner.plan.schedules.explicit import slot_lines
from planner.plan.tasks.expand import expand
from planner.scoring.bounds import pipeline_passes
from planner.scoring.bounds.pipeline_passes import order_bound_seconds, replica_pipelines, splits_backward
from planner.scoring.score import pricing_of, score
from planner.specs.base import with_fields
from planner.strategies import parallel_search
from planner.strategies.pipeline_order import numbered_slots, order_as_text
from tests.pipelines import words
from tests.static_jobs import small_cluster, static_inputs

LETTERS = {"F": "F", "B": "IW", "I": "I", "W": "W"}


@pytest.fixture(scope="module")
def laid(tmp_path_factory):
    """A plan of a pipeline without anything that sends share."""
    folder = tmp_path_factory.mktemp("jobs")

    @cache
    def write(ranks=4, sizes=(4096, 2048, 3000, 1024, 4000, 2500), fixed="pp: 4, vpp: 1, micro_batch: 1"):
        inputs = static_inputs(folder, "llama-3-8b", small_cluster(folder, "h200", ranks), sizes, fixed)
        return parallel_search.plan(inputs, None)

    return write


def in_order(plan, order):
    (module,) = plan.layouts
    return with_fields(plan, steps=(with_fields(plan.steps[0], order={module: order}),))


@pytest.mark.parametrize("name", ["1f1b", "zb_h1", "zb_h2", "gpipe"])
@pytest.mark.every(2)
def test_an_order_takes_what_the_simulator_says(laid, name):
    plan = laid()
    (replica,) = replica_pipelines(plan, pricing_of(plan), expand(plan))
    order = tuple("".join(LETTERS[p] for p, _, _ in slots) for slots in schedule_slots(name, 4, 6))
    simulated = score(in_order(plan, order_as_text(order, True)))
    assert objective_seconds(replica.pipeline, order, "step") == pytest.approx(simulated.step_seconds, rel=1e-9)


@pytest.mark.slow
@pytest.mark.every(3)
@pytest.mark.parametrize("seed", range(3))
def test_what_an_order_holds_is_what_the_simulator_counts(laid, seed):
    plan, chance = laid(ranks=4, sizes=(4096, 2048, 3000), fixed="pp: 2, tp: 2, vpp: 1, micro_batch: 1"), Random(seed)
    (replica,) = replica_pipelines(plan, pricing_of(plan), expand(plan))
    every, checked = [*words(3)], 0
    for _ in range(8):
        order = (chance.choice(every), chance.choice(every))
        if slot_times(replica.pipeline, order) is None:
            continue
        scored = score(in_order(plan, order_as_text(order, True)))
        checked += 1
        assert scored.step_seconds >= bound_any_sequence(replica.pipeline, "step").seconds or not fits_memory(
            replica.pipeline, order
        )
        assert scored.bound.seconds <= scored.step_seconds or not fits_memory(replica.pipeline, order)
        assert scored.bound.by in ("order", "busiest_rank")
    assert checked


@pytest.mark.slow
def test_where_activations_are_made_again_backward_stays_whole(laid):
    plan = laid(fixed="pp: 4, vpp: 1, micro_batch: 1, recompute: full")
    assert not splits_backward(plan)
    (replica,) = replica_pipelines(plan, pricing_of(plan), expand(plan))
    assert not any(map(any, replica.pipeline.weight_grads))
    whole = pricing_of(plan)
    backwards = [whole.price(task).value for task in expand(plan) if task.phase == "B" and 0 in task.ranks]
    assert sum(replica.pipeline.input_grads[0]) == pytest.approx(sum(backwards))


def test_the_bound_is_the_same_whatever_the_sequence_of_an_order(laid):
    plan = laid(ranks=4, sizes=(4096, 2048), fixed="pp: 2, tp: 2, vpp: 1, micro_batch: 1")
    kept = in_order(plan, ("F0 F1 I0 W0 I1 W1", "F0 I0 W0 F1 I1 W1"))
    mixed = in_order(plan, ("F1 F0 I1 W1 I0 W0", "F1 I1 W1 F0 I0 W0"))
    assert order_bound_seconds(kept, pricing_of(kept), expand(kept)) > 0
    bounds = [order_bound_seconds(plan, pricing_of(plan), expand(plan)) for plan in (kept, mixed)]
    assert bounds[0] == bounds[1]
    assert all(score(plan).step_seconds >= bounds[0] for plan in (kept, mixed))


@pytest.mark.every(6)
@pytest.mark.parametrize("seed", range(6))
def test_rows_in_another_sequence_never_beat_the_bound(laid, seed):
    """Of random sequences, as rows of the step and as numbers in the order."""
    chance = Random(seed)
    plan = laid(ranks=4, sizes=(4096, 300, 3000, 900, 2000), fixed="pp: 4, vpp: 1, micro_batch: 1")
    (replica,) = replica_pipelines(plan, pricing_of(plan), expand(plan))
    turned = chance.sample(range(5), 5)
    problem = replica.pipeline.permuted(turned)
    order = search_order(problem, effort=1).order
    rows = plan.steps[0].micro_batches
    moved = with_fields(plan.steps[0], micro_batches=tuple(rows[k] for k in turned))
    by_rows = score(in_order(with_fields(plan, steps=(moved,)), order_as_text(order, True)))
    slots = [[(p, turned[k], c) for p, k, c in numbered_slots(word, True)] for word in order]
    by_numbers = score(in_order(plan, slot_lines(slots)))
    assert (
        by_rows.step_seconds
        == pytest.approx(by_numbers.step_seconds)
        == pytest.approx(objective_seconds(problem, order, "step"))
    )
    assert by_rows.bound.seconds == pytest.approx(by_numbers.bound.seconds)
    assert by_rows.bound.seconds <= by_rows.step_seconds * (1 + 1e-9)


@pytest.mark.slow
def test_of_very_many_replicas_some_bound_the_step(laid, monkeypatch):
    plan = laid(ranks=8, sizes=(4096, 2048, 300, 1024, 700, 1500, 900, 200), fixed="pp: 2, vpp: 1, cp: 1, tp: 1")
    tasks, pricing = expand(plan), pricing_of(plan)
    of_each = [bound_any_sequence(each.pipeline, "step").seconds for each in replica_pipelines(plan, pricing, tasks)]
    assert len(set(of_each)) > 1
    monkeypatch.setattr(pipeline_passes, "LOOKED_AT", 1)
    assert order_bound_seconds(plan, pricing, tasks) in of_each
    monkeypatch.setattr(pipeline_passes, "LOOKED_AT", len(of_each))
    assert order_bound_seconds(plan, pricing, tasks) == max(of_each)


@pytest.mark.slow
def test_each_replica_is_a_pipeline_of_its_own(laid):
    plan = laid(ranks=4, sizes=(4096, 2048, 3000, 1024), fixed="pp: 2, vpp: 1, micro_batch: 1, cp: 1, tp: 1")
    found = replica_pipelines(plan, pricing_of(plan), expand(plan))
    assert len(found) == 2
    assert all(each.micro_batches == (0, 1) for each in found)
    assert found[0].pipeline.forward != found[1].pipeline.forward
