"""Placements are legal, never better than the bound, and of few pieces the best there are."""

from collections import defaultdict
from itertools import permutations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.placer import Lanes, Mode, Piece, Placement, Taken, place, placement_bound
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
def graphs(draw, most=4, devices=4, held=False):
    """Pieces with up to three widths, each after some of those before it."""
    pieces = []
    for index in range(draw(st.integers(1, most))):
        before = draw(st.sets(st.integers(0, index - 1), max_size=2)) if index else set()
        widths = draw(st.lists(st.integers(1, devices), min_size=1, max_size=3, unique=True))
        modes = tuple(
            Mode(
                draw(SECONDS),
                width,
                share=draw(st.sampled_from((0.25, 0.5, 1.0))) if held else 1.0,
                bytes=draw(st.sampled_from((0.0, 1.0, 2.0))) if held else 0.0,
            )
            for width in widths
        )
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
    """Every piece once, after what precedes it, with no lane above its share or its bytes at any start."""
    where = {each.piece.name: each for each in placement.placed}
    assert sorted(where) == sorted(piece.name for piece in pieces) and len(where) == len(placement.placed)
    held = defaultdict(list)  # of each lane: (start, end of the share, end of the bytes, share, bytes)
    for each in placement.placed:
        assert each.mode in each.piece.modes and len({*each.lanes}) == each.mode.width
        assert all(each.start >= where[name].end + lag - 1e-9 for name, lag in each.piece.after.items())
        freed = where[each.piece.freed_by].end if each.piece.freed_by else each.end
        for lane in each.lanes:
            held[lane].append((each.start, each.end, freed, each.mode.share, each.mode.bytes))
    for taken in lanes.taken:
        for lane in taken.lanes:
            held[lane].append((taken.start, taken.end, taken.end, taken.share, taken.bytes))
    assert {*held} <= {*range(lanes.count)}
    for spans in held.values():
        for at, *_ in spans:
            now = [each for each in spans if each[0] <= at + 1e-9]
            assert sum(share for _, end, _, share, _ in now if end > at + 1e-9) <= 1 + 1e-6
            assert sum(size for _, _, freed, _, size in now if freed > at + 1e-9) <= lanes.bytes * (1 + 1e-6)


@given(graphs())
def test_few_pieces_are_placed_as_well_as_by_brute_force(pieces):
    lanes = Lanes(4)
    found = place(pieces, [lanes])
    require_legal(found, pieces, lanes)
    assert found.seconds == pytest.approx(brute_force(pieces, 4))
    assert placement_bound(pieces, [lanes]) <= found.seconds * (1 + 1e-9)


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
    found, proven = place(pieces, [Lanes(6)]), schedule_intervals(problem, SolverLimits())
    assert proven.bound <= found.seconds * (1 + 1e-6)
    assert not proven.proven or found.seconds <= proven.bound * (1 + 1e-6)


@given(graphs(most=7, devices=6, held=True), st.data())
def test_nothing_is_exceeded_and_nothing_beats_the_bound(pieces, data):
    freed = data.draw(st.sampled_from((None, *(piece.name for piece in pieces if piece.after))))
    if freed:
        names = next(piece.after for piece in pieces if piece.name == freed)
        pieces = tuple(
            Piece(each.name, each.modes, each.after, freed_by=freed if each.name in names else None) for each in pieces
        )
    taken = (Taken(1.0, 3.5, (0, 2), bytes=1.0), Taken(6.0, 8.0, (1,), share=0.5))
    lanes = Lanes(6, per_node=3, bytes=4.0, taken=taken)
    found = place(pieces, [lanes], effort=400)
    require_legal(found, pieces, lanes)
    assert placement_bound(pieces, [lanes]) <= found.seconds * (1 + 1e-9)
    assert place(pieces, [lanes], effort=400) == found


@given(graphs(most=3, devices=3))
def test_a_device_more_never_hurts(pieces):
    ends = [place(pieces, [Lanes(count)]).seconds for count in range(3, 7)]
    assert ends == sorted(ends, reverse=True)


def test_bytes_are_held_until_another_piece_ends():
    """Two forwards whose activations do not fit together: the second waits for the first one's backward."""
    passes = [
        Piece(f"{phase}{at}", (Mode(1.0, 1, bytes=1.0 if phase == "f" else 0.0),), after, freed_by)
        for at in range(2)
        for phase, after, freed_by in (("f", {}, f"b{at}"), ("b", {f"f{at}": 0.0}, None))
    ]
    assert place(passes, [Lanes(2, bytes=1.5)]).seconds == 2.0
    assert place(passes, [Lanes(1, bytes=1.5)]).seconds == 4.0
    assert place(passes, [Lanes(1, bytes=0.5)]) is None


