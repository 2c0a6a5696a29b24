"""Progress bars for long work: shown on a terminal, silent in a pipe."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

from planner.cli.render import console

OnProgress = Callable[[int, int, str], None]  # done, of how many, what
WORDS = 74  # columns of the text beside the bar of a run, with long numbers
REFRESHES = 2  # of that bar in a second: each takes 2.5 ms of a core (measured), which a rank may be computing on


@contextmanager
def progress_bar(title: str, unit: str) -> Iterator[OnProgress]:
    """Show a bar with the remaining time; the yielded function reports progress."""
    out = console(stderr=True)
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
    )
    with Progress(
        *columns, TimeRemainingColumn(), console=out, transient=True, disable=not out.is_terminal
    ) as progress:
        task = progress.add_task(title, total=None)

        def on_progress(done: int, of: int, what: str) -> None:
            progress.update(task, completed=done, total=of, description=f"{title} {what}".strip())

        yield on_progress


@contextmanager
def report_interrupt(on_step: Callable[[Any], None]) -> Iterator[Callable[[Any], None]]:
    """Print on an immediate exit that nothing of the run is reported; wraps `on_step`."""
    begun = False

    def on_step_begun(p: Any) -> None:
        nonlocal begun
        begun = True
        on_step(p)

    try:
        yield on_step_begun
    except SystemExit:
        message = "interrupted: what was trained is not reported" if begun else "interrupted before the first step"
        console(stderr=True).print(message)
        raise


@contextmanager
def training_bar(plan: Any) -> Iterator[Callable[[Any], None]]:
    """Show step, loss, tokens per second, and step time measured and predicted, while training."""
    out = console(stderr=True)
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(min(40, max(4, out.width - WORDS))),
        MofNCompleteColumn(),
        TextColumn("steps"),
    )
    silent = not out.is_terminal
    with Progress(*columns, console=out, transient=True, disable=silent, refresh_per_second=REFRESHES) as progress:
        task = progress.add_task("starting processes", total=None)
        predicted = plan.prediction.step_seconds / len(plan.steps)

        def on_progress(p: Any) -> None:
            rate = p.tokens / p.seconds if p.seconds else 0.0
            expected = f" (predicted {predicted:.2f} s)" if predicted else ""
            text = f"loss {p.loss:.4f}  {rate:,.0f} tokens/s  {p.seconds:.2f} s{expected}"
            progress.update(task, completed=p.step, total=p.of, description=text)

        yield on_progress
