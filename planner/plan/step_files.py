"""Step files: further steps of a plan, called their head. The head and a step file together are a complete plan.

The planning process and the run exchange them through a folder (files/folder_queue.py) only; both check what they read.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, ClassVar

import msgspec

from planner import files
from planner.errors import InputError
from planner.files import TAKEN
from planner.plan.legal.plan_laws import require_legal
from planner.plan.plan_file import NO_OUTCOME, NO_PREDICTION, Plan, Step
from planner.specs.base import Amount, Index, Spec, with_fields
from planner.specs.workload.items import Size

STEP_FILE, SPENT_FILE = "step.yaml", "spent.yaml"  # files of a step's folder
PLANNER_LOCK, RUN_LOCK = "planner.lock", "run.lock"  # of the folder: held while the planner, and the run, is alive
FAILED_FILE = "failed.txt"  # of the folder: why planning failed

Effort = Annotated[int, msgspec.Meta(ge=0, le=4)]  # 0: balanced without a search


class StepFile(Spec, kw_only=True):
    """A step file, `planner.step/1`: one batch, on groups that the head has."""

    FORMAT: ClassVar[str] = "planner.step/1"
    format: str
    head: str  # digest of the plan that it follows
    number: Index  # of the step in its run
    first_row: Index  # the batch's first sample of the data
    effort: Effort
    step: Step  # with its outcome and prediction; of several modules only once it has been simulated
    dropped: tuple[Index, ...] = ()  # samples of the batch that were too long for the job
    left_out: dict[str, tuple[Index, ...]] = {}  # by module: items whose readers were dropped or had no room for them
    feeds: dict[str, dict[Index, Index | tuple[Index, ...]]] = {}  # as in a plan: item → item or items that read it
    items: dict[str, dict[Index, Size]]  # by module: item (its sample's number) → its size, after rounding


class PlanningTime(Spec, kw_only=True):
    """Seconds spent on planning a step. They are a file of their own, so that a step's bytes depend on no clock."""

    FORMAT: ClassVar[str] = "planner.spent/1"
    format: str
    effort: Effort  # the last that was tried
    seconds: Amount


def step_folder(plan: Plan, base: Path, name: str) -> Path | None:
    """The folder of the steps that follow a plan, within that of its file, `base`; None: there are none. `name`: of the
    plan in errors. Raises InputError where it is elsewhere: it is emptied before a run.
    """
    return files.inside(base, plan.then.folder, f"{name} (then.from)") if plan.then else None


class PlanHead:
    """A plan that step files continue, with its digest, which is computed once."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.digest = hashlib.sha256(files.dump(plan).encode()).hexdigest()[:16]

    def complete_plan(self, file: StepFile, name: str) -> Plan:
        """Return a plan of this step alone, checked; `name` is the file's name in errors.

        Raises InputError where the step is of another head, has no outcome or prediction, or is illegal. Steps of
        several modules may have neither yet.
        """
        if file.head != self.digest:
            raise InputError("this step follows another plan", where=name, fix="remove it: it will be planned again")
        outcome, prediction = file.step.outcome, file.step.prediction
        if len(self.plan.layouts) > 1 and outcome is None and prediction is None:
            outcome, prediction = NO_OUTCOME, NO_PREDICTION
        if outcome is None or prediction is None:
            raise InputError(
                "the step has no outcome or no prediction", where=name, fix="give it outcome and prediction"
            )
        head = self.plan
        plan = with_fields(
            head,
            made=with_fields(head.made, batches=1, first_row=file.first_row),
            outcome=outcome,
            prediction=prediction,
            steps=(file.step,),
            then=None,
            uses=with_fields(
                head.uses, items=file.items, feeds=file.feeds, dropped=file.dropped, left_out=file.left_out
            ),
        )
        try:
            require_legal(plan, name)
        except InputError as error:
            error.where = place_in_file(error.where)
            raise
        return plan

    def read_plan(self, path: Path) -> Plan:
        """Read the step of a slot's folder as a complete plan. Raises InputError."""
        return self.complete_plan(files.read(path / STEP_FILE, StepFile), str(path / STEP_FILE))


def place_in_file(where: str) -> str:
    """Return a place of the complete plan, `NAME (uses.feeds.vit)`, as one of the step file: `NAME (feeds.vit)`."""
    for of_plan, of_step in (("(uses.", "("), ("(steps[0]", "(step")):
        where = where.replace(of_plan, of_step)
    return where


def trained_steps(plan: Plan, folder: Path | None, count: int, first: int = 0) -> Iterator[tuple[Plan, int]]:
    """For each of `count` steps from number `first`, its plan, and the index of the step in that plan."""
    head = PlanHead(plan)
    for number in range(first, first + count):
        if folder is None or number < len(plan.steps):
            yield plan, number % len(plan.steps)
        else:
            yield head.read_plan(folder / TAKEN / str(number)), 0
