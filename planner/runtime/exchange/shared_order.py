"""One order of communication for any two ranks: where a rank posts its receives among what it shares with their sender.

NCCL can deadlock where two ranks begin operations of two communicators in different orders. Tasks are in one order, and
their collectives and sends begin in it. A receive is posted ahead of the task that needs it, but only between the same
operations as the sender's send: the collectives of both ranks, and messages the other way.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from planner.launch.communication import RankPair
from planner.plan.task import Phase, Task
from planner.runtime.execution_order import executed_by_fsdp, execution_order, sync_members, sync_point

MessagePairs = Callable[[Task], Iterable[RankPair]]  # of a send: (sender, receiver) of each of its messages


@dataclass(frozen=True, slots=True)
class SharedOrder:
    """The order of one rank with each of those that send to it."""

    behind: Mapping[tuple[int, str], int]  # sender, id of a send → operations of both ranks that begin before it
    shared: Mapping[str, tuple[int, ...]]  # id of a collective of this rank → senders that take part


def shared_order(
    rank: int,
    tasks: Sequence[Task],
    pairs: MessagePairs,
    synchronised: Mapping[str, Collection[Phase]],
    task_gathered: Collection[str],
) -> SharedOrder:
    """The order of a step, from its tasks of all ranks. `synchronised`: by module, phases of a micro-batch in which its
    ranks synchronise; `task_gathered`: modules whose gathers and syncs FSDP2 does not issue inside those.
    """
    sends = {task.id: [*pairs(task)] for task in tasks if task.phase == "send"}
    senders = {source for each in sends.values() for source, target in each if target == rank != source}
    if not senders:
        return SharedOrder({}, {})
    members = sync_members(tasks, synchronised)
    begun: Counter[int] = Counter()  # operations with each sender so far
    behind: dict[tuple[int, str], int] = {}
    shared: dict[str, tuple[int, ...]] = {}
    passed: set[str] = set()
    for task in chain(*execution_order(tasks)):
        if task.phase == "send":
            for source, target in sorted(sends[task.id]):  # of two that send to each other, the lower rank first
                if target == rank != source:
                    behind[source, task.id] = begun[source]
                elif source == rank != target:
                    begun[target] += 1
        elif task.phase != "recv" and not executed_by_fsdp(task, task_gathered):
            point = sync_point(task, synchronised)
            if rank in task.ranks:
                shared[task.id] = tuple(sorted(senders & members[point]))
            if rank in members[point] and point not in passed:  # its tasks follow each other
                begun.update(senders & members[point])
                passed.add(point)
    return SharedOrder(behind, shared)
