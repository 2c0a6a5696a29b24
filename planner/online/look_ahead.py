"""Plans the next steps ahead: each first with least effort, then improved until it is taken or its deadline is over.
Steps of several modules, whose layouts the head has, are planned once, and simulated when all steps ahead are there.

All state is in the step folder, from which a restarted planner resumes. Effort rises by one; only better plans are
written, so the plan on offer never gets worse.
"""

from dataclasses import dataclass, replace
from time import perf_counter

from planner import files
from planner.errors import InputError
from planner.files import FolderQueue
from planner.online.batch_stream import BatchStream
from planner.online.plan_step import plan_step, simulate_step
from planner.plan.plan_file import Plan
from planner.plan.step_files import SPENT_FILE, STEP_FILE, PlanHead, PlanningTime, StepFile
from planner.specs.inputs import Inputs
from planner.specs.job import PerBatch

LEAST_EFFORT = 0  # least effort


@dataclass(frozen=True, slots=True)
class StepDraft:
    """The best plan of a batch so far, and the effort and seconds spent."""

    best: StepFile
    spent: PlanningTime

    @property
    def seconds(self) -> float:
        """Predicted step time; infinite without a prediction."""
        return self.best.step.prediction.step_seconds if self.best.step.prediction else float("inf")

    def texts(self) -> dict[str, str]:
        """Contents of the files of this step, by name."""
        return {STEP_FILE: files.dump(self.best), SPENT_FILE: files.dump(self.spent)}


class LookAheadPlanner:
    """Plans the steps that follow a head plan, a few ahead of the next one to be taken."""

    def __init__(self, inputs: Inputs, plan: Plan, folder: FolderQueue, until: int | None = None) -> None:
        self.inputs, self.head, self.slots = inputs, PlanHead(plan), folder
        self.batches = BatchStream(inputs)
        self.options = inputs.job.per_batch or PerBatch()
        self.several = len(plan.layouts) > 1
        self.first, self.until = len(plan.steps), until
        self.next = self.first  # next step to be taken
        self.drafts: dict[int, StepDraft] = {}  # of the steps to have ready

    def advance(self) -> bool:
        """Does the most urgent planning: of one step at one effort. False when there is none until a step is taken."""
        ahead = self.steps_ahead()
        self.drafts = {number: draft for number, draft in self.drafts.items() if number in ahead}
        for number in ahead:
            if number not in self.drafts:
                self.begin(number)
                return True
        for number in ahead:
            if not self.is_final(self.drafts[number]):
                self.improve(number)
                return True
        return False

    def steps_ahead(self) -> range:
        """Numbers of the steps to have ready."""
        if self.next == self.first or not self.slots.taken(
            self.next - 1
        ):  # the run has started, and may have been resumed at a later step
            self.next = max(self.first, self.slots.next(self.first))
        while self.slots.taken(self.next):
            self.next += 1
        end = self.next + self.options.look_ahead
        return range(self.next, end if self.until is None else min(end, self.until))

    def begin(self, number: int) -> None:
        """Plans a step for the first time, unless an earlier planner offered it."""
        draft = self.offered_draft(number)
        if draft is None and not self.slots.taken(number):
            draft = self.plan_draft(number, LEAST_EFFORT)
            if self.may_offer(draft):
                self.slots.offer(number, draft.texts())
        if draft:
            self.drafts[number] = draft

    def offered_draft(self, number: int) -> StepDraft | None:
        """The plan that an earlier planner offered; None, and withdrawn, when it was for another head plan."""
        if not self.slots.offered(number):
            return None
        slot = self.slots.folder / str(number)
        try:
            draft = StepDraft(files.read(slot / STEP_FILE, StepFile), files.read(slot / SPENT_FILE, PlanningTime))
            self.head.complete_plan(draft.best, str(slot))
        except InputError:
            self.slots.withdraw(number)
            return None
        return draft

    def improve(self, number: int) -> None:
        """Plans a step again with the next effort, and keeps the better plan; of several modules, simulates it."""
        before = self.drafts[number]
        draft = self.simulated(before) if self.several else self.plan_draft(number, before.spent.effort + 1, before)
        better = draft.seconds < before.seconds
        draft = self.drafts[number] = draft if better else replace(before, spent=draft.spent)
        if not self.options.wait:
            if better:
                self.slots.replace(number, STEP_FILE, files.dump(draft.best))
            self.slots.replace(number, SPENT_FILE, files.dump(draft.spent))
        elif self.may_offer(draft):
            self.slots.offer(number, draft.texts())

    def plan_draft(self, number: int, effort: int, before: StepDraft | None = None) -> StepDraft:
        """Plans a step with one effort, after that of `before`; of several modules with the job's, as all of it is
        assigned at once.
        """
        begun = perf_counter()
        inputs = replace(self.inputs, first_row=self.batches.first_sample(number))
        inputs = inputs if self.several else replace(inputs, effort=effort)
        step = plan_step(inputs, self.head, number, self.batches[number])
        return StepDraft(step, time_spent(effort, begun, before))

    def simulated(self, before: StepDraft) -> StepDraft:
        """Simulates a step that has been assigned."""
        begun = perf_counter()
        step = simulate_step(self.inputs, self.head, before.best)
        return StepDraft(step, time_spent(self.inputs.effort, begun, before))

    def is_final(self, draft: StepDraft) -> bool:
        """Whether the deadline is over or the highest effort was tried."""
        deadline = self.options.deadline_ms
        late = deadline is not None and draft.spent.seconds * 1e3 >= deadline
        return late or draft.spent.effort >= self.inputs.effort

    def may_offer(self, draft: StepDraft) -> bool:
        """Whether the plan may be taken: with `wait`, only when it is final."""
        return not self.options.wait or self.is_final(draft)


def time_spent(effort: int, begun: float, before: StepDraft | None) -> PlanningTime:
    """The seconds since `begun`, and those spent before."""
    seconds = (before.spent.seconds if before else 0.0) + perf_counter() - begun
    return PlanningTime(format=PlanningTime.FORMAT, effort=effort, seconds=seconds)
