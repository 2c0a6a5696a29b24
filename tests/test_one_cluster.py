"""The example of docs/schedule.md says today what the page shows, and its jobs are those of the stored decisions."""

import re
import shlex
from pathlib import Path

import pytest

from planner import files
from planner.specs.cluster_jobs.actions_file import ActionsFile
from planner.specs.cluster_jobs.read_jobs import read_fleet
from planner.workflows.scheduling import ClusterQuestion, trace_jobs
from tests.test_golden import GOLDEN
from tests.typed import typed

HOME = Path(__file__).parents[1]
EXAMPLE = HOME / "docs" / "examples" / "one-cluster"
SHOWN = re.findall(
    r"^\$ (planner schedule .*)\n((?:.*\n)*?)```", (HOME / "docs" / "schedule.md").read_text(), re.MULTILINE
)


@pytest.mark.parametrize(("command", "shown"), SHOWN, ids=["a trace", "cells and pairs", "a queue"])
@pytest.mark.every(3)
def test_the_page_shows_what_is_printed(command, shown, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    printed = typed(shlex.join(shlex.split(command)), EXAMPLE).out
    assert [line.rstrip() for line in printed.splitlines()] == shown.splitlines()


def test_the_stored_decisions_are_about_the_jobs_of_the_example():
    stored = files.read(GOLDEN / "schedule" / "one-cluster" / "actions.yaml", ActionsFile)
    question = ClusterQuestion(EXAMPLE / "jobs.csv", throughputs=EXAMPLE / "throughputs.csv")
    assert stored.jobs == tuple(trace_jobs(question, read_fleet("", "8xh100,16xa100"))[0])
