"""The clock of servers: laws that hold of every run, formulas of queues, and equality with iteration by iteration."""

from collections import OrderedDict
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import InputError
from planner.simulate.serving import (
    NEVER,
    InstanceSpec,
    ServingAction,
    ServingClock,
    ServingSetup,
    work_seconds,
)
from planner.specs.service import Service
from planner.specs.workload.requests.request import Request
from tests.examples import examples
from tests.served import PRICES, WatchedClock, drawn, prices, require_served

FLEETS = {
    "coupled": ["epd", "epd"],
    "encoders": ["e", "pd", "pd"],
    "prefill": ["ep", "ep", "d"],
    "split": ["e", "p", "p", "d"],
}


def fleet(stages, each=PRICES):
    return [InstanceSpec(one, each) for one in stages]


@pytest.mark.parametrize("name", FLEETS)
@given(
    seed=st.integers(0, 10**6),
    rate=st.sampled_from([5, 30, 200]),
    setup=st.builds(
        ServingSetup,
        answers=st.just(8),
        tokens=st.just(700),
        chunked=st.booleans(),
        order=st.sampled_from(["fifo", "shortest"]),
        blocking=st.booleans(),
        encoder_cache=st.sampled_from([0, 1500, 10**6]),
        prefix_cache=st.sampled_from([0, 1500, 10**6]),
    ),
    own=st.sampled_from([PRICES, prices(kv=6000)]),
)
@examples(40)
def test_each_request_is_served_once_and_nothing_is_over_full(name, seed, rate, setup, own):
    clock = WatchedClock(drawn(60, rate, seed), fleet(FLEETS[name], own), setup)
    history = clock.run()
    require_served(history)
    for each in clock.instances:
        assert each.kv_used == each.answers_kv == 0 and not each.answers


def waits(requests, history, seconds):
    return sum(
        first - each.arrival_s - seconds(each) for each, first in zip(requests, history.first, strict=True)
    ) / len(requests)


@pytest.mark.slow
def test_one_server_waits_as_queueing_theory_says():
    """M/D/1 and M/G/1 (Pollaczek and Khinchine): λ·E[S²] / 2(1 − ρ), in the mean of many requests."""
    one = fleet(["epd"], prices(encode=None, prefill=(0.0, 1e-4, 0.0), kv=10**9))
    for sizes in ((1000,), (200, 500, 2300)):
        random, at, requests = Random(7), 0.0, []
        for number in range(80_000):
            at += random.expovariate(5.0)
            requests.append(Request(str(number), at, random.choice(sizes), 1))
        history = ServingClock(requests, one, ServingSetup(prompts=1)).run()
        seconds = [1e-4 * size for size in sizes]
        mean, square = (sum(each**power for each in seconds) / len(sizes) for power in (1, 2))
        formula = 5.0 * square / 2.0 / (1.0 - 5.0 * mean)
        assert waits(requests, history, lambda each: each.text_tokens * 1e-4) == pytest.approx(formula, rel=0.02)


def by_iteration(requests, answers, price):
    """When each answer ends on one instance that only decodes: one iteration after the other."""
    now, waiting, running, done = 0.0, [*requests], [], {}
    while waiting or running:
        if not running:
            now = max(now, waiting[0].arrival_s)
        while waiting and waiting[0].arrival_s <= now and len(running) < answers:
            each = waiting.pop(0)
            running.append([each.id, each.prompt_tokens + 1, each.output_tokens - 1])
        now += price.steps[len(running)] + price.cached_s * sum(kv for _, kv, _ in running)
        for each in running:
            each[1:] = each[1] + 1, each[2] - 1
        done |= {name: now for name, _, left in running if not left}
        running = [each for each in running if each[2]]
    return done


@given(seed=st.integers(0, 10**6), rate=st.sampled_from([2, 20]))
@examples(30)
def test_changes_of_the_batch_are_enough(seed, rate):
    """Time passes as it does iteration by iteration, where prompts and moves take none."""
    own = prices(encode=None, prefill=(0.0, 0.0, 0.0), move=(0.0, 0.0), kv=10**6)
    requests = [each for each in drawn(40, rate, seed, images=0.0) if each.output_tokens > 1]
    history = ServingClock(requests, fleet(["p", "d"], own), ServingSetup()).run()
    wanted = by_iteration(requests, 256, own.iteration)
    for each, done in zip(requests, history.done, strict=True):
        assert done == pytest.approx(wanted[each.id], rel=1e-9)


def test_nobody_waits_for_ever_under_ageing():
    """Who has most work is overtaken by nobody that comes its work over the ageing later."""
    setup = ServingSetup(order="shortest", prompts=1, ageing=0.05)
    long = Request("long", 0.001, 10_000, 1)
    others = [Request(str(number), number * 0.006, 200, 1) for number in range(3000)]  # more than is done
    requests = sorted([long, *others], key=lambda each: each.arrival_s)
    history = ServingClock(requests, fleet(["pd"], prices(encode=None)), setup).run()
    at = requests.index(long)
    latest = long.arrival_s + (work_seconds(long, PRICES) - work_seconds(others[0], PRICES)) / setup.ageing
    for each, prefill in zip(requests, history.prefill, strict=True):
        assert each.arrival_s <= latest + 1e-9 or prefill > history.prefill[at]
    assert history.prefill[at] < history.prefill[-1]


