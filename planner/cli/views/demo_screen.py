"""Prints the demo as it runs: each stage, its progress and its result."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

from rich.console import Console, RenderableType
from rich.panel import Panel
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.text import Text

from planner.callbacks import OnProgress
from planner.cli.render import canvas, console
from planner.cli.views import plan_picture
from planner.cli.views.plan_tables import parity_text
from planner.cli.views.plan_tables import run_lines as ran_table
from planner.plan.plan_file import Plan
from planner.specs.hardware.profile import Profile
from planner.strategies import SolvedJob
from planner.units import duration, percent
from planner.workflows.demo import DemoResult

WORDS = 68  # columns beside the bar: a step of the run, and the time left
StageLines = Callable[[str, Any], Iterator[RenderableType]]
CHAPTERS = {
    "profile": "measure the model's layers, optimizer and collectives on this machine",
    "solve": "decide which documents share a micro-batch, and on how many ranks each runs",
    "simulate": "check and re-price the plan, and simulate it task by task",
    "run": "train the model with it on 4 processes, and compare with one process",
    "check": "solve again and compare: the same job gives the same bytes",
}


class DemoPrinter:
    """Prints a line as each stage begins and ends, with a progress bar in between on a terminal. `chapters`: what each
    stage does; `lines`: those of its result.
    """

    def __init__(self, out: Console, bars: Progress, chapters: Mapping[str, str], lines: StageLines) -> None:
        self.out, self.bars, self.chapters, self.lines = out, bars, chapters, lines
        self.bar: TaskID | None = None
        self.started = 0.0

    def begin(self, chapter: str) -> OnProgress:
        number = [*self.chapters].index(chapter) + 1
        self.out.print(Text.assemble((f"\n{number}  {chapter}", "bold cyan"), f"  {self.chapters[chapter]}"))
        self.started = perf_counter()
        bar = self.bar = self.bars.add_task("", total=None)

        def on_progress(done: int, of: int, what: str) -> None:
            self.bars.update(bar, completed=done, total=of, description=what)

        return on_progress

    def training(self, solved: SolvedJob) -> Callable[[Any], None]:
        on_progress = self.begin("run")
        predicted = solved.plan.prediction.step_seconds / len(solved.plan.steps)

        def on_step(p: Any) -> None:
            text = f"step {p.step}/{p.of}  loss {p.loss:.4f}  {p.seconds:.2f} s (predicted {predicted:.2f} s)"
            on_progress(p.step, p.of, text)

        return on_step

    def end(self, chapter: str, result: Any) -> None:
        if self.bar is not None:
            self.bars.remove_task(self.bar)
            self.bar = None
        for line in self.lines(chapter, result):
            self.out.print(line)
        self.out.print(Text(f"   {duration(perf_counter() - self.started)}", style="dim"))


@contextmanager
def demo_printer(to_stderr: bool, chapters: Mapping[str, str], lines: StageLines) -> Iterator[DemoPrinter]:
    out = console(stderr=to_stderr)
    bar = BarColumn(min(40, max(4, out.width - WORDS)))
    columns = (
        TextColumn("  "),
        SpinnerColumn(),
        bar,
        TextColumn("{task.description}", markup=False),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=out, transient=True, disable=not out.is_terminal) as bars:
        yield DemoPrinter(out, bars, chapters, lines)


def stage_lines(chapter: str, result: Any) -> Iterator[RenderableType]:
    """Lines for the result of a stage."""
    if chapter == "profile":
        yield profile_line(result)
    elif chapter == "solve":
        inputs, solved = result
        (batch,) = inputs.batches
        lengths = sorted(batch.items.values())
        yield Text(
            f"   {len(lengths)} real documents of {lengths[0]} to {lengths[-1]} tokens "
            f"({len(batch.dropped)} too long, dropped and named), decided in {duration(solved.seconds)}"
        )
    elif chapter == "simulate":
        plan, scores = result
        yield from plan_picture.draw_plan(plan, scores, canvas())
    elif chapter == "run":
        yield from ran_table(result, None)
    elif chapter == "check":
        yield Text("   no differences" if not result else f"   {len(result)} differences", "red" if result else "green")


def profile_line(profile: Profile) -> Text:
    """Where it was measured, and how far fits are off: of the module with the largest error."""
    error = percent(max(costs.layer.holdout_error or 0.0 for costs in profile.modules.values()))
    return Text(f"   {profile.provenance.machine}; fits are off by {error} on held-out measurements (median)")


def closing_panel(result: DemoResult) -> Iterator[RenderableType]:
    """The closing panel."""
    plan: Plan = result.solved.plan
    ran = result.ran
    predicted = ran.predicted_step_seconds or 0.0  # never 0: the demo's plan has prices
    ratio = ran.step_seconds / predicted
    lines = [
        f"measured    layers, collectives and the optimizer on this machine ({result.profile.provenance.machine})",
        f"decided     {len(plan.steps[0].micro_batches)} micro-batches; no plan of this job can be more than "
        f"{percent(plan.outcome.gap)} faster at the measured prices",
        f"ran         {len(ran.losses)} steps of training on 4 processes"
        + (f", {parity_text(ran.verified, ran.tolerance)[0]}" if ran.verified and ran.tolerance else ""),
        f"predicted   {duration(predicted)} a step; measured {duration(ran.step_seconds)} ({ratio:.2f}×)",
        f"files       {file_list(result.folder)}",
        f"next        edit {result.folder / 'job.yaml'}, then: planner solve {result.folder / 'job.yaml'}",
    ]
    yield Text()
    yield Panel("\n".join(lines), title="what just happened", title_align="left")


def file_list(folder: Path) -> str:
    """Paths of the demo's files, plan first."""
    return ", ".join(str(folder / name) for name in ("plan.yaml", "job.yaml", "profile.yaml", "measured.json"))
