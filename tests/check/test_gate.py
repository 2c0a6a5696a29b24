"""The verdict, and the table for a comment: whatever the words in it, it stays a table."""

import json
import re

from hypothesis import given
from hypothesis import strategies as st

from planner import files
from planner.check import Finding, exit_code, to_markdown, verdict
from planner.check.finding import BLOCKING, CATEGORIES, FINDINGS_SHOWN

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


def test_the_table():
    some = [
        found("drift", where="steps[0].micro_batches", old="⟨2x2⟩", new="⟨4⟩", message="4 of 9 items moved"),
        found("regression", where="outcome.value", old=0.5, new=0.75, message="0.75 s instead of 0.50 s"),
    ]
    assert to_markdown(some) == (
        "**planner check blocked**: 1 regression, 1 drift\n"
        "\n"
        "| category | where | old | new | what |\n"
        "| --- | --- | --- | --- | --- |\n"
        "| regression | `outcome.value` | `0.5` | `0.75` | 0.75 s instead of 0.50 s |\n"
        "| drift | `steps[0].micro_batches` | `⟨2x2⟩` | `⟨4⟩` | 4 of 9 items moved |\n"
    )
    assert to_markdown([]) == "**planner check passed**: no differences\n"


def test_what_would_break_the_table_is_escaped():
    text = to_markdown([found("drift", where="a|b`c", old="x\ny", message="<b>*|* [a](b)\n\n# `z`")])
    assert text.splitlines()[-1] == r"| drift | `a\|b'c` | `x y` |  | \<b\>\*\|\* \[a\](b) \# \`z\` |"


@given(st.lists(findings, min_size=1, max_size=5))
def test_every_finding_is_one_row_of_five_cells(some):
    rows = to_markdown(some).split("\n")[4:-1]
    assert len(rows) == len(some)
    for row in rows:
        assert len(re.findall(r"(?<!\\)(?:\\\\)*\|", row)) == 6


def test_a_long_table_is_cut():
    lines = to_markdown([found("drift")] * (FINDINGS_SHOWN + 5)).splitlines()
    assert lines[-1] == "and 5 more"
    assert sum(line.startswith("| drift") for line in lines) == FINDINGS_SHOWN


def test_findings_are_data():
    text = files.json_text({"findings": [found("drift", old=1.0)]})
    assert json.loads(text)["findings"] == [
        {"category": "drift", "where": "here", "old": 1.0, "new": None, "message": ""}
    ]
