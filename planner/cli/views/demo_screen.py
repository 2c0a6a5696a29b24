"""Prints a demo as it runs: each stage, its progress and its result; of documents, and of images and clips too."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import Any

from rich.console import Console, RenderableType
from rich.panel import Panel
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.text import Text

from planner.callbacks import OnProgress
from planner.cli.render import canvas, console
from planner.cli.views import plan_picture
from planner.cli.views.plain_table import table
from planner.cli.views.run_tables import parity_text, run_lines
from planner.plan.descriptions import layout_text
from planner.plan.plan_file import Plan
from planner.specs.hardware.profile import Profile
from planner.strategies import SolvedJob
from planner.units import duration, percent, plural
from planner.workflows.demo import DemoResult
from planner.workflows.multimodal_demo import MultimodalDemoResult, UsualPlacement, mean_step_seconds

WORDS = 68  # columns beside the bar: a step of the run, and the time left
FILES = ("plan.yaml", "job.yaml", "profile.yaml", "measured.json")  # of the demo's folder
StageLines = Callable[[str, Any], Iterator[RenderableType]]
CHAPTERS = {
    "profile": "measure the model's layers, optimizer and collectives on this machine",
    "solve": "decide which documents share a micro-batch, and on how many ranks each runs",
    "simulate": "check and re-price the plan, and simulate it task by task",
    "run": "train the model with it on 4 processes, and compare with one process",
    "check": "solve again and compare: the same job gives the same bytes",
}

MULTIMODAL_CHAPTERS = {
    "samples": "draw coloured squares and tones, and the words that name them",
    "profile": "measure layers of two encoders and a decoder, optimizer and collectives on this machine",
    "solve": "decide the layout of each module, and which ranks it is on",
    "simulate": "check and re-price the plan of all batches, and simulate it task by task",
    "run": "train all three with it on 4 processes, and compare with one process",
    "compare": "where trainers usually have encoders, at the same prices",
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
    """What a stage of the demo on documents found."""
    if chapter == "solve":
        inputs, solved = result
        (batch,) = inputs.batches
        lengths = sorted(batch.items.values())
        yield Text(
            f"   {len(lengths)} real documents of {lengths[0]} to {lengths[-1]} tokens "
            f"({len(batch.dropped)} too long, dropped and named), decided in {duration(solved.seconds)}"
        )
    elif chapter == "check":
        yield Text("   no differences" if not result else f"   {len(result)} differences", "red" if result else "green")
    else:
        yield from shared_stage_lines(chapter, result)


def multimodal_stage_lines(chapter: str, result: Any) -> Iterator[RenderableType]:
    """What a stage of the demo on images and clips found."""
    if chapter == "samples":
        images, clips = (
            sum(len(of) for of in each) for each in zip(*((s.images, s.clips) for s in result), strict=True)
        )
        yield Text(f"   {plural(len(result), 'sample')}, with {plural(images, 'image')} and {plural(clips, 'clip')}")
    elif chapter == "solve":
        _, solved = result
        predicted = f"{duration(mean_step_seconds(solved.plan))} a step predicted ({solved.plan.outcome.effort})"
        yield Text(f"   {predicted}, decided in {duration(solved.seconds)}")
        for name, layout in solved.plan.layouts.items():
            yield Text(f"   {name}: {layout_text(layout, solved.plan.size)}")
    elif chapter == "compare":
        yield usual_table(*result)
    else:
        yield from shared_stage_lines(chapter, result)


def shared_stage_lines(chapter: str, result: Any) -> Iterator[RenderableType]:
    """What a stage found that both demos have."""
    if chapter == "profile":
        yield profile_line(result)
    elif chapter == "simulate":
        plan, scores = result
        yield from plan_picture.draw_plan(plan, scores, canvas())
    elif chapter == "run":
        yield from run_lines(result, None)


def profile_line(profile: Profile) -> Text:
    """Where it was measured, and how far fits are off: of the module with the largest error."""
    error = percent(max(costs.layer.holdout_error or 0.0 for costs in profile.modules.values()))
    return Text(f"   {profile.provenance.machine}; fits are off by {error} on held-out measurements (median)")


def usual_table(plan: Plan, usual: Sequence[UsualPlacement]) -> RenderableType:
    """What usual placements of encoders would take for the same batches."""
    shown = table("encoders", ">predicted", ">longer", "decoder")
    ours = mean_step_seconds(plan)
    shown.add_row("as decided", duration(ours), "", layout_text(plan.layouts["llm"], plan.size))
    for placement in usual:
        seconds = placement.step_seconds
        slower = placement.because if seconds is None else percent(seconds / ours - 1.0)
        llm = layout_text(placement.layouts["llm"])
        shown.add_row(placement.name, "" if seconds is None else duration(seconds), slower, llm)
    return shown


def closing_panel(result: DemoResult | MultimodalDemoResult) -> Iterator[RenderableType]:
    """What was measured, decided, trained, learned and predicted, where its files are, and what to do next."""
    plan, ran, folder = result.solved.plan, result.ran, result.folder
    predicted = ran.predicted_step_seconds or 0.0  # never 0: the demo's plan has prices
    parity = f", {parity_text(ran.verified, ran.tolerance)[0]}" if ran.verified and ran.tolerance else ""
    decided = (
        f"{len(plan.steps[0].micro_batches)} micro-batches; no plan of this job can be more than "
        f"{percent(plan.outcome.gap)} faster at the measured prices"
    )
    learned = []
    if isinstance(result, MultimodalDemoResult):
        decided = f"layouts of {plural(len(plan.layouts), 'module')}: {result.decided.plan.outcome.effort}"
        least = f"no model of the text alone is below {result.least_loss:.2f}"
        learned = [f"learned     loss {ran.losses[0]:.2f} → {ran.losses[-1]:.2f}; {least}"]
    ratio = f"{ran.step_seconds / predicted:.2f}×"
    lines = [
        f"measured    layers, collectives and the optimizer on this machine ({result.profile.provenance.machine})",
        f"decided     {decided}",
        f"ran         {len(ran.losses)} steps of training on 4 processes{parity}",
        *learned,
        f"predicted   {duration(predicted)} a step; measured {duration(ran.step_seconds)} ({ratio})",
        f"files       {', '.join(str(folder / name) for name in FILES)}",
        f"next        edit {folder / 'job.yaml'}, then: planner solve {folder / 'job.yaml'}",
    ]
    yield Text()
    yield Panel("\n".join(lines), title="what just happened", title_align="left")
