"""Findings as a Markdown table, for a comment in a review."""

import re
from collections.abc import Sequence

from planner.check.finding import CATEGORIES, Finding, verdict

FINDINGS_SHOWN = 100  # of the table: more do not help in a comment
SPECIAL = re.compile(r"([\\`*_\[\]<>|~#&])")


def to_markdown(findings: Sequence[Finding]) -> str:
    """The verdict in a line, then the findings, blocking ones first."""
    head, _, counts = verdict(findings).partition(":")
    lines = [f"**planner check {head}**:{counts}"]
    if findings:
        lines += ["", "| category | where | old | new | what |", "| --- | --- | --- | --- | --- |"]
        ranked = sorted(findings, key=lambda finding: CATEGORIES.index(finding.category))
        lines += [line(finding) for finding in ranked[:FINDINGS_SHOWN]]
    if len(findings) > FINDINGS_SHOWN:
        lines += ["", f"and {len(findings) - FINDINGS_SHOWN} more"]
    return "\n".join(lines) + "\n"


def line(finding: Finding) -> str:
    """One row of the table: names and values as code, words as text."""
    name = finding.category.replace("_", " ")
    cells = (name, code(finding.where), code(finding.old), code(finding.new), text(finding.message))
    return f"| {' | '.join(cells)} |"


def code(value: float | str | None) -> str:
    """A code span: only a backtick ends it, only a pipe ends the cell."""
    if value is None:
        return ""
    shown = f"{value:.6g}" if isinstance(value, float) else one_line(value)
    return f"`{shown.replace('`', chr(39)).replace('|', chr(92) + '|')}`" if shown else ""


def text(words: str) -> str:
    """Text with Markdown's special characters escaped."""
    return SPECIAL.sub(r"\\\1", one_line(words))


def one_line(words: str) -> str:
    return " ".join(words.split())
