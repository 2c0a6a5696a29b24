"""No order of any sequence beats the floor: each stage its own, the micro-batches of F, I and W mixed up in any way."""

from dataclasses import replace
from itertools import permutations, product
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.orders import bound_any_sequence, bound_fixed_sequence, objective_seconds, search_order
from planner.orders.any_sequence_bound import FractionalKnapsack, micro_batches_alike
from tests.examples import examples
from tests.pipelines import all_orders, labelled_fits, labelled_seconds, labelled_words, made_up, uniform_pipeline

CHANCES = st.integers(0, 2**32).map(Random)


def all_mixed_up(pipeline):
    every = [*labelled_words(pipeline.micro_batches)]
    return product(*([w for w in every if labelled_fits(pipeline, s, w)] for s in range(pipeline.stages)))


def spread(pipeline, factor):
    """The pipeline with micro-batches that differ more: the k-th takes and holds `factor`**k times as much."""

    def scaled(table):
        return tuple(tuple(value * factor**k for k, value in enumerate(of_stage)) for of_stage in table)

    held = scaled(pipeline.activations)
    caps = zip(pipeline.capacity, held, pipeline.activations, strict=True)
    return replace(
        pipeline,
        forward=scaled(pipeline.forward),
        input_grads=scaled(pipeline.input_grads),
        weight_grads=scaled(pipeline.weight_grads),
        activations=held,
        kept_for_weights=scaled(pipeline.kept_for_weights),
        capacity=tuple(cap * max(new) / max(old) for cap, new, old in caps),
    )


@pytest.mark.parametrize(("stages", "micro_batches"), [(1, 2), (1, 3), (2, 2), (3, 2)])
@pytest.mark.parametrize("factor", [1.0, 3.0])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.every(4)
def test_no_mixed_up_order_of_a_small_pipeline_beats_the_floor(seed, factor, stages, micro_batches):
    pipeline = spread(made_up(seed, stages, micro_batches), factor)
    best = min(labelled_seconds(pipeline, order) for order in all_mixed_up(pipeline))
    assert bound_any_sequence(pipeline, "step").seconds <= best


@pytest.mark.parametrize("seed", range(3))
def test_nor_any_in_a_sequence_of_its_own(seed):
    """Every permutation, and every order in it; of steps and of spans."""
    pipeline = made_up(seed, 2, 3)
    for objective in ("step", "span"):
        floor = bound_any_sequence(pipeline, objective).seconds
        for sequence in permutations(range(3)):
            turned = pipeline.permuted(sequence)
            assert floor <= min(objective_seconds(turned, order, objective) for order in all_orders(turned))


@examples(150, deadline=None)
@given(CHANCES, st.integers(1, 4), st.integers(1, 9), st.sampled_from([1.0, 1.4, 2.0, 5.0, 50.0]))
def test_no_constructed_order_of_a_random_sequence_beats_it(chance, stages, micro_batches, room):
    pipeline = made_up(chance.randrange(2**32), stages, micro_batches, room)
    sequence = chance.sample(range(micro_batches), micro_batches)
    turned = pipeline.permuted(sequence)
    letters = tuple("F" * micro_batches + "IW" * micro_batches for _ in range(stages)) if room == 50.0 else None
    found = objective_seconds(turned, letters, "step") if letters else search_order(turned, "step", 1).seconds
    assert bound_any_sequence(pipeline, "step").seconds <= found
    assert bound_any_sequence(turned, "step").seconds == pytest.approx(bound_any_sequence(pipeline, "step").seconds)


def test_the_sequence_kept_can_be_beaten_and_this_floor_says_so():
    """The floor of one sequence is above what another takes."""
    beaten = 0
    for seed in range(12):
        pipeline = spread(made_up(seed, 2, 3, 3.0), 2.0)
        kept, floor = bound_fixed_sequence(pipeline, "step").seconds, bound_any_sequence(pipeline, "step").seconds
        best = min(
            objective_seconds(turned, order, "step")
            for turned in (pipeline.permuted(sequence) for sequence in permutations(range(3)))
            for order in [search_order(turned, "step", 1).order]
        )
        assert floor <= best
        beaten += best < kept
    assert beaten


@pytest.mark.parametrize("room", [1, 2, 3, 8])
def test_alike_micro_batches_have_the_floor_of_their_sequence(room):
    pipeline = uniform_pipeline(3, 6, (1.0, 1.1, 0.7), 0.05, 2.0 * room)
    assert micro_batches_alike(pipeline)
    for objective in ("step", "span"):
        assert bound_any_sequence(pipeline, objective) == bound_fixed_sequence(pipeline, objective)


@pytest.mark.parametrize("room", [1, 2, 3, 8])
def test_hardly_unlike_ones_have_nearly_that_floor(room):
    """So that what is proven of unlike ones keeps every part of the argument."""
    pipeline = uniform_pipeline(3, 6, (1.0, 1.1, 0.7), 0.05, 2.0 * room)
    forward = tuple((*row[:-1], row[-1] * (1 + 1e-9)) for row in pipeline.forward)
    unlike = replace(pipeline, forward=forward)
    assert not micro_batches_alike(unlike)
    for objective in ("step", "span"):
        assert bound_any_sequence(unlike, objective).seconds == pytest.approx(
            bound_fixed_sequence(pipeline, objective).seconds, rel=1e-6
        )


@given(CHANCES, st.integers(1, 7), st.floats(0.0, 12.0))
def test_no_choice_that_fits_is_more_than_the_most_that_fits(chance, count, room):
    seconds, sizes = ([chance.choice((0.0, chance.uniform(0, 3))) for _ in range(count)] for _ in range(2))
    most = float(FractionalKnapsack.of(np.array(seconds), np.array(sizes)).max_seconds(np.array([room]))[0])
    best = max(
        sum(t for t, chosen in zip(seconds, choice, strict=True) if chosen)
        for choice in product((0, 1), repeat=count)
        if sum(size for size, chosen in zip(sizes, choice, strict=True) if chosen) <= room
    )
    assert best <= most + 1e-9


def test_where_stages_hold_one_micro_batch_each_waits_for_the_one_before_it():
    """Of equal bytes, all kept for W: through all stages and back, W behind it, one after the other."""
    pipeline = made_up(0, 3, 5)
    bytes_ = ((2.0,) * 5,) * 3
    pipeline = replace(
        pipeline, activations=bytes_, kept_for_weights=bytes_, capacity=(2.0,) * 3, tail_seconds=(0.0,) * 3
    )
    alone = sum(
        sum(
            row[k]
            for rows in (pipeline.forward, pipeline.input_grads, pipeline.forward_sends, pipeline.backward_sends)
            for row in rows
        )
        + pipeline.weight_grads[0][k]
        for k in range(5)
    )
    one_by_one = tuple("FIW" * 5 for _ in range(3))
    assert bound_any_sequence(pipeline, "span").seconds == pytest.approx(alone, rel=1e-6)
    assert objective_seconds(pipeline, one_by_one, "step") == pytest.approx(alone, rel=0.2)
