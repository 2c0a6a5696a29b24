"""Outputs of encoders that keep nothing else, while they wait for their readers.

A frozen encoder frees a forward's activations at its end, and holds its outputs until the last of its readers begins
to take them. Who reads holds them from there, and lets go of a part with each of its forwards that read. So the further
such an encoder runs ahead, the more waits where it computed.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from planner.plan.task import Task
from planner.plan.tokens.resharding import is_between_modules
from planner.simulate.timeline import TaskEvent, Timeline


class OutputBytes(NamedTuple):
    """Bytes of the outputs that a send carries, on each rank that sends and on each that reads."""

    sent: float
    read: float


class HeldChange(NamedTuple):
    """From `seconds` on, a rank holds `amount` bytes more."""

    rank: int
    seconds: float
    amount: float


def waiting_outputs(
    timeline: Timeline, tasks: Sequence[Task], output_bytes: Callable[[Task], OutputBytes]
) -> Iterator[HeldChange]:
    """Yield what ranks hold more or less of outputs that wait. `output_bytes`: of a send; zeros for what is not counted
    here.
    """
    events = {event.id: event for event in timeline.events if event.phase == "F"}
    readers = reading_forwards(tasks)
    for send in tasks:
        if send.phase != "send" or send.of != "F" or not is_between_modules(send):
            continue
        size, computed = output_bytes(send), events.get(send.after[0])
        if not size.sent or computed is None:
            continue
        by_rank: dict[int, list[TaskEvent]] = defaultdict(list)
        for reader in readers[send.id]:
            for rank in {*reader.ranks} & {*send.peers}:
                by_rank[rank].append(events[reader.id])
        begins = {rank: min(each.start for each in reading) for rank, reading in by_rank.items()}
        taken = max(begins.values(), default=computed.end)
        for rank in send.ranks:
            yield HeldChange(rank, computed.end, size.sent)
            yield HeldChange(rank, max(taken, computed.end), -size.sent)
        for rank, reading in by_rank.items():
            yield HeldChange(rank, begins[rank], size.read)
            yield from (HeldChange(rank, each.end, -size.read / len(reading)) for each in reading)


def reading_forwards(tasks: Sequence[Task]) -> dict[str, list[Task]]:
    """Return the forwards that wait for what each send between modules carries, by the id of the send."""
    sent_by = {
        task.id: task.after[0] for task in tasks if task.phase == "recv" and task.of == "F" and is_between_modules(task)
    }
    readers: dict[str, list[Task]] = defaultdict(list)
    for task in tasks if sent_by else ():
        if task.phase == "F":
            for id in task.after:
                if id in sent_by:
                    readers[sent_by[id]].append(task)
    return readers
