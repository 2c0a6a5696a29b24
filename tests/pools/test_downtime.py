"""What interruptions take of a run: the interval is the best one, and the loss is that of a run drawn at random."""

import random
from datetime import date
from math import exp, inf, sqrt

import pytest

from planner.pools.downtime import Downtime, interval, slowdown
from planner.specs.hardware.cluster import Cluster, Level, RankKind
from planner.specs.hardware.profile import Device
from planner.specs.offers import stale_price, stale_prices
from planner.units import parse_scaled, scaled


def drawn_slowdown(checkpoint, restart, between, seed):
    """Seconds over those of training, of a long run that is interrupted at random."""
    chance, every = random.Random(seed), interval(checkpoint, between)
    done = spent = 0.0
    while done < 4000.0 * between:
        left, needed = chance.expovariate(1.0 / between), every + checkpoint
        while left < needed:  # again from the last checkpoint, after a restart that may be interrupted, too
            spent, needed, left = spent + left, restart + every + checkpoint, chance.expovariate(1.0 / between)
        spent, done = spent + needed, done + every
    return spent / done


@pytest.mark.parametrize(
    ("checkpoint", "restart", "between"), [(5.0, 60.0, 3600.0), (30.0, 600.0, 7200.0), (1.0, 0.0, 500.0)]
)
def test_the_loss_is_that_of_a_run_drawn_at_random(checkpoint, restart, between):
    drawn = drawn_slowdown(checkpoint, restart, between, 7)
    assert slowdown(checkpoint, restart, between) == pytest.approx(drawn, rel=0.02)


@pytest.mark.parametrize("between", [300.0, 3600.0, 1e5])
def test_no_other_interval_loses_less(between):
    checkpoint, restart = 20.0, 100.0

    def lost(every):
        return between / every * exp(restart / between) * (exp((every + checkpoint) / between) - 1.0)

    best = interval(checkpoint, between)
    assert slowdown(checkpoint, restart, between) == pytest.approx(lost(best))
    assert all(lost(best) <= lost(best * by) * (1.0 + 1e-4) for by in (0.5, 0.8, 0.95, 1.05, 1.25, 2.0))
    assert best == pytest.approx(sqrt(2.0 * checkpoint * between), rel=0.3)  # Young's


def test_more_interruptions_lose_more():
    shares = [Downtime(10.0, 600.0, failure).share for failure in (1e3, 1e4, 1e5, 1e6)]
    assert shares == sorted(shares, reverse=True) and 0.0 < shares[-1] < shares[0] < 1.0
    assert Downtime(10.0, 600.0, 1.0).share == 1.0  # and no run ends
    spot = Downtime(10.0, 600.0, 1e6, spot_s=1e4)
    assert spot.share == pytest.approx(spot.spot_share + Downtime(10.0, 600.0, 1e6).share)
    assert Downtime(10.0, 600.0, 1e6).spot_share == 0.0
    assert slowdown(0.0, 600.0, 1e4) == pytest.approx(exp(0.06)) and slowdown(1.0, 1.0, 1e-3) == inf


def test_an_old_price_is_said():
    device = Device(
        kind="cuda", memory_gib=80, tflops={"bf16": 1}, memory_gb_per_s=1, usd_per_hour=2, price_date="2025-01-31"
    )
    assert [*stale_price("gpu", None, device, date(2026, 1, 31))] == []
    (said,) = stale_price("gpu", None, device, date(2026, 2, 1))
    assert said == "the price of gpu is of 2025-01-31: more than a year old"
    assert not [*stale_price("gpu", 2.0, device, date(2030, 1, 1))]
    one, level = RankKind(kind="gpu", count=8, per_node=8), Level(name="node", ranks=16, gb_per_s=1, latency_us=1)
    cluster = Cluster(format=Cluster.FORMAT, name="owned", source="", ranks=(one, one), levels=(level,))
    assert stale_prices(cluster, {"gpu": device}, date(2026, 2, 1)) == (said,)


@pytest.mark.parametrize(
    ("text", "number"), [("1T", 1e12), ("$2e6", 2e6), ("15.6t", 15.6e12), ("300B", 3e11), ("2,000", 2e3)]
)
def test_numbers_are_typed_as_people_do(text, number):
    assert parse_scaled(text) == pytest.approx(number)
    assert parse_scaled(scaled(number)) == pytest.approx(number)
