"""Are two plans answers to the same question? Changed inputs are told apart from a worse plan.

Digests say which inputs changed. Values are then no longer comparable as they are; but the old decisions can be priced
under the new inputs, and those are what the new plan has to beat.
"""

from collections.abc import Iterator

from planner.check.finding import Finding
from planner.check.verified import Verified, price
from planner.plan.model import Plan, SourceFile, assignments
from planner.specs.base import changed

QUESTION = ("models", "cluster", "devices", "feeds", "degrees", "limits", "fix", "prices")  # of `uses`, without items

WIDTH = 80  # characters

Work = dict[str, set[int]]  # module → items


def stale_inputs(old: Plan, new: Plan) -> Iterator[Finding]:
    """Sources whose digest changed. Where a file lies is of no matter."""
    for role in {**old.uses.sources, **new.uses.sources}:
        before, after = old.uses.sources.get(role), new.uses.sources.get(role)
        if digest(before) != digest(after):
            yield Finding(
                category="stale_inputs",
                where=f"uses.sources.{role}",
                old=digest(before),
                new=digest(after),
                message=f"the plans were made from different inputs: {role} {history(before, after)}",
            )


def digest(source: SourceFile | None) -> str | None:
    return source.sha256 if source else None


def history(before: SourceFile | None, after: SourceFile | None) -> str:
    if before is None or after is None:
        return f"is only an input of the {'new' if before is None else 'old'} plan"
    return f"({after.path}) changed"


def unexplained_inputs(old: Plan, new: Plan) -> Iterator[Finding]:
    """What the plans use differs, and no digest says why: a change of planner itself, or of the plan by hand."""
    for name in QUESTION:
        before, after = getattr(old.uses, name), getattr(new.uses, name)
        if before != after:
            message = f"what the plans use differs in {name}, though no source changed"
            yield Finding(category="drift", where=f"uses.{name}", old=shown(before), new=shown(after), message=message)


def shown(value: object) -> str | None:
    """What is short enough to read: degrees and limits, not a table of prices."""
    text = str(value)
    return text if len(text) <= WIDTH else None


def same_question(old: Plan, new: Plan) -> bool:
    """Only decisions can differ: prices, limits, models and work are the same."""
    return all(getattr(old.uses, name) == getattr(new.uses, name) for name in QUESTION) and same_work(old, new)


def same_work(old: Plan, new: Plan) -> bool:
    """The same items of the same sizes in every step that both plans have."""
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
    """What one step works on."""
    work: Work = {}
    for row in plan.steps[number].micro_batches:
        for a in assignments(plan, row):
            work.setdefault(a.module, set()).update(a.items)
    return work


def carried_over(old: Plan, new: Plan) -> Verified | None:
    """The old decisions under the new inputs; None where they are not possible, or not what is asked for."""
    comparable = (
        old.layouts == new.layouts
        and old.ranks == new.ranks
        and old.edges == new.edges
        and [step.sync for step in old.steps] == [step.sync for step in new.steps]
        and same_items(old, new)
        and allowed(old, new)
    )
    if not comparable:
        return None
    carried = price(changed(old, uses=new.uses))
    return None if carried.broken else carried


def allowed(old: Plan, new: Plan) -> bool:
    """Whether the old groups have degrees that the new inputs allow, and fixed items the degree they must have."""
    degrees, fixed = new.uses.degrees, new.uses.fix.items
    for step in old.steps:
        for row in step.micro_batches:
            for a in assignments(old, row):
                degree = old.groups[a.group].split_in(old.layouts[a.module]).degree
                if degrees and degree not in degrees:
                    return False
                if any(item in fixed and fixed[item].degree != degree for item in a.items):
                    return False
    return True
