"""The table of the difference between predicted and measured steps, as `planner simulate --measured` prints it."""

from collections.abc import Sequence

from planner.ledger import DifferenceLine, StepDifference, sum_by_name
from planner.report.tags import Markup, table
from planner.units import duration, signed

HEADS = ("along the measured critical path", ">predicted", ">measured", ">difference")


def difference_table(steps: Sequence[StepDifference]) -> Markup:
    """The table, a mean over steps. Its rows add up to the last one."""
    rows = [
        (each.name, duration(each.simulated), duration(each.measured), signed(each.difference))
        for each in difference_lines(steps)
    ]
    return table(HEADS, rows, "The difference by kind of work; predicted times are simulated")


def difference_lines(steps: Sequence[StepDifference]) -> list[DifferenceLine]:
    """Lines by kind of work, in the order of the step with most kinds; then the step."""
    kinds = sorted((step.by_kind() for step in steps), key=len, reverse=True)
    whole = [DifferenceLine("the step", step.simulated, step.measured) for step in steps]
    sums = sum_by_name(line for of_step in (*kinds, whole) for line in of_step)
    return [DifferenceLine(name, simulated / len(steps), measured / len(steps)) for name, simulated, measured in sums]
