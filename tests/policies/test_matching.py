"""Two jobs on one GPU: which are packed, and that the matching is the best of all."""

from itertools import permutations
from random import Random

import numpy as np
import pytest

from planner.policies import schedule_jobs
from planner.programs import heaviest_matching
from planner.specs.base import with_fields
from planner.specs.cluster_jobs.actions_file import PolicyChoice
from tests.cluster_jobs import fleet_of, job
from tests.examples import share


def test_a_matching_is_the_heaviest_of_all():
    for seed in range(share(200)):
        draw = Random(seed)
        rows, columns = draw.randint(1, 5), draw.randint(1, 5)
        weights = np.array([[draw.choice([-1.0, 0.0, draw.random()]) for _ in range(columns)] for _ in range(rows)])
        pairs = heaviest_matching(weights)
        assert len({row for row, _ in pairs}) == len({column for _, column in pairs}) == len(pairs)
        assert all(weights[pair] > 0 for pair in pairs)
        padded = np.pad(np.maximum(weights, 0.0), ((0, columns), (0, rows)))
        best = max(
            sum(padded[row, column] for row, column in enumerate(order[:rows]))
            for order in permutations(range(rows + columns), rows)
        )
        assert sum(weights[pair] for pair in pairs) == pytest.approx(best, abs=1e-8)


def shared(name: str, submit: float, gpus: int = 1, **beside: float):
    """A job of 10 s whose model is its name, with its share of speed beside others."""
    return with_fields(job(name, submit, gpus, a=10.0), model=name, beside={"a": beside})


def ends(*jobs, gpus: int = 1, **choice):
    return schedule_jobs(jobs, fleet_of(a=gpus), PolicyChoice(place="pack", **choice)).history.ends


def test_two_jobs_that_gain_share_a_gpu():
    """At 0.8 of their speed both end after 12.5 s, and not after 10 and 20."""
    assert ends(shared("one", 0, two=0.8), shared("two", 0, one=0.8)) == pytest.approx({"one": 12.5, "two": 12.5})


def test_who_is_left_alone_has_the_gpu_to_itself():
    """The quick one is not slowed, ends after 10 s; the other has then done 5 of its 10 s."""
    assert ends(shared("one", 0, two=1.0), shared("two", 0, one=0.5)) == pytest.approx({"one": 10, "two": 15})


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (shared("one", 0, two=0.5), shared("two", 0, one=0.4)),
        (shared("one", 0), shared("two", 0, one=0.9)),
        (shared("one", 0, 2, two=0.9), shared("two", 0, 2, one=0.9)),
    ],
    ids=["they lose", "not measured", "of more GPUs than one"],
)
def test_pairs_that_lose_or_are_not_known_are_none(one, two):
    assert ends(one, two, gpus=one.gpus) == {"one": 10, "two": 20}


def test_a_guest_moves_to_the_gpu_that_becomes_free():
    """The third is packed beside the second until the first ends, at 5 s; at 0.75 it did 3.75 of its 10 s."""
    short = with_fields(job("short", 0, 1, a=5.0), model="short")
    two, three = shared("two", 0, three=0.75), shared("three", 0, two=0.75)
    assert ends(short, two, three, gpus=2) == pytest.approx({"short": 5, "two": 11.25, "three": 11.25})


def test_by_the_shortest_first_only_who_ends_more_jobs_a_second_is_packed():
    """A long guest that slows a short host to 0.6 gains less than that loses."""
    short = with_fields(job("short", 0, 1, a=10.0), model="short", beside={"a": {"long": 0.6}})
    long = with_fields(job("long", 0, 1, a=1000.0), model="long", beside={"a": {"short": 0.9}})
    assert ends(short, long, order="srtf") == {"short": 10, "long": 1010}
    assert ends(short, long)["short"] > 10
