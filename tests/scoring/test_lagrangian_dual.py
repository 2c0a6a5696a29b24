"""Whatever the multipliers, the dual is no more than the linear program's optimum; climbing gets near it."""

from itertools import product
from random import Random

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from planner.programs import ProgramBuilder, solve
from planner.scoring.bounds.lagrangian_dual import (
    Destination,
    DivisibleSequences,
    LagrangianDual,
    project_to_simplex,
    relaxed_seconds,
)
from tests.examples import examples

Chance = st.integers(0, 2**20).map(Random)
SLACK = 1e-6  # relative: what the solver of the program may err


@st.composite
def fluids(draw, forbidden: bool = True):
    """A few kinds of sequences, and places in one to three micro-batches: dear, full, endless or closed to some."""
    kinds, rows = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    numbers = st.integers(1, 50).map(float)
    sizes, counts = (np.array([draw(numbers) for _ in range(kinds)]) for _ in range(2))
    costs = st.sampled_from((0.0, 0.01, 0.1, 0.5, 1.0, 3.0, *([np.inf] if forbidden else [])))
    rooms = st.sampled_from((0.0, 10.0, 200.0, 1e4, np.inf))
    places = []
    for number in range(rows):
        for _ in range(draw(st.integers(1, 2))):
            each = np.array([draw(costs) for _ in range(kinds)])
            places.append(Destination(number, each, draw(st.integers(0, 20)) * 1.0, draw(rooms)))
    return DivisibleSequences(sizes, counts, np.empty((kinds, 0))), places


def optimum(fluid: DivisibleSequences, places: list[Destination]) -> float:
    """The linear program of lagrangian_dual.py; infinite when there is no way."""
    b = ProgramBuilder()
    lasts = {row: b.variable(cost=1.0) for row in {place.micro_batch for place in places}}
    flows = {
        (number, kind): b.variable()
        for (number, place), kind in product(enumerate(places), range(len(fluid.sizes)))
        if np.isfinite(place.costs[kind])
    }
    for kind, count in enumerate(fluid.counts):
        b.row({x: 1.0 for (_, k), x in flows.items() if k == kind}, float(count), float(count))
    for number, place in enumerate(places):
        mine = {kind: x for (n, kind), x in flows.items() if n == number}
        b.row(
            {**{x: float(place.costs[k]) for k, x in mine.items()}, lasts[place.micro_batch]: -1.0},
            upper=-place.fixed_seconds,
        )
        if np.isfinite(place.token_room):
            b.row({x: float(fluid.sizes[k]) for k, x in mine.items()}, upper=place.token_room)
    solution = solve(b.build())
    return solution.objective


def dual_of(fluid: DivisibleSequences, places: list[Destination]) -> LagrangianDual:
    rows = np.array([place.micro_batch for place in places])
    return LagrangianDual(
        fluid, places, np.array([place.token_room for place in places]), rows[:, None] == np.unique(rows)
    )


def multipliers(dual: LagrangianDual, chance):
    """Of times, one in sum for each micro-batch; and of tokens."""
    count = len(dual.fixed_seconds)
    times, tokens = (np.array([chance.expovariate(1.0) for _ in range(count)]) for _ in range(2))
    return dual.project(times * chance.choice((0.1, 1.0, 5.0))), tokens * chance.choice((0.0, 0.1, 1.0, 10.0))


@examples(150)
@given(fluids(), st.sampled_from((0.5, 1.0, 1.1, 3.0, 1000.0)))
def test_the_bound_is_no_more_than_the_programs_optimum(given, towards):
    """However far away the known value is that it climbs to."""
    fluid, places = given
    least = optimum(fluid, places)
    enough = towards * least if np.isfinite(least) else 1e3
    assert relaxed_seconds(fluid, places, enough) <= least + SLACK * max(1.0, least)


@examples(150)
@given(fluids(), Chance)
def test_any_multipliers_give_a_bound(given, chance):
    fluid, places = given
    least = optimum(fluid, places)
    dual = dual_of(fluid, places)
    for _ in range(10):
        value, _, _ = dual(*multipliers(dual, chance))
        assert value <= least + SLACK * max(1.0, least)


