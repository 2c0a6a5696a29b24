"""The timeline of a long step from that of a shorter one, whose pipelines have come to repeat themselves.

Starts and ends of tasks are the latest of others', plus constants: x(k) = A ⊗ x(k − 1) ⊕ B ⊗ x(k − 2) in max-plus
algebra, where x(k) are all times of round k, which waits for no more than the two rounds before it. If all of them are
later by the same λ in two rounds after each other, they are so in every further round of the same work, by induction;
and what comes behind the last round comes later by λ for each round. So nothing is estimated: where a watched round
differs, there is no repetition, and more of the step is simulated.
"""

from collections.abc import Hashable, Sequence
from dataclasses import replace
from itertools import pairwise

from planner.plan.task import Task
from planner.plan.tasks.rounds import BEHIND, WATCHED, Rounds
from planner.simulate.timeline import Repetition, TaskEvent, Timeline

EQUAL = 1e-10  # of a round: differences of rounds that are rounding


def repeated(timeline: Timeline, tasks: Sequence[Task], rounds: Rounds) -> Timeline | None:
    """The timeline of the step from which rounds were left out, given that of what is left; None where the watched
    rounds do not take equally long.
    """
    each: list[dict[Hashable, int]] = [{} for _ in range(WATCHED)]
    numbers = []
    for place, task in enumerate(tasks):
        at = rounds.of(task)
        numbers.append(at.number)
        if 0 <= at.number < WATCHED:
            each[at.number][at.within] = place
    seconds = round_seconds(timeline.events, each)
    if seconds is None:
        return None
    later = {one[within]: other[within] for one, other in pairwise(each) for within in one}
    repetition = Repetition(rounds.left_out, rounds.micro_batches, seconds, tuple(numbers), later)
    return replace(timeline, step_seconds=timeline.step_seconds + rounds.left_out * seconds, repetition=repetition)


def round_seconds(events: Sequence[TaskEvent], each: Sequence[dict[Hashable, int]]) -> float | None:
    """Seconds of a round, by which all tasks of one are later than in the round before; None where they differ."""
    first, *_, last = each
    if any(one.keys() != first.keys() for one in each):
        return None
    starts = [min(events[place].start for place in one.values()) for one in (first, last)]
    seconds = (starts[1] - starts[0]) / (len(each) - 1)
    for one, other in pairwise(each):
        for within, place in one.items():
            now, then = events[place], events[other[within]]
            apart = max(abs(then.start - now.start - seconds), abs(then.end - now.end - seconds))
            if apart > EQUAL * seconds:
                return None
    return seconds


def abridged_timeline(timeline: Timeline) -> Timeline:
    """The timeline with the simulated events alone, each at its time in the whole step: rounds are left out."""
    repetition = timeline.repetition
    if repetition is None:
        return timeline
    by, seconds = repetition.rounds * repetition.micro_batches, repetition.rounds * repetition.seconds
    events = (
        later_event(event, by, seconds) if number == BEHIND else event
        for event, number in zip(timeline.events, repetition.numbers, strict=True)
    )
    return replace(timeline, events=tuple(events), repetition=None)


def abridged_tasks(timeline: Timeline, tasks: Sequence[Task]) -> tuple[Task, ...]:
    """The tasks that were simulated, each with its number in the whole step, as `abridged_timeline` has them."""
    repetition = timeline.repetition
    if repetition is None:
        return tuple(tasks)
    by = repetition.rounds * repetition.micro_batches
    numbered = zip(tasks, repetition.numbers, strict=True)
    return tuple(later_task(task, by) if number == BEHIND else task for task, number in numbered)


def whole_timeline(timeline: Timeline) -> Timeline:
    """The timeline with an event for every task, also of rounds that were not simulated."""
    repetition = timeline.repetition
    if repetition is None:
        return timeline
    events = [event for event, number in zip(timeline.events, repetition.numbers, strict=True) if number < BEHIND]
    again = [event for event, number in zip(timeline.events, repetition.numbers, strict=True) if number == WATCHED - 1]
    for times in range(1, repetition.rounds + 1):
        events += [later_event(event, times * repetition.micro_batches, times * repetition.seconds) for event in again]
    by, seconds = repetition.rounds * repetition.micro_batches, repetition.rounds * repetition.seconds
    rest = (event for event, number in zip(timeline.events, repetition.numbers, strict=True) if number == BEHIND)
    events += [later_event(event, by, seconds) for event in rest]
    return replace(timeline, events=tuple(events), repetition=None)


def later_event(event: TaskEvent, micro_batches: int, seconds: float) -> TaskEvent:
    """An event as it is so many micro-batches and seconds later."""
    id, cause = later_id(event.id, micro_batches), later_id(event.cause, micro_batches)
    return event._replace(id=id, start=event.start + seconds, end=event.end + seconds, cause=cause)


def later_id(id: str, micro_batches: int) -> str:
    """The id that a task has so many micro-batches later."""
    if not id:
        return id
    head, phase, number, group = id.split("/", 3)
    return id if number == "step" else f"{head}/{phase}/{int(number) + micro_batches}/{group}"


def whole_tasks(timeline: Timeline, tasks: Sequence[Task]) -> tuple[Task, ...]:
    """A task for every event of the whole timeline. A copied task keeps the items of the simulated one: as many and of
    the same lengths, but not the same ones.
    """
    repetition = timeline.repetition
    if repetition is None:
        return tuple(tasks)
    numbered = [*zip(tasks, repetition.numbers, strict=True)]
    again = [task for task, number in numbered if number == WATCHED - 1]
    whole = [task for task, number in numbered if number < BEHIND]
    for times in range(1, repetition.rounds + 1):
        whole += [later_task(task, times * repetition.micro_batches) for task in again]
    by = repetition.rounds * repetition.micro_batches
    return (*whole, *(later_task(task, by) for task, number in numbered if number == BEHIND))


def later_task(task: Task, micro_batches: int) -> Task:
    """A task as it is so many micro-batches later."""
    after = tuple(later_id(id, micro_batches) for id in task.after)
    number = None if task.micro_batch is None else task.micro_batch + micro_batches
    return Task(
        task.module, task.layers, task.phase, number, task.group, task.ranks, task.sizes, task.items, task.degree,
        task.share, task.ring, task.offload, task.of, task.peers, after, task.parts,
    )  # fmt: skip
