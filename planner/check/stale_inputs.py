"""Finds inputs that changed between two plans, to tell them from a worse plan.

Digests say which inputs changed. Objective values are then no longer comparable; but the old decisions can be priced
under the new inputs, and the new plan has to beat those.
"""

from collections.abc import Iterator

from planner.check.checked_plan import CheckedPlan, reprice
from planner.check.finding import Finding
from planner.plan.plan_file import Plan, SourceFile, assignments
from planner.specs.base import with_fields

# Of `uses`, without items.
PROBLEM_FIELDS = ("models", "cluster", "devices", "feeds", "degrees", "limits", "fix", "prices")

WIDTH = 80  # characters

Work = dict[str, set[int]]  # module → items


def stale_inputs(old: Plan, new: Plan) -> Iterator[Finding]:
    """Findings for sources whose digest changed; the path of a file does not matter."""
    for role in {**old.uses.sources, **new.uses.sources}:
        before, after = old.uses.sources.get(role), new.uses.sources.get(role)
        if digest(before) != digest(after):
            message = f"the plans were made from different inputs: {role} {source_change(before, after)}"
            yield Finding("stale_inputs", f"uses.sources.{role}", digest(before), digest(after), message)


def digest(source: SourceFile | None) -> str | None:
    return source.sha256 if source else None


def source_change(before: SourceFile | None, after: SourceFile | None) -> str:
    if before is None or after is None:
        return f"is only an input of the {'new' if before is None else 'old'} plan"
    return f"({after.path}) changed"


def unexplained_inputs(old: Plan, new: Plan) -> Iterator[Finding]:
    """Findings for parts of `uses` that differ though no digest does: planner changed, or the plan was edited."""
    for name in PROBLEM_FIELDS:
        before, after = getattr(old.uses, name), getattr(new.uses, name)
        if before != after:
            message = f"what the plans use differs in {name}, though no source changed"
            yield Finding("drift", f"uses.{name}", short_text(before), short_text(after), message)


def short_text(value: object) -> str | None:
    """A value as text if that is short enough to read: degrees and limits, not a table of prices."""
    text = str(value)
    return text if len(text) <= WIDTH else None


def same_work(old: Plan, new: Plan) -> bool:
    """Whether every step that both plans have holds the same items of the same sizes."""
    if not same_items(old, new):
        return False
    return all(
        old.uses.items[module][item] == new.uses.items[module][item]
        for number in range(min(len(old.steps), len(new.steps)))
        for module, items in step_items(old, number).items()
        for item in items
    )


def same_items(old: Plan, new: Plan) -> bool:
    common = range(min(len(old.steps), len(new.steps)))
    return all(step_items(old, number) == step_items(new, number) for number in common)


def step_items(plan: Plan, number: int) -> Work:
    """Items of each module in a step."""
    work: Work = {}
    for micro_batch in plan.steps[number].micro_batches:
        for a in assignments(plan, micro_batch):
            work.setdefault(a.module, set()).update(a.items)
    return work


def old_decisions_repriced(old: Plan, new: Plan) -> CheckedPlan | None:
    """The old decisions priced under the new inputs; None where they are illegal there, or solve another job."""
    comparable = (
        old.layouts == new.layouts
        and old.ranks == new.ranks
        and old.edges == new.edges
        and [step.sync for step in old.steps] == [step.sync for step in new.steps]
        and same_items(old, new)
        and degrees_allowed(old, new)
    )
    if not comparable:
        return None
    repriced = reprice(with_fields(old, uses=new.uses))
    return None if repriced.violations else repriced


def degrees_allowed(old: Plan, new: Plan) -> bool:
    """Whether the new inputs allow the degrees of the old groups, and fixed items have the degree they must have."""
    degrees, fixed = new.uses.degrees, new.uses.fix.items
    for step in old.steps:
        for micro_batch in step.micro_batches:
            for a in assignments(old, micro_batch):
                degree = old.groups[a.group].resolved_split(old.layouts[a.module]).degree
                if degrees and degree not in degrees:
                    return False
                if any(item in fixed and fixed[item].degree != degree for item in a.items):
                    return False
    return True
