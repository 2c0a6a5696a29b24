"""What a check finds: one difference between two plans, or one false statement of a plan; how a change is classified,
and the gate: a regression or an illegal new plan blocks, everything else only informs. Findings are written as a
Markdown table, too, for a comment in a review.

Classification is symmetrical: a regression from a to b is a gain from b to a.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from planner.specs.base import Spec
from planner.specs.check_file import Thresholds

Category = Literal[
    "illegal", "regression", "unjudged", "changed_input", "gain", "drift", "stale_inputs", "added", "removed"
]
CATEGORIES: tuple[Category, ...] = get_args(Category)
BLOCKING: tuple[Category, ...] = ("illegal", "regression", "unjudged")  # all others only inform
NAMES: dict[Category, tuple[str, str]] = {  # singular, plural
    "illegal": ("violation", "violations"),
    "regression": ("regression", "regressions"),
    "unjudged": ("difference that cannot be judged", "differences that cannot be judged"),
    "changed_input": ("changed input", "changed inputs"),
    "gain": ("gain", "gains"),
    "drift": ("drift", "drifts"),
    "stale_inputs": ("stale input", "stale inputs"),
    "added": ("addition", "additions"),
    "removed": ("removal", "removals"),
}
EQUAL = 1e-6  # relative: two evaluations of the same plan differ by less
SLACK = 1e-9  # so that a change of exactly the tolerance is tolerated
FINDINGS_SHOWN = 100  # of the table: more do not help in a comment
WORK, JOB = "uses", "uses.asked"  # where the inputs of a changed plan are: model, data and cluster; what its job asks
SPECIAL = re.compile(r"([\\`*_\[\]<>|~#&])")


class Finding(Spec, kw_only=False):
    """What was found, where in the plan, and both sides; objective values and gaps are numbers, the rest is text."""

    category: Category
    where: str
    old: float | str | None
    new: float | str | None
    message: str


@dataclass(frozen=True, slots=True)
class Tolerances:
    """How much worse a plan may get without a regression, and what is judged."""

    value: float = 0.02  # relative to the smaller value
    gap: float = 0.01  # absolute: one point
    memory: float | None = None  # of the fullest rank, relative; None: not judged, as below
    tokens_per_dollar: float | None = None
    judge_changed_inputs: bool = False  # another model, data or cluster, too: by token
    allow_unjudged: bool = False  # what cannot be judged passes

    def with_thresholds(self, stated: Thresholds) -> "Tolerances":
        """The tolerances, with those that are stated."""
        every = {name: getattr(stated, name) for name in Thresholds.__struct_fields__}
        return replace(self, **{name: share for name, share in every.items() if share is not None})


def classify_value(old: float, new: float, tolerance: float) -> Category | None:
    """Classify a change of a value of which less is better; None when both are the same."""
    factor = (1 + tolerance) * (1 + SLACK)
    if new > old * factor:
        return "regression"
    if old > new * factor:
        return "gain"
    return None if is_equal(old, new) else "drift"


def classify_gap(old: float, new: float, tolerance: float) -> Category | None:
    """Classify a change of the gap, of which less is better; None within the tolerance."""
    if new - old > tolerance + SLACK:
        return "regression"
    if old - new > tolerance + SLACK:
        return "gain"
    return None


def is_equal(one: float, other: float) -> bool:
    return abs(one - other) <= EQUAL * max(abs(one), abs(other))


def label(findings: Sequence[Finding]) -> str:
    """What became of a case, in two words."""
    found = {finding.category for finding in findings}
    changed = any(finding.category == "changed_input" and finding.where == WORK for finding in findings)
    if "illegal" in found:
        return "illegal"
    if "regression" in found:
        return "slower plan, changed input" if changed else "slower plan"
    if "unjudged" in found:
        return "not judged"
    if "changed_input" in found:
        return "changed input"
    if "drift" in found:
        return "other decisions"
    if "gain" in found:
        return "quicker plan"
    return "stale" if found else "equal"


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
