"""Free ranks: what is carved lies as groups may, is free long enough, and is nobody else's."""

from hypothesis import given
from hypothesis import strategies as st

from planner.costs.packing_problem import RankPool
from planner.packing.stream_fill import FreeRanks, RankSegment


@given(st.integers(1, 20), st.integers(1, 9), st.integers(0, 5), st.data())
def test_what_is_carved_and_given_back(ranks, per_node, first, data):
    """Every rank is in one group or in one piece, and what has time enough for a group and lies well is found."""
    pool = RankPool(first, ranks, per_node)
    idle, held = FreeRanks(pool, 100.0), []
    for _ in range(data.draw(st.integers(1, 12))):
        if held and data.draw(st.booleans()):
            idle.release(*held.pop(data.draw(st.integers(0, len(held) - 1))))
        degree, needed = data.draw(st.integers(1, ranks)), float(data.draw(st.integers(0, 100)))
        possible = [start for start in range(first, first + ranks) if free_for(idle, pool, start, degree, needed)]
        place = idle.allocate(degree, needed)
        assert bool(place) == bool(possible)
        if place:
            assert place.first in possible and place.ranks == degree and place.seconds_left >= needed
            held.append((place.first, degree, data.draw(st.sampled_from((place.seconds_left, place.seconds_left / 2)))))
        whole = [*(range(*span(p)) for p in idle.segments), *(range(f, f + d) for f, d, _ in held)]
        assert sorted(rank for part in whole for rank in part) == [*range(first, first + ranks)]


def free_for(idle: FreeRanks, pool: RankPool, start: int, degree: int, needed: float) -> bool:
    """Whether a group may begin here: on one piece, or from a node on over pieces of whole nodes."""
    if start + degree > pool.first + pool.ranks:
        return False
    if degree <= min(pool.per_node, pool.ranks):
        return any(
            p.seconds_left >= needed and span(p)[0] <= start and start + degree <= span(p)[1] for p in idle.segments
        )
    owner = {
        rank: p
        for p in idle.segments
        if p.seconds_left >= needed and p.first in idle.node_sizes
        for rank in range(*span(p))
    }
    return start in idle.node_sizes and all(rank in owner for rank in range(start, start + degree))


def span(piece: RankSegment) -> tuple[int, int]:
    return piece.first, piece.first + piece.ranks


def test_of_the_pieces_with_time_enough_the_one_with_least():
    idle = FreeRanks(RankPool(0, 8, 4), 10.0)
    assert idle.allocate(4, 5.0) == RankSegment(0, 4, 10.0)
    idle.release(0, 4, 6.0)
    assert idle.allocate(2, 5.0) == RankSegment(0, 2, 6.0)
    assert idle.allocate(2, 7.0) == RankSegment(4, 2, 10.0)
    assert idle.allocate(8, 1.0) is None


def test_a_group_across_nodes_has_the_time_that_all_of_them_have():
    idle = FreeRanks(RankPool(0, 8, 4), 10.0)
    idle.allocate(4, 5.0)
    idle.release(0, 4, 6.0)
    assert idle.allocate(6, 5.0) == RankSegment(0, 6, 6.0)
    assert idle.segments == [RankSegment(6, 2, 10.0)]
