"""Shares of devices: never slower than modules in turn, the best of all on small cases, and within a device always."""

from itertools import product
from math import inf
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner import files
from planner.costs import SharedPrices, pricing_of
from planner.errors import InputError
from planner.plan.plan_file import Plan, SharedDeviceItems
from planner.plan.task import PASS_PHASES
from planner.plan.tasks.expand import expand
from planner.scoring import passed_over, plan_doubt, score, shared_pairs, shares_text, with_score
from planner.specs.base import with_fields
from planner.specs.hardware.profile import DeviceShares, TimedPair
from planner.strategies.best import Candidate, best_candidate
from planner.strategies.sharing import ShareSearch, with_shares
from planner.strategies.spatial_sharing import best_shares
from planner.strategies.static import fitting_seconds
from tests.costs.compute.test_contention import whole
from tests.examples import examples

GOLDEN = files.read(Path(__file__).parents[1] / "golden/spatial_sharing/three-encoders/plan.yaml", Plan)
MODULES = [*GOLDEN.layouts]
ENCODERS = ("vision", "depth", "audio")


def priced(plan: Plan, **changed) -> Plan:
    """The plan with other prices of shares."""
    prices = plan.uses.prices
    shares = with_fields(prices.shares, **changed)
    return with_fields(plan, uses=with_fields(plan.uses, prices=with_fields(prices, shares=shares)))


def in_turn(**changed) -> Plan:
    return priced(whole(GOLDEN), **changed)


def every_share(steps: int):
    """All shares of all modules in so many steps, those that break the law of a micro-batch left out."""
    for counts in product(range(1, steps + 1), repeat=len(MODULES)):
        shared = {name: count / steps for name, count in zip(MODULES, counts, strict=True) if count < steps}
        if sum(shared.values()) <= 1:
            yield shared


@pytest.mark.parametrize(
    ("kappa", "gamma", "bound"),
    [
        pytest.param(2.0, 1.0, (0.5, 0.5, 0.5, 0.1), marks=pytest.mark.slow),
        pytest.param(1.3, 3.0, (0.9, 0.2, 0.6, 0.4), marks=pytest.mark.soak),
    ],
)
def test_quarters_are_the_best_of_all(kappa, gamma, bound):
    plan = in_turn(kappa=kappa, gamma=gamma, memory_shares=dict(zip(MODULES, bound, strict=True)))
    shared = SharedPrices()
    least = min(fitting_seconds(with_shares(plan, each), shared) for each in every_share(4))
    _, found, tried = best_shares(plan, 4)
    assert found == least <= fitting_seconds(plan) and tried == 54  # none; 6 pairs of 6, 4 triples of 4, all four


@pytest.mark.soak
@settings(max_examples=5)
@given(
    st.floats(1.0, 4.0),
    st.floats(0.0, 3.0),
    st.lists(st.floats(0.0, 1.0), min_size=4, max_size=4),
    st.sampled_from((1, 4)),
)
def test_shares_are_never_slower_than_modules_in_turn(kappa, gamma, bound, threads):
    memory = dict(zip(MODULES, bound, strict=True))
    plan = in_turn(kappa=kappa, gamma=gamma, memory_shares=memory, launch_threads=threads)
    shares, seconds, _ = best_shares(plan, 8)
    assert seconds <= fitting_seconds(plan)
    assert within_device(with_shares(plan, shares))


@examples(30)
@given(st.lists(st.integers(1, 8), min_size=4, max_size=4))
def test_shares_of_a_rank_are_within_a_device_at_every_time(counts):
    shares = {name: count / 8 for name, count in zip(MODULES, counts, strict=True)}
    assert within_device(with_shares(in_turn(), shares))


def within_device(plan: Plan) -> bool:
    """On the timeline, where what runs is what was simulated; shares in the plan may be more than a device together."""
    scored = score(plan)
    share = {task.id: task.share for task in scored.tasks if task.phase in PASS_PHASES}
    passes = [event for event in scored.timeline.events if event.id in share]
    for rank in range(plan.size):
        own = [event for event in passes if rank in event.ranks and event.end > event.start]
        for now in {event.start for event in own}:
            held = sum(share[event.id] for event in own if event.start <= now < event.end - 1e-12)
            if held > 1 + 1e-9:
                return False
    return True


def test_memory_bound_modules_take_three_quarters_on_halves():
    """By hand, as the formula has it: half of the time is bound by memory, and halves stream at full bandwidth."""
    plan = in_turn()
    halves = with_shares(plan, {"vision": 0.5, "depth": 0.5})
    before, after = (pricing_of(each) for each in (plan, halves))
    for task, same in zip(expand(plan), expand(halves), strict=True):
        if task.module in ("vision", "depth") and task.phase in PASS_PHASES:
            alone, beside = before.device_use(task), after.device_use(same)
            assert beside.share_seconds == pytest.approx(1.5 * alone.device_seconds)