@given(fluids(), Chance)
def test_supergradients_bound_the_dual_from_above(given, chance):
    """It is concave: nowhere is it above any of its tangents."""
    dual = dual_of(*given)
    (times, tokens), (elsewhere, others) = multipliers(dual, chance), multipliers(dual, chance)
    value, by_time, by_tokens = dual(times, tokens)
    tangent = value + by_time @ (elsewhere - times) + by_tokens @ (others - tokens)
    there, _, _ = dual(elsewhere, others)
    assert there <= tangent + 1e-9 * (abs(value) + abs(tangent) + abs(there) + 1.0)


@given(fluids(forbidden=False))
def test_climbing_starts_from_what_perfect_sharing_takes_and_never_ends_below(given):
    """Equal multipliers within each micro-batch, none of tokens."""
    fluid, places = given
    assume(sum(place.token_room for place in places) >= fluid.sizes @ fluid.counts)
    alike = np.array([1.0 / sum(other.micro_batch == place.micro_batch for other in places) for place in places])
    start = np.min([share * place.costs for share, place in zip(alike, places, strict=True)], axis=0) @ fluid.counts
    start += sum(share * place.fixed_seconds for share, place in zip(alike, places, strict=True))
    assert relaxed_seconds(fluid, places, 2 * start + 1.0) >= start * (1 - 1e-12)


CLOSE = {
    "one place": ([(0, [1.0, 2.0], 3.0, np.inf)], 3 + 10 + 20),
    "two lanes that differ": ([(0, [1.0, 2.0], 0.0, np.inf), (0, [2.0, 1.0], 0.0, np.inf)], 10.0),
    "one is full": ([(0, [1.0, 1.0], 0.0, 100.0), (1, [3.0, 3.0], 0.0, np.inf)], 10 + 3 * 10),
    "spent anyway": ([(0, [1.0, 1.0], 50.0, np.inf), (0, [1.0, 1.0], 0.0, np.inf)], 50.0),
    "each closed to one": (
        [(0, [1.0, np.inf], 0.0, 100.0), (1, [3.0, 3.0], 0.0, np.inf), (2, [np.inf, 1.0], 0.0, 60.0)],
        10 + 6 + 3 * 4,
    ),
    "closed to one": ([(0, [1.0, np.inf], 0.0, np.inf), (1, [4.0, 2.0], 0.0, np.inf)], 10 + 2 * 10),
}


@pytest.mark.parametrize("name", CLOSE)
def test_climbing_gets_near_the_optimum(name):
    """Ten sequences of ten tokens and ten of ten, which differ in what they cost."""
    places, least = CLOSE[name]
    fluid = DivisibleSequences(np.array([10.0, 10.0]), np.array([10.0, 10.0]), np.empty((2, 0)))
    places = [Destination(row, np.array(costs), spent, room) for row, costs, spent, room in places]
    assert optimum(fluid, places) == pytest.approx(least)
    assert least * 0.99 <= relaxed_seconds(fluid, places, least * 1.02) <= least * (1 + 1e-9)


def test_tokens_without_room_take_forever():
    fluid = DivisibleSequences(np.array([10.0]), np.array([2.0]), np.empty((1, 0)))
    assert relaxed_seconds(fluid, [Destination(0, np.array([1.0]), 0.0, 19.0)], 1e3) == np.inf
    assert relaxed_seconds(fluid, [Destination(0, np.array([1.0]), 0.0, 20.0)], 1e3) <= 2.0
    assert (
        relaxed_seconds(
            fluid, [Destination(0, np.array([1.0]), 0.0, -1.0), Destination(0, np.array([1.0]), 0.0, 50.0)], 1e3
        )
        == np.inf
    )


@given(st.lists(st.floats(-10, 10), min_size=1, max_size=6), Chance)
def test_the_projection_is_the_nearest_point(point, chance):
    point = np.array(point)
    nearest = project_to_simplex(point)
    assert (nearest >= 0).all() and nearest.sum() == pytest.approx(1.0)
    for _ in range(20):
        weights = np.array([chance.expovariate(1.0) for _ in point])
        other = weights / weights.sum()
        assert np.linalg.norm(point - nearest) <= np.linalg.norm(point - other) + 1e-9
