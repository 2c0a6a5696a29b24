"""The steps that follow a plan, one file each: the plan, called their head, and one of them are a whole plan again.

Whoever plans them and whoever trains them meet in a folder (files/slots.py) and nowhere else; both check what is there.
"""

import hashlib
from pathlib import Path
from typing import Annotated, ClassVar

import msgspec

from planner import files
from planner.errors import InputError
from planner.plan.legal import require_legal
from planner.plan.model import Plan, Step
from planner.specs.base import Amount, Index, Spec, changed
from planner.specs.items import Size

STEP, SPENT = "step.yaml", "spent.yaml"  # the files of a slot
PLANNER_LOCK, RUN_LOCK = "planner.lock", "run.lock"  # of the folder: held as long as the one and the other live
FAILED = "failed.txt"  # of the folder: why planning ended

Effort = Annotated[int, msgspec.Meta(ge=0, le=4)]  # 0: balanced, not searched


class StepFile(Spec, kw_only=True):
    """`planner.step/1`: one batch, on groups of the head alone."""

    FORMAT: ClassVar[str] = "planner.step/1"
    format: str
    head: str  # digest of the plan it follows
    number: Index  # of the step in its run
    first_row: Index  # of the data
    effort: Effort
    step: Step  # with its outcome and prediction
    dropped: tuple[Index, ...] = ()  # rows of the batch that were too long for the job
    items: dict[str, dict[Index, Size]]  # per module: item (data row) → its size, after rounding


class Spent(Spec, kw_only=True):
    """What planning a step took so far. It lies beside the step, whose bytes say nothing of clocks."""

    FORMAT: ClassVar[str] = "planner.spent/1"
    format: str
    effort: Effort  # that was tried last
    seconds: Amount


class Head:
    """A plan that others continue; its digest is made once."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.digest = hashlib.sha256(files.dump(plan).encode()).hexdigest()[:16]

    def whole(self, file: StepFile, name: str) -> Plan:
        """A legal plan of this step alone; `name` is what errors call the file. Raises InputError."""
        if file.head != self.digest:
            raise InputError("this step follows another plan", where=name, fix="remove it: it will be planned again")
        if file.step.outcome is None or file.step.prediction is None:
            raise InputError("the step does not say what it is worth", where=name, fix="give it outcome and prediction")
        head = self.plan
        plan = changed(
            head,
            made=changed(head.made, batches=1, first_row=file.first_row),
            outcome=file.step.outcome,
            prediction=file.step.prediction,
            steps=(file.step,),
            then=None,
            uses=changed(head.uses, items=file.items, dropped=file.dropped),
        )
        require_legal(plan, name)
        return plan

    def read(self, path: Path) -> Plan:
        """The step of a slot as a whole plan."""
        return self.whole(files.read(path / STEP, StepFile), str(path / STEP))
