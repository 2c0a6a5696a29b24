"""Keeps the next steps planned: each at once as it is quickest, then better, until it is taken or its deadline is over.

All that is known stands in the folder: who is started again goes on where it stands. Efforts rise by one; only what is
better is written, so a step on offer only ever becomes better.
"""

from dataclasses import dataclass, replace
from time import perf_counter

from planner import files
from planner.errors import InputError
from planner.files.slots import Slots
from planner.online.batches import Batches
from planner.online.decide import decide
from planner.plan.model import Plan
from planner.plan.steps import SPENT, STEP, Head, Spent, StepFile
from planner.specs.inputs import Inputs
from planner.specs.job import PerBatch

QUICKEST = 0  # effort


@dataclass(frozen=True, slots=True)
class Draft:
    """The best plan of a batch so far, and what it took."""

    best: StepFile
    spent: Spent

    @property
    def seconds(self) -> float:
        """Of the step as it is predicted."""
        return self.best.step.prediction.step_seconds if self.best.step.prediction else float("inf")

    def texts(self) -> dict[str, str]:
        return {STEP: files.dump(self.best), SPENT: files.dump(self.spent)}


class Ahead:
    """Plans the steps that follow a head, a few ahead of the one that is taken next."""

    def __init__(self, inputs: Inputs, plan: Plan, folder: Slots, until: int | None = None) -> None:
        self.inputs, self.head, self.slots = inputs, Head(plan), folder
        self.batches = Batches(inputs)
        self.how = inputs.job.per_batch or PerBatch()
        self.first, self.until = len(plan.steps), until
        self.next = self.first  # to be taken
        self.drafts: dict[int, Draft] = {}  # of the steps ahead alone

    def advance(self) -> bool:
        """One piece of work, the most urgent; False when there is none until a step is taken."""
        ahead = self.ahead()
        self.drafts = {number: draft for number, draft in self.drafts.items() if number in ahead}
        for number in ahead:
            if number not in self.drafts:
                self.begin(number)
                return True
        for number in ahead:
            if not self.ended(self.drafts[number]):
                self.improve(number)
                return True
        return False

    def ahead(self) -> range:
        """Numbers of the steps to have ready."""
        if self.next == self.first or not self.slots.taken(self.next - 1):  # the run has begun, from where it says
            self.next = max(self.first, self.slots.next(self.first))
        while self.slots.taken(self.next):
            self.next += 1
        end = self.next + self.how.look_ahead
        return range(self.next, end if self.until is None else min(end, self.until))

    def begin(self, number: int) -> None:
        """The quickest plan of a step, or the one that is there."""
        draft = self.found(number)
        if draft is None and not self.slots.taken(number):
            draft = self.tried(number, QUICKEST, 0.0)
            if self.offers(draft):
                self.slots.offer(number, draft.texts())
        if draft:
            self.drafts[number] = draft

    def found(self, number: int) -> Draft | None:
        """What an earlier planner offered; nothing when it was for another plan."""
        if not self.slots.offered(number):
            return None
        slot = self.slots.folder / str(number)
        try:
            draft = Draft(files.read(slot / STEP, StepFile), files.read(slot / SPENT, Spent))
            self.head.whole(draft.best, str(slot))
        except InputError:
            self.slots.withdraw(number)
            return None
        return draft

    def improve(self, number: int) -> None:
        """With one more effort."""
        before = self.drafts[number]
        draft = self.tried(number, before.spent.effort + 1, before.spent.seconds)
        better = draft.seconds < before.seconds
        draft = self.drafts[number] = draft if better else replace(before, spent=draft.spent)
        if not self.how.wait:
            if better:
                self.slots.replace(number, STEP, files.dump(draft.best))
            self.slots.replace(number, SPENT, files.dump(draft.spent))
        elif self.offers(draft):
            self.slots.offer(number, draft.texts())

    def tried(self, number: int, effort: int, before: float) -> Draft:
        """A step planned with one effort; `before`: seconds spent on it already."""
        begun = perf_counter()
        asked = replace(self.inputs, first_row=self.batches.row(number), effort=effort)
        step = decide(asked, self.head, number, self.batches[number])
        seconds = before + perf_counter() - begun
        return Draft(step, Spent(format=Spent.FORMAT, effort=effort, seconds=seconds))

    def ended(self, draft: Draft) -> bool:
        """Whether nothing more will be tried."""
        deadline = self.how.deadline_ms
        late = deadline is not None and draft.spent.seconds * 1e3 >= deadline
        return late or draft.spent.effort >= self.inputs.effort

    def offers(self, draft: Draft) -> bool:
        return not self.how.wait or self.ended(draft)
