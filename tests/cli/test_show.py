"""`planner show`: pictures to scale, at any width, with and without colours, of few ranks and of many."""

import io
import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console
from typer.testing import CliRunner

from planner.cli.app import app
from planner.cli.canvas import Canvas
from planner.cli.views import plan_picture, rank_lanes
from planner.cli.views.memory_bars import MemoryBar, bar_cells, bars_by_ranks, lines
from planner.cli.views.micro_batch_bands import crowded_shares
from planner.cli.views.rank_lanes import PassCell, column_owners, group_lanes, lane_spans, spans_by_kind
from planner.pipeline import read_plan, simulate
from planner.simulate import TaskEvent, Timeline, waits_for_modules
from planner.simulate import simulate as run
from planner.specs.base import Ranks
from planner.units import GIB
from tests.examples import examples
from tests.plan.schedules.made import ordered_plan, timeline
from tests.task_programs import programs

GOLDEN = Path(__file__).parents[1] / "golden"
PLANS = ("by_hand/encoder-in-bubbles", "by_hand/mixed-groups", "data_ranks/offload-h200x8", "sequence_groups/demo")
SECONDS = {"F": 1.0, "B": 2.0, "I": 1.0, "W": 1.0}


def lanes(timeline, columns):
    return group_lanes(spans_by_kind(timeline), timeline.step_seconds, columns)


def text_of(drawn, width: int) -> str:
    out = Console(width=width, color_system=None, file=io.StringIO(), highlight=False)
    out.print(drawn)
    return out.file.getvalue()


@pytest.fixture(scope="module")
def scored():
    found = {}
    for name in PLANS:
        plan = read_plan(GOLDEN / name / "plan.yaml")
        found[name] = plan, simulate(plan)
    return found


@pytest.mark.parametrize("width", [40, 80, 120])
@pytest.mark.parametrize("name", PLANS)
@pytest.mark.every(3)
def test_no_line_is_broken_by_the_width(scored, name, width):
    """Drawn lines stand unwrapped; what is made of words wraps where words end."""
    plan, scores = scored[name]
    drawn = "".join(text_of(each, width) for each in plan_picture.draw_plan(plan, scores, Canvas(width, plain=True)))
    wide = "".join(text_of(each, 1000) for each in plan_picture.draw_plan(plan, scores, Canvas(width, plain=True)))
    symbols = set("█▓▒░·~!")
    for line in wide.splitlines():
        if sum(map(line.count, symbols)) > len(line) / 2:
            assert cell_len(line.rstrip()) <= width and line.rstrip() in drawn
    assert all(cell_len(line) <= width for line in drawn.splitlines())
    assert str(plan.size) in drawn and "simulated" in drawn


# ------------------------------------------------------------------------------------------------------------- ranks


@examples(40)
@given(programs(), st.integers(1, 40))
def test_every_rank_is_in_one_line(program, columns):
    tasks, price = program
    found = lanes(run(tasks, price, 5), columns)
    assert Counter(rank for lane in found for rank in lane.ranks) == Counter(range(5))
    assert {len(lane.owners) for lane in found} == {columns}


@pytest.mark.parametrize("order", ["1f1b", "zb_h1"])
@pytest.mark.every(2)
def test_many_ranks_that_do_alike_have_one_line(order):
    """A replica on top of another changes the labels and nothing else."""
    few, many = (timeline(ordered_plan(4, 6, order, dp=dp), **SECONDS) for dp in (1, 64))
    assert [lane.owners for lane in lanes(many, 50)] == [lane.owners for lane in lanes(few, 50)]
    assert [len(lane.ranks) for lane in lanes(many, 50)] == [64] * 4


# ------------------------------------------------------------------------------------------------------------- passes


@pytest.mark.parametrize(
    ("order", "symbols"), [("1f1b", "█▓"), ("zb_h1", "█▒░"), ("zb_h2", "█▒░"), ("forward_only", "█")]
)
@pytest.mark.parametrize("width", [40, 80, 120])
def test_passes_differ_without_colours(order, symbols, width):
    drawn = text_of(
        rank_lanes.rank_lanes(timeline(ordered_plan(4, 6, order), **SECONDS), Canvas(width, plain=True)), width
    )
    for line in [line for line in drawn.splitlines() if line.startswith(("0", "1", "2", "3", "rank "))]:
        assert set("█▓▒░") & set(line) == set(symbols)


@examples(40)
@given(st.integers(2, 5), st.integers(2, 6), st.sampled_from(["1f1b", "zb_h1", "gpipe"]))
def test_what_takes_a_column_is_what_the_column_shows(pp, micro_batches, order):
    """To scale: with a column a second, each pass takes as many columns as it takes seconds, just where it is."""
    shown = timeline(ordered_plan(pp, micro_batches, order), **SECONDS)
    whole = round(shown.step_seconds)
    for rank in range(pp):
        (lane,) = (lane for lane in lanes(shown, whole) if rank in lane.ranks)
        expected: list = [False] * whole
        for event in shown.events:
            if rank in event.ranks and event.phase in SECONDS:
                row = event.id.split("/")[2]
                for column in range(round(event.start), round(event.end)):
                    expected[column] = PassCell(event.phase, event.module, row)
        assert [*lane.owners] == expected


