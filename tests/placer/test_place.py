"""Placements are legal, never better than the bound, and of few pieces the best there are."""

from collections import defaultdict
from itertools import pairwise, permutations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.placer import Lanes, Mode, Piece, Placement, place, placement_bound
from planner.programs.interval_scheduling import (
    IntervalProblem,
    MeasuredSpan,
    Precedence,
    Reservation,
    schedule_intervals,
)
from planner.programs.solver_answer import SolverLimits

SECONDS = st.integers(1, 12).map(float)


@st.composite
def graphs(draw, most=4, devices=4):
    """Pieces with up to three widths, each after some of those before it."""
    pieces = []
    for index in range(draw(st.integers(1, most))):
        before = draw(st.sets(st.integers(0, index - 1), max_size=2)) if index else set()
        widths = draw(st.lists(st.integers(1, devices), min_size=1, max_size=3, unique=True))
        modes = tuple(Mode(draw(SECONDS), width) for width in widths)
        after = {f"{each}": float(draw(st.integers(0, 3))) for each in sorted(before)}
        pieces.append(Piece(f"{index}", modes, after))
    return tuple(pieces)


def brute_force(pieces: tuple[Piece, ...], devices: int) -> float:
    """Least makespan over all lists and modes; a piece takes the lanes that are free first, and leaves no gap."""
    best = float("inf")
    for order, modes in product(permutations(range(len(pieces))), product(*(piece.modes for piece in pieces))):
        free, ends = [0.0] * devices, {}
        for index in order:
            piece, mode = pieces[index], modes[index]
            if not piece.after.keys() <= ends.keys():
                break
            free.sort()
            ready = max((ends[name] + lag for name, lag in piece.after.items()), default=0.0)
            ends[piece.name] = max(ready, free[mode.width - 1]) + mode.seconds
            free[: mode.width] = [ends[piece.name]] * mode.width
        else:
            best = min(best, max(ends.values()))
    return best


def require_legal(placement: Placement, pieces: tuple[Piece, ...], lanes: Lanes) -> None:
    """Every piece once, after what precedes it, with no lane that has two at a time."""
    where = {each.piece.name: each for each in placement.placed}
    assert sorted(where) == sorted(piece.name for piece in pieces) and len(where) == len(placement.placed)
    held = defaultdict(list)  # of each lane: (start, end)
    for each in placement.placed:
        assert each.mode in each.piece.modes and len({*each.lanes}) == each.mode.width
        assert all(each.start >= where[name].end + lag - 1e-9 for name, lag in each.piece.after.items())
        for lane in each.lanes:
            held[lane].append((each.start, each.end))
    assert {*held} <= {*range(lanes.count)}
    for spans in held.values():
        assert all(later >= end - 1e-9 for (_, end), (later, _) in pairwise(sorted(spans)))


@given(graphs())
def test_few_pieces_are_placed_as_well_as_by_brute_force(pieces):
    lanes = Lanes(4)
    found = place(pieces, lanes)
    require_legal(found, pieces, lanes)
    assert found.seconds == pytest.approx(brute_force(pieces, 4))
    assert placement_bound(pieces, lanes) <= found.seconds * (1 + 1e-9)


@pytest.mark.slow
@given(graphs(most=6, devices=6))
def test_constraint_programming_proves_nothing_better(pieces):
    """Of pieces in their first modes, CP-SAT says how soon they can end."""
    pieces = tuple(Piece(piece.name, piece.modes[:1], piece.after) for piece in pieces)
    every = range(len(pieces))
    problem = IntervalProblem(
        tuple(piece.modes[0].seconds for piece in pieces),
        (),
        tuple(Precedence(int(name), at, lag) for at in every for name, lag in pieces[at].after.items()),
        tuple(Reservation(at, at, 0, pieces[at].modes[0].width) for at in every),
        (6.0,),
        tuple(MeasuredSpan(None, at) for at in every),
        horizon=200.0,
    )
    found, proven = place(pieces, Lanes(6)), schedule_intervals(problem, SolverLimits())
    assert proven.bound <= found.seconds * (1 + 1e-6)
    assert not proven.proven or found.seconds <= proven.bound * (1 + 1e-6)


@given(graphs(most=7, devices=6))
def test_no_lane_has_two_pieces_at_a_time_and_nothing_beats_the_bound(pieces):
    lanes = Lanes(6, per_node=3)
    found = place(pieces, lanes, effort=400)
    require_legal(found, pieces, lanes)
    assert placement_bound(pieces, lanes) <= found.seconds * (1 + 1e-9)
    assert place(pieces, lanes, effort=400) == found


@given(graphs(most=3, devices=3))
def test_a_device_more_never_hurts(pieces):
    ends = [place(pieces, Lanes(count)).seconds for count in range(3, 7)]
    assert ends == sorted(ends, reverse=True)


def test_pieces_share_lanes_and_nodes_where_that_delays_nothing():
    """The second piece finds the four lanes of the first, though others are free as early; three fit into a node."""
    first, other = Piece("first", (Mode(1.0, 4),)), Piece("other", (Mode(1.0, 4),))
    second = Piece("second", (Mode(2.0, 3),), {"first": 0.0, "other": 0.0}, near=("other",))
    found = {each.piece.name: each.lanes for each in place([first, other, second], Lanes(8, per_node=4)).placed}
    assert {*found["second"]} < {*found["other"]}


def test_what_fits_nowhere_has_no_placement():
    assert place([Piece("wide", (Mode(1.0, 3),))], Lanes(2)) is None
    assert place([], Lanes(2)).seconds == 0.0


def test_names_are_told_apart():
    with pytest.raises(ValueError, match="one name"):
        place([Piece("a", (Mode(1.0),))] * 2, Lanes(1))
