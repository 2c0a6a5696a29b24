"""Bars of a run: what they say on a terminal of 80 columns, from the first step to the last."""

import io
import re
from types import SimpleNamespace

import pytest
from rich.console import Console

from planner.cli import progress
from planner.cli.views import demo_screen
from planner.runtime.run_options import Progress
from tests.plans import sharded_plan

SOLVED = SimpleNamespace(plan=sharded_plan(2, [[(0, 2)]]))


@pytest.fixture
def terminal(monkeypatch):
    """Its bars, drawn once for each step and once more at the end."""
    out = Console(width=80, force_terminal=True, color_system=None, file=io.StringIO(), highlight=False)
    monkeypatch.setattr(progress, "console", lambda stderr: out)
    monkeypatch.setattr(demo_screen, "console", lambda stderr: out)
    return lambda: [re.sub(r"\x1b\[[?\d;]*\w", "", line).rstrip() for line in re.split("[\r\n]", out.file.getvalue())]


def steps(on_step, count):
    for step in range(1, count + 1):
        on_step(Progress(step, count, 10.1234, 23456, 1.5))


def test_the_bar_of_a_run_ends_on_its_last_step(terminal):
    plan = SOLVED.plan
    with progress.training_bar(plan) as on_step:
        steps(on_step, 2)
    last = next(line for line in reversed(terminal()) if "steps" in line)
    assert "2/2 steps" in last and "loss 10.1234" in last and "15,637 tokens/s" in last
    assert "…" not in last and "3/2" not in "".join(terminal())


def test_long_runs_have_room_for_their_numbers(terminal):
    with progress.training_bar(SOLVED.plan) as on_step:
        on_step(Progress(1000, 1000, 10.1234, 234567, 12.5))
    assert any("1000/1000 steps" in line and "18,765 tokens/s" in line and "…" not in line for line in terminal())


def test_the_story_counts_steps_from_one_and_shows_the_time_left(terminal):
    with demo_screen.demo_printer(False, demo_screen.CHAPTERS, demo_screen.stage_lines) as teller:
        steps(teller.training(SOLVED), 1)
        teller.bars.refresh()
        first = next(line for line in reversed(terminal()) if "step 1/1" in line)
    assert "loss 10.1234" in first and "step 2" not in "".join(terminal())
    assert re.search(r"\d:\d\d:\d\d$", first) and "…" not in first
