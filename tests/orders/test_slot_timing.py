"""What an order takes and holds, against a plain reading of what every slot waits for."""

from math import inf
from random import Random

import pytest

from planner.orders import objective_seconds, peak_activations, slot_times
from planner.orders.anneal import stage_order_fits
from planner.orders.slot_timing import latest_starts, stage_spans
from tests.pipelines import made_up, uniform_pipeline, words


def random_orders(seed, pipeline, count=20):
    chance, every = Random(seed), [*words(pipeline.micro_batches)]
    return [tuple(chance.choice(every) for _ in range(pipeline.stages)) for _ in range(count)]


def numbered(word):
    done = dict.fromkeys("FIW", 0)
    for letter in word:
        yield letter, done[letter]
        done[letter] += 1


def slow_starts(pipeline, order):
    """Starts raised until nothing is too early: the definition, slot by slot."""
    tables = {"F": pipeline.forward, "I": pipeline.input_grads, "W": pipeline.weight_grads}
    start = {(s, *slot): 0.0 for s, word in enumerate(order) for slot in numbered(word)}
    end = lambda s, letter, k: start[s, letter, k] + tables[letter][s][k]  # noqa: E731
    for _ in range(len(start) + 1):
        before = dict(start)
        for s, word in enumerate(order):
            free = 0.0
            for letter, k in numbered(word):
                ready = [free]
                if letter == "F" and s:
                    ready.append(end(s - 1, "F", k) + pipeline.forward_sends[s - 1][k])
                if letter == "I":
                    last = s == pipeline.stages - 1
                    ready.append(end(s, "F", k) if last else end(s + 1, "I", k) + pipeline.backward_sends[s][k])
                start[s, letter, k] = max(ready)
                free = end(s, letter, k)
        if start == before:
            return start
    return None


@pytest.mark.parametrize("seed", range(4))
def test_starts_are_the_earliest_that_everything_waited_for_allows(seed):
    pipeline = made_up(seed, 3, 3)
    for order in random_orders(seed, pipeline):
        found, plain = slot_times(pipeline, order), slow_starts(pipeline, order)
        assert (found is None) == (plain is None)
        if found:
            for s, word in enumerate(order):
                assert found.starts[s] == pytest.approx([plain[(s, *slot)] for slot in numbered(word)])


def test_an_order_that_waits_for_itself_takes_for_ever():
    pipeline = uniform_pipeline(1, 2, (1, 1, 1))
    assert slot_times(pipeline, ("IFWFIW",)) is None
    assert slot_times(pipeline, ("FWIFIW",)) is None
    assert objective_seconds(pipeline, ("IFWFIW",), "step") == inf


def test_one_stage_works_without_a_break():
    pipeline = made_up(1, 1, 4)
    for word in list(words(4))[::50]:
        assert objective_seconds(pipeline, (word,), "span") == pytest.approx(pipeline.stage_seconds[0])
        assert objective_seconds(pipeline, (word,), "step") == pytest.approx(
            pipeline.stage_seconds[0] + pipeline.tail_seconds[0]
        )


@pytest.mark.parametrize("seed", range(4))
def test_late_slots_push_nothing_and_a_span_lies_between_work_and_step(seed):
    pipeline = made_up(seed, 3, 4)
    for order in random_orders(seed, pipeline):
        found = slot_times(pipeline, order)
        if found is None:
            continue
        late = latest_starts(pipeline, order, found.ends)
        assert all(start >= began[0] - 1e-9 for start, began in zip(late, found.starts, strict=True))
        for span, work, end in zip(
            stage_spans(pipeline, order, found), pipeline.stage_seconds, found.ends, strict=True
        ):
            assert work - 1e-9 <= span <= end + 1e-9


def test_1f1b_takes_what_its_closed_form_says():
    """(m + p − 1)·(F + B) for equal stages without transfers (arXiv 2104.04473, section 2.2)."""
    p, m, (f, i, w) = 4, 9, (2.0, 1.5, 1.25)
    pipeline = uniform_pipeline(p, m, (f, i + w, 0.0))
    order = tuple(
        "F" * min(m, p - s - 1) + "FIW" * (m - min(m, p - s - 1)) + "IW" * min(m, p - s - 1) for s in range(p)
    )
    assert objective_seconds(pipeline, order, "step") == pytest.approx((m + p - 1) * (f + i + w))


def test_what_is_held_is_a_running_sum():
    pipeline = uniform_pipeline(1, 3, (1, 1, 1), memory=(5.0, 2.0))
    assert peak_activations(pipeline, ("FFFIIIWWW",), 0) == 15
    assert peak_activations(pipeline, ("FIFIFIWWW",), 0) == 2 + 2 + 5
    assert peak_activations(pipeline, ("FIWFIWFIW",), 0) == 5


@pytest.mark.parametrize("seed", range(3))
def test_a_lawful_word_is_one_that_fits_and_has_every_pass_behind_the_one_before(seed):
    pipeline, chance = made_up(seed, 1, 3), Random(seed)
    every = set(words(3))
    for _ in range(200):
        word = "".join(chance.sample("FFFIIIWWW", 9))
        fits = word in every and peak_activations(pipeline, (word,), 0) <= pipeline.capacity[0] * (1 + 1e-9)
        assert stage_order_fits(pipeline, 0, word) == fits