@pytest.mark.parametrize("columns", [30, 61, 100])
def test_more_passes_than_columns_show_in_proportion(columns):
    ranks = Ranks((0,))
    events = [
        TaskEvent(f"m[0]/{'FBB'[at % 3]}/{at}/g", "FBB"[at % 3], "m", ranks, float(at), at + 1.0) for at in range(3000)
    ]
    spans = lane_spans(Timeline(tuple(events), 4000.0, 1), range(len(events)))
    found = Counter(owner.phase for owner in column_owners(spans, 4000.0, columns) if owner)
    assert abs(found["F"] - columns / 4) <= 1.5 and abs(found["B"] - columns / 2) <= 1.5


def test_waits_for_an_encoder_take_their_share_of_columns(scored):
    plan, scores = scored["by_hand/encoder-in-bubbles"]
    timeline = scores[0].timeline
    waits = waits_for_modules(timeline, range(plan.size))
    for ranks, spans in spans_by_kind(timeline):
        owners = column_owners(spans, timeline.step_seconds, 2000)
        shown = sum(owner.phase == "wait" for owner in owners if isinstance(owner, PassCell))
        seconds = sum(wait.end - wait.start for wait in waits[ranks[0]])
        assert abs(shown - 2000 * seconds / timeline.step_seconds) <= 2 * len(waits[ranks[0]]) + 1


# ------------------------------------------------------------------------------------------------------- memory, groups


@pytest.mark.parametrize("name", PLANS)
def test_bars_are_the_peaks_of_all_ranks(scored, name):
    plan, scores = scored[name]
    found = bars_by_ranks(plan, scores)
    assert Counter(rank for ranks in found.values() for rank in ranks) == Counter(range(plan.size))
    for bar, ranks in found.items():
        for rank in ranks:
            assert bar.peak == round(max(score.memory.peaks[rank] for score in scores) / GIB, 4)
            assert bar.states <= bar.peak


@given(st.lists(st.tuples(st.floats(0, 80), st.floats(0, 80)), min_size=1, max_size=40), st.integers(40, 120))
def test_bars_fit_whatever_the_ranks(held, width):
    """At most eight lines, none wider than the canvas; of the ranks that have none all hold less than any that has."""
    size = 1024 // len(held)
    found: dict[MemoryBar, Ranks] = {}
    for at, (states, more) in enumerate(held):
        found.setdefault(
            MemoryBar(round(states, 2), round(states + more, 2), 73.35), Ranks(range(at * size, (at + 1) * size))
        )
    drawn, hidden = lines(found, 4, Canvas(width))
    assert len(drawn) <= 8 and (hidden == 0 or len(drawn) == 8)
    assert all(cell_len(line.plain) <= width for line in drawn)
    most = max(bar.peak for bar in found)
    shown = f"{most:.2f} of 73.35" if most >= 0.1 else f"{most * 1024:.1f} MiB"
    assert any(shown in line.plain for line in drawn)


@given(st.floats(0, 100), st.floats(0, 100), st.floats(0.1, 100), st.integers(8, 100))
def test_bars_are_to_scale(states, activations, cap, wide):
    bar = MemoryBar(states, states + activations, cap)
    scale = max(bar.peak, bar.cap) / wide
    cells = Counter(symbol for symbol, _ in bar_cells(bar, scale, wide))
    assert sum(cells.values()) == wide
    assert abs(cells["█"] + cells["▓"] + cells["!"] - bar.peak / scale) <= 1
    assert abs(cells["!"] - max(0.0, bar.peak - cap) / scale) <= 1
    if bar.peak <= cap:
        assert not cells["!"] and abs(cells["█"] - states / scale) <= 1


@given(st.lists(st.tuples(st.integers(1, 9), st.floats(0, 1)), min_size=1, max_size=30), st.integers(1, 20))
def test_groups_that_share_a_column_are_as_tall_as_their_ranks_work(sizes, columns):
    placed, first = [], 0
    for size, share in sizes:
        placed.append((Ranks(range(first, first + size)), share))
        first += size
    columns = min(columns, first)
    tall = crowded_shares(placed, first, columns)
    ranks_of = Counter(rank * columns // first for rank in range(first))
    worked = sum(size * share for size, share in sizes)
    assert sum(height * ranks_of[at] for at, height in enumerate(tall)) == pytest.approx(worked)


# ----------------------------------------------------------------------------------------------------------- the verb


@pytest.mark.parametrize("columns", ["40", "120"])
def test_the_verb(columns, tmp_path):
    plan = str(GOLDEN / PLANS[0] / "plan.yaml")
    done = CliRunner().invoke(app, ["show", plan, "--svg", str(tmp_path / "p.svg")], env={"COLUMNS": columns})
    assert done.exit_code == 0, done.output
    assert "96.20 of 118.60" in done.stdout
    assert (tmp_path / "p.svg").read_text().startswith("<svg")
    said = json.loads(CliRunner().invoke(app, ["show", plan, "--json"]).stdout)
    assert said["plan"] == "encoder-in-bubbles" and len(said["memory_gib"]) == 8