def test_a_piece_goes_into_the_gap_that_stands():
    """On fixed lanes between two tasks that stand, and as their neighbour with half a device."""
    lanes = Lanes(2, taken=(Taken(0.0, 1.0, (0,)), Taken(3.0, 9.0, (0,)), Taken(0.0, 9.0, (1,), share=0.5)))
    gap = Piece("gap", (Mode(2.0, (0,)),))
    half = Piece("half", (Mode(4.0, 1, share=0.5),))
    found = {each.piece.name: each for each in place([gap, half], [lanes]).placed}
    assert (found["gap"].start, found["gap"].lanes) == (1.0, (0,))
    assert (found["half"].start, found["half"].lanes) == (0.0, (1,))


def test_pieces_share_lanes_and_nodes_where_that_delays_nothing():
    """The second piece finds the four lanes of the first, though others are free as early; three fit into a node."""
    first, other = Piece("first", (Mode(1.0, 4),)), Piece("other", (Mode(1.0, 4),))
    second = Piece("second", (Mode(2.0, 3),), {"first": 0.0, "other": 0.0}, near=("other",))
    found = {each.piece.name: each.lanes for each in place([first, other, second], [Lanes(8, per_node=4)]).placed}
    assert {*found["second"]} < {*found["other"]}
    across = Lanes(4, per_node=2, taken=(Taken(0.0, 5.0, (0, 2)),))
    pair = Piece("pair", (Mode(1.0, 2),))
    assert place([pair], [across]).placed[0].lanes == (1, 3)


def test_seconds_may_depend_on_the_start_and_on_neighbours():
    """A piece that is slow while another runs waits for it, since it then ends earlier."""

    def seconds(piece, mode, start, beside):
        return mode.seconds * (5 if piece.name == "shy" and beside else 1)

    loud, shy = Piece("loud", (Mode(2.0, 1),)), Piece("shy", (Mode(1.0, 1),), {"start": 0.0})
    start = Piece("start", (Mode(0.5, 1),))
    found = place([loud, start, shy], [Lanes(2)], seconds, effort=6)
    assert found.seconds == 3.0


def test_exchanges_stand_on_links():
    """Compute and what its ranks send are on lanes of their own: one link sends one after the other."""
    passes = [Piece(f"p{at}", (Mode(1.0, (at,)),)) for at in range(2)]
    sends = [Piece(f"s{at}", (Mode(3.0, on="link"),), {f"p{at}": 0.5}) for at in range(2)]
    assert place([*passes, *sends], [Lanes(2), Lanes(1, name="link")]).seconds == 7.5


def test_what_fits_nowhere_has_no_placement():
    assert place([Piece("wide", (Mode(1.0, 3),))], [Lanes(2)]) is None
    assert place([], [Lanes(2)]).seconds == 0.0


def test_names_are_told_apart():
    with pytest.raises(ValueError, match="one name"):
        place([Piece("a", (Mode(1.0),))] * 2, [Lanes(1)])


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(4))
def test_shares_as_modes_are_within_a_twentieth_of_the_best_by_cp_sat(seed):
    """Six pieces of which each may have any share of one device in eighths, some after others."""
    from random import Random

    from ortools.sat.python import cp_model

    draws, scale = Random(seed), 1000
    pieces = []
    for index in range(6):
        compute, memory = draws.uniform(1, 5), draws.uniform(1, 5)
        shares = [count / 8 for count in range(8, 0, -1)]
        modes = tuple(Mode(round(compute / q + memory / min(2 * q, 1), 3), share=q) for q in shares)
        before = draws.sample(range(index), min(index, draws.randint(0, 1)))
        pieces.append(Piece(f"{index}", modes, {f"{each}": 0.0 for each in before}))
    model, horizon = cp_model.CpModel(), round(scale * sum(piece.modes[0].seconds for piece in pieces))
    ends, intervals, demands = {}, [], []
    for piece in pieces:
        start, end = model.new_int_var(0, horizon, "s"), model.new_int_var(0, horizon, "e")
        chosen = [model.new_bool_var("m") for _ in piece.modes]
        for mode, taken in zip(piece.modes, chosen, strict=True):
            size = round(scale * mode.seconds)
            intervals.append(model.new_optional_interval_var(start, size, end, taken, "i"))
            demands.append(round(8 * mode.share))
        model.add_exactly_one(chosen)
        for name in piece.after:
            model.add(start >= ends[name])
        ends[piece.name] = end
    model.add_cumulative(intervals, demands, 8)
    last = model.new_int_var(0, horizon, "last")
    for end in ends.values():
        model.add(last >= end)
    model.minimize(last)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers, solver.parameters.max_deterministic_time = 1, 4.0
    solver.solve(model)
    found = place(pieces, [Lanes(1)])
    assert found and found.seconds <= 1.05 * solver.objective_value / scale
