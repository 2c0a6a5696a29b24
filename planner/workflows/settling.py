"""The workflow of `planner profile --settle`: layouts that predictions cannot tell apart are trained in turn, a few
steps each, on the machine that will train.
"""

from dataclasses import dataclass
from pathlib import Path
from statistics import median

from planner import files, pipeline
from planner.callbacks import OnProgress, silent
from planner.errors import InputError
from planner.online import inputs_of_plan
from planner.plan.descriptions import alternative_text
from planner.plan.plan_file import Plan
from planner.scoring import SETTLING_ROUNDS, SETTLING_STEPS, undecided_order
from planner.why import alternative_inputs
from planner.workflows import evidence
from planner.workflows.interrupts import exit_if_interrupted


@dataclass(frozen=True, slots=True)
class Contender:
    """A plan that may be the quickest, and its file."""

    text: str
    path: Path
    plan: Plan


@dataclass(frozen=True, slots=True)
class MeasuredContender:
    """A contender with what its runs took."""

    contender: Contender
    seconds: tuple[float, ...]  # of a step, the median of each run

    @property
    def predicted_seconds(self) -> float:
        """Of a mean step."""
        plan = self.contender.plan
        return plan.prediction.step_seconds / len(plan.steps)

    @property
    def measured_seconds(self) -> float:
        """Of a step, the median over its runs."""
        return median(self.seconds)


@dataclass(frozen=True, slots=True)
class SettledOrder:
    """Contenders by their measured time, the quickest first."""

    measured: tuple[MeasuredContender, ...]

    @property
    def is_clear(self) -> bool:
        """Whether no run of another was as quick as any of the quickest."""
        best, *others = self.measured
        return all(max(best.seconds) < min(other.seconds) for other in others)


def settle(path: Path, on_run: OnProgress = silent) -> SettledOrder:
    """Train the plan at `path` and its ties in turn; their plan files are written beside it, where its job is.

    Raises InputError where there is no tie, or the plan cannot run here; then the files are there to be run elsewhere.
    """
    contenders = tied_plans(path)
    seconds: list[list[float]] = [[] for _ in contenders]
    for done in range(SETTLING_ROUNDS * len(contenders)):
        at = done % len(contenders)
        on_run(done, SETTLING_ROUNDS * len(contenders), contenders[at].path.name)
        seconds[at].append(trained_seconds(contenders[at]))
    measured = [MeasuredContender(each, tuple(own)) for each, own in zip(contenders, seconds, strict=True)]
    return SettledOrder(tuple(sorted(measured, key=lambda each: each.measured_seconds)))


def tied_plans(path: Path) -> list[Contender]:
    """The plan and its ties, each solved again as its own plan file. Raises InputError where there is none."""
    plan = pipeline.read_plan(path)
    order = undecided_order(plan)
    if not order.ties:
        close = "no alternative is so close that predictions could not tell it from the plan"
        what = "no job asks for the alternatives of several tasks" if plan.uses.tasks else close
        raise InputError(what, where=f"{path} (alternatives)", fix="nothing: planner run trains the plan")
    inputs = inputs_of_plan(plan, path.parent)
    found = [Contender("the plan", path, plan)]
    for number, tried in enumerate(order.ties, 1):
        tied = pipeline.plan_of(alternative_inputs(inputs, plan, tried))
        own = path.with_suffix(f".tie-{number}.yaml")
        files.write(own, tied)
        found.append(Contender(alternative_text(tried, plan.made.strategy), own, tied))
    return found


def trained_seconds(contender: Contender) -> float:
    """Seconds of a step of a short run, the first left out; it is recorded in the user's ledger of runs."""
    from planner.runtime import RunOptions

    seconds: list[float] = []
    ran = pipeline.run(
        contender.plan,
        RunOptions(steps=SETTLING_STEPS, base=contender.path.parent, source=str(contender.path)),
        lambda progress: seconds.append(progress.seconds),
    )
    exit_if_interrupted(ran)
    evidence.record_run(ran)
    return median(seconds[1:])
