"""Forty changes of a case get the label that a reader gave them, all but one, and no slower plan passes."""

import shutil

import pytest

from planner import files, pipeline
from planner.check import Tolerances, exit_code
from planner.check.finding import label
from tests.check.mutations import MUTATIONS, Mutation, write_case
from tests.check.small_plans import solve

LABELS = {  # of the gate, in a reader's words
    "slower plan, changed input": "both",
    "other decisions": "equal",
    "quicker plan": "equal",
}
MISSED = {  # blocked, by another name: nothing in a plan tells an edit from prices of an older planner
    "an edited plan under dearer code": "slower plan",
}
BLOCKED = ("slower plan", "both", "illegal")


@pytest.fixture(scope="module")
def solved(tmp_path_factory):
    """The base cases, solved once."""
    folder = tmp_path_factory.mktemp("bases")

    def base(name):
        if not (folder / name).is_dir():
            write_case(folder / name, name)
            files.write(folder / name / "plan.yaml", solve(folder / name / "job.yaml"))
        return folder / name

    return base


def check(mutation: Mutation, solved, folder, patch):
    """The findings of a mutated case."""
    shutil.copytree(solved(mutation.base), folder / "case")
    for change in mutation.changes:
        change(folder / "case", patch)
    (case,) = pipeline.gate(folder, None, Tolerances())
    return case.findings


@pytest.mark.parametrize(
    "mutation",
    [pytest.param(each, id=each.what, marks=pytest.mark.soak if each.base == "static" else ()) for each in MUTATIONS],
)
@pytest.mark.every(4)
def test_a_change_gets_the_label_that_a_reader_gives_it(mutation, solved, tmp_path, monkeypatch):
    findings = check(mutation, solved, tmp_path, monkeypatch)
    found = label(findings)
    assert LABELS.get(found, found) == MISSED.get(mutation.what, mutation.label)
    assert exit_code(findings) == (mutation.label in BLOCKED)


def test_there_are_forty_and_at_most_one_is_missed():
    assert len({each.what for each in MUTATIONS}) == 40
    assert len(MISSED) <= 1
