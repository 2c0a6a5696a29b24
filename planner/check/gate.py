"""The gate: a regression or an illegal new plan blocks, everything else only informs."""

from collections import Counter
from collections.abc import Sequence

from planner.check.finding import BLOCKING, CATEGORIES, Category, Finding

NAMES: dict[Category, tuple[str, str]] = {  # singular, plural
    "illegal": ("violation", "violations"),
    "regression": ("regression", "regressions"),
    "gain": ("gain", "gains"),
    "drift": ("drift", "drifts"),
    "stale_inputs": ("stale input", "stale inputs"),
    "added": ("addition", "additions"),
    "removed": ("removal", "removals"),
}


def exit_code(findings: Sequence[Finding]) -> int:
    """1 when something blocks, else 0."""
    return int(any(finding.category in BLOCKING for finding in findings))


def verdict(findings: Sequence[Finding]) -> str:
    """The verdict in one line: `blocked: 1 regression, 2 drifts`."""
    if not findings:
        return "passed: no differences"
    counts = Counter(finding.category for finding in findings)
    parts = [f"{counts[c]} {NAMES[c][counts[c] > 1]}" for c in CATEGORIES if counts[c]]
    return f"{'blocked' if exit_code(findings) else 'passed'}: {', '.join(parts)}"
