"""What the difference between predicted and measured steps is made of, as `planner simulate --measured` says it."""

from collections.abc import Sequence

from planner.ledger.explain import Explained, Line, summed
from planner.report.tags import Markup, table
from planner.units import duration, signed

HEADS = ("along the measured critical path", ">predicted", ">measured", ">difference")


def difference(steps: Sequence[Explained]) -> Markup:
    """A table; of several steps, their mean. Its lines add up to the last one."""
    rows = [
        (each.name, duration(each.simulated), duration(each.measured), signed(each.difference)) for each in lines(steps)
    ]
    return table(HEADS, rows, "What the difference is made of; what is predicted is simulated")


def lines(steps: Sequence[Explained]) -> list[Line]:
    """By kind of work, in the order of the step that has most of them; then the step."""
    kinds = sorted((step.kinds() for step in steps), key=len, reverse=True)
    whole = [Line("the step", step.simulated, step.measured) for step in steps]
    sums = summed(line for of_step in (*kinds, whole) for line in of_step)
    return [Line(name, simulated / len(steps), measured / len(steps)) for name, simulated, measured in sums]
