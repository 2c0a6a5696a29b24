"""What `planner replay --against` prints, and its JSON answer."""

from collections.abc import Iterator
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from planner.cli.views.plain_table import table
from planner.cli.views.replay_tables import plain, short
from planner.replay.timing import ReplayComparison
from planner.units import US, duration

HARDLY = 1 * US  # of a step, below which a kernel is not counted as changed
SHOWN = 15  # kernels in the printed table
PART_NAMES = {
    "compute": "compute",
    "overlapped": "overlapped",
    "exposed_communication": "exposed communication",
    "copies": "copies",
    "idle": "idle",
}


def comparison_answer(compared: ReplayComparison) -> dict[str, Any]:
    """The differences in seconds of the mean step."""
    return {
        "before": compared.before._asdict(),
        "after": compared.after._asdict(),
        "seconds": compared.seconds,
        "kernel_seconds": compared.kernel_seconds,
        "kernels": [{**each._asdict(), "seconds": each.seconds} for each in compared.kernels],
    }


def comparison_lines(compared: ReplayComparison) -> Iterator[RenderableType]:
    """Parts of the step and kernels that differ, both with their sums."""
    yield Text.assemble(
        ("against the earlier recording ", ""),
        (f"a step takes {signed(compared.seconds)}", "bold"),
        f": {duration(sum(compared.before))} before, {duration(sum(compared.after))} now",
    )
    parts = table("part", ">before", ">now", ">difference", title="the mean step of the mean rank")
    for name in compared.before._fields:
        was, now = getattr(compared.before, name), getattr(compared.after, name)
        parts.add_row(PART_NAMES[name], duration(was), duration(now), signed(now - was))
    yield parts
    counts = {
        change: sum(each.change == change for each in compared.kernels if abs(each.seconds) >= HARDLY)
        for change in ("changed", "came", "went")
    }
    listed = ", ".join(f"{count} {change}" for change, count in counts.items())
    title = f"kernels: {listed}; {signed(compared.kernel_seconds)}"
    kernels = table("kernel", "kind", "", ">before", ">now", ">difference", title=title)
    for each in compared.kernels[:SHOWN]:
        times = (duration(each.before), duration(each.after), signed(each.seconds))
        kernels.add_row(plain(short(each.name)), each.kind, each.change, *times)
    rest = compared.kernels[SHOWN:]
    if rest:
        before, after = sum(each.before for each in rest), sum(each.after for each in rest)
        kernels.add_row(f"{len(rest)} others", "", "", duration(before), duration(after), signed(after - before))
    yield from (kernels, Text())


def signed(seconds: float) -> str:
    """A difference with its sign."""
    return f"{'−' if seconds < 0 else '+'}{duration(abs(seconds))}"
