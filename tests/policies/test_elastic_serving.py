"""The policy of servers: it stays still where nothing lacks, moves to what lacks, and says every term of it."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.policies import ElasticChoice, ElasticServing
from planner.policies.elastic_serving import DecodeLoad, Load
from planner.simulate.serving import InstanceSpec, ServingSetup
from planner.specs.service import Service
from planner.specs.workload.requests.request import Request
from tests.examples import examples
from tests.served import PRICES, WatchedClock, drawn, prices, require_served

SERVICE = Service(ttft_s=1.0, tpot_s=0.02, percentile=90)
EVEN = [InstanceSpec(stage, PRICES) for stage in "eeppdd"]
CHOICE = ElasticChoice()


@given(waits=st.floats(0, 100), rate=st.floats(0, 10), arrivals=st.floats(0.1, 100), instances=st.integers(1, 20))
@examples(100)
def test_more_instances_never_lack_more(waits, rate, arrivals, instances):
    load = Load(waits, rate, arrivals)
    fewer, more = load.lack(instances, CHOICE), load.lack(instances + 1, CHOICE)
    assert fewer >= more >= 0.0
    steps = PRICES.iteration.steps
    answers = DecodeLoad(
        round(waits), 50.0 * rate, 64, steps, PRICES.iteration.cached_s, 100.0 * rate, SERVICE.tpot_s, 100.0
    )
    assert answers.lack(instances, CHOICE) >= answers.lack(instances + 1, CHOICE) >= 0.0


def test_a_light_load_moves_nothing():
    history = WatchedClock(drawn(200, 5.0), EVEN, ServingSetup()).run(ElasticServing(SERVICE))
    require_served(history)
    assert not history.decisions


@pytest.mark.parametrize("switch", [0.1, 2.0])
def test_instances_move_to_what_lacks_and_say_why(switch):
    """Images alone: encoders are too few, and whoever decodes or prefills has next to nothing to do."""
    heavy = [each._replace(images=(9000,) * 4, image_hashes=(), text_tokens=5) for each in drawn(150, 6.0, images=1.0)]
    setup = ServingSetup(switch_s=switch)
    still = WatchedClock(heavy, EVEN, setup).run()
    moved = WatchedClock(heavy, EVEN, setup).run(ElasticServing(SERVICE))
    require_served(moved)
    assert moved.moves and moved.decisions[0][1][0].stages == "e"
    assert sum(moved.first) < sum(still.first)
    for _, actions in moved.decisions:
        for each in actions:
            terms = dict(each.terms)
            assert terms["gain_s"] > CHOICE.margin * terms["cost_s"] >= 0.0 and "waiting" in each.reason
            assert all(terms[f"instances_{stage}"] >= 1 for stage in "epd")


def test_prompts_that_no_instance_prefills_in_time_have_a_role_take_on_another_degree():
    """Each alone takes longer than is promised on one GPU, and not on two."""
    one = replace(prices(kv=10**6), load_s=0.1)
    two = replace(prices(prefill=(0.003, 2.6e-6, 5e-11), kv=2 * 10**6), tp=2, load_s=0.1)
    asked = [Request(str(number), 0.6 * number, 170_000, 3) for number in range(200)]
    own, setup = [InstanceSpec(stage, one) for stage in "eppppddd"], ServingSetup(start_s=0.1)
    service = Service(ttft_s=2.0, tpot_s=0.05, percentile=90)
    moved = WatchedClock(asked, own, setup, {1: one, 2: two}).run(ElasticServing(service))
    require_served(moved)
    turns = [each for _, actions in moved.decisions for each in actions if each.tp == 2]
    assert turns and turns[0].stages == "p" and len(turns[0].instances) == 4
    terms = dict(turns[0].terms)
    assert terms["gain_s"] > CHOICE.margin * terms["cost_s"] > 0.0
    assert moved.met(service) > 0.5 * len(asked) > WatchedClock(asked, own, setup).run().met(service)
