"""The verdict, and the table for a comment: whatever the words in it, it stays a table."""

import json
import re

from hypothesis import given
from hypothesis import strategies as st

from planner import files
from planner.check import Finding, exit_code, to_markdown, verdict
from planner.check.finding import BLOCKING, CATEGORIES

words = st.text(max_size=20)
findings = st.builds(
    Finding,
    category=st.sampled_from(CATEGORIES),
    where=words,
    old=st.one_of(st.none(), st.floats(allow_nan=False), words),
    new=st.one_of(st.none(), st.floats(allow_nan=False), words),
    message=words,
)


def found(category: str, **fields) -> Finding:
    return Finding(**{"where": "here", "old": None, "new": None, "message": "", **fields}, category=category)


@given(st.lists(findings, max_size=8))
def test_only_regressions_and_illegal_plans_block(some):
    blocks = any(finding.category in BLOCKING for finding in some)
    assert exit_code(some) == int(blocks)
    assert verdict(some).startswith("blocked" if blocks else "passed")
    assert sum(map(int, re.findall(r"\d+", verdict(some)))) == len(some)


def test_the_verdict_counts():
    assert verdict([]) == "passed: no differences"
    assert verdict([found("drift"), found("gain"), found("drift")]) == "passed: 1 gain, 2 drifts"
    assert verdict([found("stale_inputs"), found("illegal")]) == "blocked: 1 violation, 1 stale input"


@given(st.lists(findings, min_size=1, max_size=5))
def test_every_finding_is_one_row_of_five_cells(some):
    rows = to_markdown(some).split("\n")[4:-1]
    assert len(rows) == len(some)
    for row in rows:
        assert len(re.findall(r"(?<!\\)(?:\\\\)*\|", row)) == 6


def test_findings_are_data():
    text = files.json_text({"findings": [found("drift", old=1.0)]})
    assert json.loads(text)["findings"] == [
        {"category": "drift", "where": "here", "old": 1.0, "new": None, "message": ""}
    ]
