"""Samples reproduce the quantiles that they are drawn from, and the same seed draws the same lengths."""

from itertools import pairwise
from math import log, sqrt

import numpy as np
import pytest

from planner.errors import InputError
from planner.specs.workload.distributions import DISTRIBUTIONS, MAX_TOKENS, draw_lengths, draw_mixture
from planner.specs.workload.length_sources import LogNormal

DRAWS = 200_000
# Of the rows that the quantiles describe; byted's follows from its published shares: 0.05 % · 2M tokens are 12.1 %.
MEANS = {"wikipedia": 1013.6, "github": 4416.1, "web": 1280.0, "byted": 0.0005 * 2**21 / 0.121}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_points_rise_from_share_0_to_1(name: str) -> None:
    shares, tokens = zip(*DISTRIBUTIONS[name].points, strict=True)
    assert shares[0] == 0 and shares[-1] == 1
    assert all(low < high for low, high in pairwise(shares))
    assert all(low < high for low, high in pairwise(tokens))


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_samples_reproduce_the_quantiles(name: str) -> None:
    lengths = np.array(draw_lengths(name, DRAWS, seed=0))
    for share, tokens in DISTRIBUTIONS[name].points:
        if 0.1 <= share <= 0.99:
            assert np.quantile(lengths, share) == pytest.approx(tokens, rel=0.03)
        # In the tail a quantile is noisy, the share below it is not: 5 standard deviations of a binomial. Rounding to
        # whole tokens moves lengths across a small quantile, so both sides of it are looked at.
        noise = 5 * sqrt(share * (1 - share) / DRAWS)
        assert np.mean(lengths < tokens) - noise <= share <= np.mean(lengths <= tokens) + noise


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_mean_is_close_to_the_known_one(name: str) -> None:
    lengths = draw_lengths(name, DRAWS, seed=0)
    assert np.mean(lengths) == pytest.approx(MEANS[name], rel=0.05)


def test_byted_has_the_published_shares_of_samples_and_tokens() -> None:
    """A million draws: 500 of 2M tokens, give or take 22, so shares of tokens err by about half a percent."""
    lengths = np.array(draw_lengths("byted", 1_000_000, seed=0), dtype=np.int64)
    k = 1024

    def tokens(least: int) -> float:
        return float(lengths[lengths >= least].sum() / lengths.sum())

    assert np.mean(lengths <= 4 * k) == pytest.approx(0.80, abs=0.002)
    assert np.mean(lengths >= 128 * k) == pytest.approx(0.01, abs=0.0005)
    assert np.mean(lengths >= 2048 * k - 1) == pytest.approx(0.0005, abs=0.0001)
    assert tokens(128 * k) == pytest.approx(0.443, abs=0.015)
    assert tokens(256 * k + 1) == pytest.approx(0.37, abs=0.015)
    assert tokens(2048 * k - 1) == pytest.approx(0.121, abs=0.015)


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_same_seed_same_lengths(name: str) -> None:
    assert draw_lengths(name, 64, seed=7) == draw_lengths(name, 64, seed=7) != draw_lengths(name, 64, seed=8)
    assert (
        draw_lengths(name, 64, seed=7) == draw_lengths(name, 128, seed=7)[:64]
    )  # a longer sample continues a shorter one
    assert all(type(length) is int and length >= 1 for length in draw_lengths(name, 64, seed=7))


def test_draws_stay_what_they_were() -> None:
    assert draw_lengths("wikipedia", 6, seed=0) == [547, 156, 59, 43, 1184, 2440]
    assert draw_lengths("web", 6, seed=0) == [295, 104, 20, 18, 1034, 2924]


def test_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(InputError) as error:
        draw_lengths("wikipdia", 1, seed=0)
    assert "wikipdia" in error.value.message
    assert all(name in error.value.fix for name in DISTRIBUTIONS)


def test_negative_seed_is_an_input_error() -> None:
    with pytest.raises(InputError, match="negative"):
        draw_lengths("web", 1, seed=-1)


def test_mix_has_the_medians_and_weights_of_its_parts() -> None:
    parts = (LogNormal(weight=3, median=100, sigma=0.1), LogNormal(weight=1, median=10_000, sigma=0.5))
    lengths = np.array(draw_mixture(parts, DRAWS, seed=0))
    long = lengths > 1000
    assert np.mean(long) == pytest.approx(0.25, abs=0.005)
    assert np.median(lengths[~long]) == pytest.approx(100, rel=0.01)
    assert np.median(lengths[long]) == pytest.approx(10_000, rel=0.01)
    assert np.std(np.log(lengths[long])) == pytest.approx(0.5, rel=0.02)
    assert draw_mixture(parts, 9, seed=4) == draw_mixture(parts, 9, seed=4) != draw_mixture(parts, 9, seed=5)


def test_mix_stays_in_bounds_and_skips_parts_without_weight() -> None:
    wild = (LogNormal(weight=1, median=2, sigma=1e300), LogNormal(weight=0, median=777, sigma=0))
    assert set(draw_mixture(wild, 1000, seed=0)) == {1, MAX_TOKENS}
    assert draw_mixture((LogNormal(weight=1, median=50, sigma=0),), 3, seed=0) == [50, 50, 50]
    assert log(MAX_TOKENS) > log(max(points.points[-1][1] for points in DISTRIBUTIONS.values()))


@pytest.mark.parametrize(
    ("part", "message"),
    [(LogNormal(weight=0, median=10, sigma=1), "weights"), (LogNormal(weight=1, median=0, sigma=1), "median")],
)
def test_mix_that_means_nothing_is_an_input_error(part: LogNormal, message: str) -> None:
    with pytest.raises(InputError, match=message):
        draw_mixture((part,), 1, seed=0)


def test_a_longer_mix_continues_a_shorter_one():
    parts = (LogNormal(weight=1.0, median=300.0, sigma=1.0), LogNormal(weight=0.2, median=9000.0, sigma=0.5))
    assert draw_mixture(parts, 500, seed=3)[:100] == draw_mixture(parts, 100, seed=3)
