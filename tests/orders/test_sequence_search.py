"""Sequences of unlike micro-batches: complete, never worse than the one given, the best where all can be tried."""

from itertools import permutations

import pytest

from planner.orders import bound_any_sequence, objective_seconds, search_order, search_sequences
from planner.orders.sequence_search import evaluate_sequences, initial_sequences
from planner.orders.slot_timing import fits_memory
from tests.pipelines import all_orders, made_up, uniform_pipeline


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.every(3)
def test_an_order_is_worth_what_it_takes_in_its_sequence_and_no_worse_than_in_the_one_given(seed):
    pipeline = made_up(seed, 3, 6, 3.0)
    made = search_sequences(pipeline, effort=1)
    turned = pipeline.permuted(made.sequence)
    assert sorted(made.sequence) == list(range(6))
    assert fits_memory(turned, made.result.order)
    assert made.result.seconds == objective_seconds(turned, made.result.order, "step")
    assert made.result.seconds <= search_order(pipeline, effort=1).seconds
    assert made.result.seconds >= bound_any_sequence(pipeline, "step").seconds


@pytest.mark.slow
def test_some_sequence_is_shorter_than_the_one_given_can_be():
    gained = [search_sequences(made_up(seed, 3, 6, 3.0), effort=1) for seed in range(4)]
    assert any(made.sequence != tuple(range(6)) for made in gained)


@pytest.mark.parametrize("seed", range(2))
def test_it_is_nearly_the_best_of_all_sequences_and_orders_of_a_small_pipeline(seed):
    pipeline = made_up(seed, 2, 3)
    every = [pipeline.permuted(sequence) for sequence in permutations(range(3))]
    best = min(objective_seconds(turned, order, "step") for turned in every for order in all_orders(turned))
    found = search_sequences(pipeline, effort=2).result.seconds
    assert best <= found * (1 + 1e-12)
    assert found <= best * 1.02


def test_micro_batches_that_are_alike_keep_their_sequence():
    made = search_sequences(uniform_pipeline(3, 6, (1.0, 1.1, 0.7), 0.05, 4.0), effort=1)
    assert made.sequence == tuple(range(6))
    assert made.effort == made.result.effort


def test_sequences_are_permutations_and_more_work_values_more_of_them():
    pipeline = made_up(2, 3, 7, 3.0)
    assert all(sorted(each) == list(range(7)) for each in initial_sequences(pipeline))
    few, many = (evaluate_sequences(pipeline, "step", work, (), 0.0, 0) for work in (0, 200_000))
    assert set(few) < set(many)
    assert min(many.values()) <= min(few.values())
    assert evaluate_sequences(pipeline, "step", 200_000, (), 0.0, 0) == many
    assert all(sorted(each) == list(range(7)) for each in many)


def test_a_permuted_pipeline_is_the_same_work():
    pipeline = made_up(0, 3, 4)
    turned = pipeline.permuted((2, 0, 3, 1))
    assert turned.stage_seconds == pytest.approx(pipeline.stage_seconds)
    assert [turned.forward[1][k] for k in range(4)] == [pipeline.forward[1][k] for k in (2, 0, 3, 1)]
    assert turned.permuted((1, 3, 0, 2)) == pipeline