def test_encoders_idle_without_images_and_equal_images_are_encoded_once():
    text = drawn(30, 20.0, images=0.0)
    clock = ServingClock(text, fleet(FLEETS["split"]), ServingSetup())
    clock.recording = True
    assert all(clock.instances[who].stages != "e" for who, *_ in clock.run().busy)
    again = [Request(str(n), n * 1.0, 10, 5, (500,), ("same",)) for n in range(5)]
    history = ServingClock(again, fleet(FLEETS["split"]), ServingSetup(encoder_cache=1000)).run()
    assert [each != NEVER for each in history.encode] == [True, False, False, False, False]
    assert history.hits[0] == 4


def test_a_cache_hits_as_a_counted_lru_does():
    """What is used and kept, in the order in which requests come when none is in another's way."""
    requests = [each._replace(arrival_s=float(n)) for n, each in enumerate(drawn(300, 1.0, 3, 1.0, 0.7))]
    for room in (900, 2500, 10**6):
        history = ServingClock(requests, fleet(["epd"]), ServingSetup(encoder_cache=room)).run()
        kept, hits = OrderedDict(), 0
        for each in requests:
            for image in dict.fromkeys(each.image_hashes):
                hits += image in kept
                if image in kept:
                    kept.move_to_end(image)
            for image, tokens in zip(each.image_hashes, each.images, strict=True):
                if history.encode[int(each.id)] != NEVER and image not in kept and tokens <= room:
                    kept[image] = tokens
                    while sum(kept.values()) > room:
                        kept.popitem(last=False)
        assert history.hits[0] == hits


@given(seed=st.integers(0, 10**6), chunked=st.booleans())
@examples(20)
def test_a_run_is_stopped_exactly_where_too_many_are_late(seed, chunked):
    service = Service(ttft_s=0.3, tpot_s=0.008, percentile=80)
    requests = drawn(80, 25.0, seed)
    setup = ServingSetup(chunked=chunked, answers=16)
    whole = ServingClock(requests, fleet(FLEETS["coupled"]), setup).run()
    clock = ServingClock(requests, fleet(FLEETS["coupled"]), setup)
    clock.measure(service)
    assert clock.run().stopped == (whole.met(service) < 0.8 * len(requests) - 1e-9)


def turning(plan):
    """A policy that takes these actions at these times."""
    left = [*plan]

    def decide(state):
        while left and left[0][0] <= state.now:
            yield left.pop(0)[1]

    return decide


@given(seed=st.integers(0, 10**6), at=st.integers(0, 3), switch=st.sampled_from([0.0, 0.1, 5.0]))
@examples(20)
def test_instances_that_turn_lose_nothing(seed, at, switch):
    setup = ServingSetup(answers=8, switch_s=switch)
    requests = drawn(60, 30.0, seed)
    clock = WatchedClock(requests, fleet(["e", "p", "p", "d", "d"]), setup)
    plan = [
        (float(at), ServingAction((3,), "p")),
        (at + 1.0, ServingAction((1,), "e")),
        (at + 8.0, ServingAction((3,), "d")),
    ]
    history = clock.run(turning(plan))
    require_served(history)
    assert all(each.kv_used == 0 for each in clock.instances)


TWO = replace(PRICES, tp=2, kv_tokens=2 * PRICES.kv_tokens)


@given(seed=st.integers(0, 10**6), merge=st.booleans())
@examples(20)
def test_instances_that_merge_and_split_lose_nothing_and_keep_their_gpus(seed, merge):
    requests, setup = drawn(60, 30.0, seed), ServingSetup(answers=8, start_s=0.3)
    whole = [InstanceSpec("e", PRICES), *([InstanceSpec("p", PRICES)] * 2 if merge else [InstanceSpec("p", TWO)])]
    clock = WatchedClock(requests, [*whole, InstanceSpec("d", PRICES)], setup, {1: PRICES, 2: TWO})
    action = ServingAction((1, 2), "p", 2) if merge else ServingAction((1,), "p", 1)
    history = clock.run(turning([(1.0, action)]))
    require_served(history)
    after = [(each.stages, each.prices.tp) for each in clock.instances if each.stages]
    assert sorted(after) == sorted([("e", 1), ("d", 1), *([("p", 2)] if merge else [("p", 1)] * 2)])
    turned = next(at for at, *_ in history.decisions) + 0.3 + PRICES.load_s
    prefills = [at for at in history.prefill if at > 1.0]
    assert not prefills or min(prefills) >= turned - 1e-9  # all that prefill turn together


def test_actions_that_cannot_happen_are_refused():
    for action, why in (
        (ServingAction((1, 1), "p"), "different ones"),
        (ServingAction((0, 1), "p", 4), "no instances of tensor-parallel degree 4"),
        (ServingAction((9,), "p"), "no instance 9"),
        (ServingAction((0,), "p"), "no instance would have stage e"),
        (ServingAction((1,), "x"), "no stages"),
    ):
        clock = ServingClock(drawn(5, 5.0), fleet(["e", "p", "d"]), ServingSetup())
        with pytest.raises(InputError, match=why):
            clock.run(turning([(0.0, action)]))


def test_what_has_no_room_anywhere_is_said():
    clock = ServingClock([Request("big", 0.0, 9000, 5)], fleet(["pd"], replace(PRICES, kv_tokens=100)), ServingSetup())
    with pytest.raises(InputError, match="request big waits"):
        clock.run()