@pytest.mark.parametrize(("threads", "gains"), [(1, False), (4, True)])
def test_launches_of_one_thread_queue(threads, gains):
    """Modules that wait for their launches gain from shares where each has a thread, and nothing where one has all."""
    plan = in_turn(launch_threads=threads, memory_shares=dict.fromkeys(MODULES, 0.5))
    timing = with_fields(plan.uses.prices.timing, layer_us=100_000.0)
    plan = with_fields(plan, uses=with_fields(plan.uses, prices=with_fields(plan.uses.prices, timing=timing)))
    shared = with_shares(plan, {"vision": 0.5, "depth": 0.5})
    before, after = fitting_seconds(plan), fitting_seconds(shared)
    if gains:
        assert after < 0.8 * before
    else:  # what is launched ahead hides how long the device takes behind its last launch
        assert 0.99 * before < after <= before
        assert {pair.bound for pair in shared_pairs(score(shared))} <= {"launch"}


def test_a_launched_pass_waits_for_those_before_it():
    plan = in_turn(launch_threads=1)
    timing = with_fields(plan.uses.prices.timing, layer_us=100_000.0)
    plan = with_fields(plan, uses=with_fields(plan.uses, prices=with_fields(plan.uses.prices, timing=timing)))
    scored = score(with_shares(plan, {"vision": 0.5, "depth": 0.5}))
    launched, pricing = 0.0, pricing_of(plan)
    order = [task for task in scored.tasks if task.phase in PASS_PHASES and 0 in task.ranks]
    starts = {event.id: event.start for event in scored.timeline.events}
    for task in order:
        assert starts[task.id] >= launched - 1e-9
        launched += pricing.pass_cost(task).host


def timed(ratio: float) -> TimedPair:
    return TimedPair(modules=("a", "b"), shares=(0.5, 0.5), alone_ms=(10.0, 10.0), ms=(20.0 / ratio, 20.0 / ratio))


@pytest.mark.slow
def test_best_takes_shares_only_where_the_gain_exceeds_the_doubt():
    base = with_score(in_turn(), "")
    shares = {"vision": 0.5, "depth": 0.5}
    plain, shared = Candidate("modality_layout", None, "step"), Candidate("spatial_sharing", None, "step")

    def chosen(**changed):
        plans = {plain: priced(base, **changed), shared: with_score(with_shares(priced(base, **changed), shares), "")}
        inputs = type("Inputs", (), {"software": base.uses.software, "job": base.uses.asked, "batches": []})()
        inputs.batches = [type("Batch", (), {"items": {0: 1, 1: 2}})()]
        return plans, best_candidate(plans, [plain], inputs)

    assumed, best = chosen()
    ratio = assumed[shared].outcome.value / base.outcome.value
    assert best == plain and ratio < 0.9 and 1 < plan_doubt(assumed[shared]) < inf
    assert "rests on an assumption" in passed_over(assumed[plain], assumed[shared], ratio)
    sure = {"source": "fitted", "pairs": (timed(1.2),), "holdout_error": 0.02}
    assert chosen(**sure)[1] == shared
    assert chosen(**sure | {"pairs": (timed(1.04),)})[1] == plain  # no gain on this device
    assert chosen(**sure | {"holdout_error": 1.0})[1] == plain
    assert "2.0 % off at most" in shares_text(chosen(**sure)[0][shared])


def test_more_modules_than_threads_are_refused():
    plan = with_shares(in_turn(launch_threads=2), dict.fromkeys(ENCODERS, 0.25))
    with pytest.raises(InputError, match="3 modules share devices, and 2 threads") as caught:
        pricing_of(plan)
    assert caught.value.where == "uses.prices.shares.launch_threads"


def test_no_more_modules_share_a_device_than_threads_launch():
    search = ShareSearch(in_turn(launch_threads=2), 2, lambda shares: 1.0 + len(shares), 4)
    assert {sum(count > 0 for count in counts) for counts in search.all_counts()} == {0, 2}
    assert search.best() == ({}, 1.0)


def test_the_decision_is_in_the_plan():
    shared = [g for micro in GOLDEN.steps[0].micro_batches for g in micro["vision"].values()]
    assert all(isinstance(each, SharedDeviceItems) and each.share < 1 for each in shared)
    without = next(each for each in GOLDEN.alternatives if each.strategy == "without_shares")
    assert without.value == pytest.approx(fitting_seconds(whole(GOLDEN)), rel=1e-6)
    assert GOLDEN.outcome.value < without.value
    assert isinstance(GOLDEN.uses.prices.shares, DeviceShares)
