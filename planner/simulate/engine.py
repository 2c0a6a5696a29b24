"""Simulates the tasks of a plan: each becomes an activity on the streams of its ranks, and the event clock runs them.

A rank has one lane per stream. A lane admits tasks in program order, as many at once as fit into a capacity of 1, but
at most one of each group: tasks that take the whole device run one after the other, groups that share a device run
concurrently as far as their shares allow, whatever their micro-batches; transfers have streams of their own. A task
starts when every lane of its ranks has admitted it and all that it waits for has ended, so a collective begins when
its last rank arrives.

Where passes share a device, the host is a lane too: one thread launches what its rank runs, in program order, so a pass
starts when those before it have been launched. Launches wait for nothing else, and run ahead of the device.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from planner.costs import Cost, StepPrices
from planner.errors import InputError
from planner.plan.mesh.identical_groups import NO_IDENTICAL_GROUPS, IdenticalGroups, representative_ranks
from planner.plan.task import Task
from planner.plan.tasks.merge_orders import check_ids
from planner.plan.tasks.ragged_array import RaggedArray, ragged
from planner.plan.tasks.task_table import TaskTable, numbered
from planner.simulate.activities import NO_ACTIVITY, Activities, ActivityTimes
from planner.simulate.compiled_clock import run_activities
from planner.simulate.timeline import TaskEvent, Timeline

Price = Callable[[Task], Cost]
HeldStreams = Mapping[str, tuple[str, ...]]
NO_HELD_STREAMS: HeldStreams = {}


def simulate(
    tasks: Sequence[Task],
    price: Price,
    ranks: int | None = None,
    alike: IdenticalGroups = NO_IDENTICAL_GROUPS,
    held_streams: HeldStreams = NO_HELD_STREAMS,
) -> Timeline:
    """Simulate tasks given in program order.

    `price`: the cost of a task; `ranks`: size of the job, when some ranks have no task; `alike`: ranks and groups that
    do the same as the simulated ones; `held_streams`: per phase, streams that its tasks occupy besides their own.

    Raises InputError when tasks wait for each other in a cycle, or two have the same id.
    """
    table = TaskTable.of(tasks)
    costs, ids = step_costs(table, price), table.ids
    check_ids(table)
    starts, ends, causes = (each.tolist() for each in task_times(table, costs, held_streams))
    by_number = [*ids, ""]  # a cause of NO_ACTIVITY (−1) is the last entry
    kinds = [table.kinds[number] for number in table.kind.tolist()]
    events = tuple(
        TaskEvent(id, k.phase, k.module, k.ranks, start, end, c.comm, c.source, c.spread, by_number[cause])
        for k, id, c, start, end, cause in zip(kinds, ids, costs, starts, ends, causes, strict=True)
    )
    named = 1 + max((event.ranks[-1] for event in events if event.ranks), default=-1)
    size = max(named, ranks or 0)
    return Timeline(events, max(ends, default=0.0), size, alike.ranks, alike.groups, alike.groups_of)


def simulated_end(tasks: TaskTable, price: Price) -> float:
    """Seconds of the step that `simulate` would return alone, for searches that compare many steps."""
    return float(task_times(tasks, step_costs(tasks, price), NO_HELD_STREAMS).ends.max(initial=0.0))


def step_costs(tasks: TaskTable, price: Price) -> list[Cost]:
    """The cost of each task; those that prices of a step know to be alike are priced once."""
    return price.each(tasks) if isinstance(price, StepPrices) else [price(task) for task in tasks]


def task_times(tasks: TaskTable, costs: Sequence[Cost], held_streams: HeldStreams) -> ActivityTimes:
    """When each task starts and ends, and why. Raises InputError when they wait for each other."""
    activities = task_activities(tasks, [cost.value for cost in costs], held_streams)
    launched = launched_passes(tasks, costs)
    times, ended = run_activities(with_launches(activities, tasks, launched, costs) if launched else activities)
    if not ended.all():
        raise deadlock_error(tasks.ids, activities, ended.tolist())
    return of_tasks(times, launched, len(tasks)) if launched else times


def launched_passes(tasks: TaskTable, costs: Sequence[Cost]) -> list[int]:
    """The places of passes that a thread launches which launches for several modules: on ranks where some have a share
    of the device.
    """
    sharing = {rank for kind in tasks.kinds if kind.share < 1 and kind.stream == "compute" for rank in kind.ranks}
    if not sharing:
        return []
    here = tasks.column(lambda kind: not sharing.isdisjoint(kind.ranks), np.bool_)
    return [place for place in np.flatnonzero(here).tolist() if costs[place].host]


def with_launches(
    activities: Activities, tasks: TaskTable, launched: Sequence[int], costs: Sequence[Cost]
) -> Activities:
    """The activities of tasks, then two of each launched pass on the host lanes of its ranks: its turn, for which the
    pass waits, and its launches.
    """
    n, after, lanes = activities.count, activities.after.lists(), activities.lanes.lists()
    like = representative_ranks(tasks.kinds[number].ranks for number in np.unique(tasks.kind).tolist())
    hosts: dict[int, int] = {}
    seconds = list[float]()
    for at, place in enumerate(launched):
        ranks = sorted({like[rank] for rank in tasks.kinds[tasks.kind[place]].ranks})
        own = [hosts.setdefault(rank, activities.lane_count + len(hosts)) for rank in ranks]
        lanes += [own, own]
        seconds += [0.0, costs[place].host]
        after += [[], []]  # it launches ahead of what the device waits for
        after[place] = [*after[place], n + 2 * at]
    more = len(seconds)
    return Activities(
        seconds=np.concatenate([activities.seconds, seconds]),
        lanes=ragged(lanes),
        after=ragged(after),
        queued_by=np.concatenate([activities.queued_by, np.full(more, NO_ACTIVITY)]),
        share=np.concatenate([activities.share, np.ones(more)]),
        sharer=np.concatenate([activities.sharer, np.full(more, NO_ACTIVITY)]),
        lane_count=activities.lane_count + len(hosts),
    )


def of_tasks(times: ActivityTimes, launched: Sequence[int], count: int) -> ActivityTimes:
    """The times of tasks alone; of a pass that waited for its turn at the host, the cause is what was launched
    before it.
    """
    causes = times.causes[:count].copy()
    for place in np.flatnonzero(causes >= count).tolist():
        before = int(times.causes[causes[place]])  # the launches before its turn
        causes[place] = launched[(before - count) // 2] if before >= count else NO_ACTIVITY
    return ActivityTimes(times.starts[:count], times.ends[:count], causes)


def task_activities(
    tasks: TaskTable, seconds: Sequence[float], held_streams: HeldStreams = NO_HELD_STREAMS
) -> Activities:
    """Tasks as activities of the clock."""
    lanes, lane_count = stream_lanes(tasks, held_streams)
    share = tasks.column(lambda kind: kind.share if kind.stream == "compute" else 1.0, np.float64)
    group = numbered([(kind.module, kind.group) for kind in tasks.kinds])[tasks.kind]
    return Activities(
        seconds=np.array(seconds, dtype=np.float64),
        lanes=lanes.gathered(tasks.kind),
        after=tasks.after,
        queued_by=np.full(len(tasks), NO_ACTIVITY),
        share=share,
        sharer=np.where(share < 1, group, NO_ACTIVITY),
        lane_count=lane_count,
    )


def stream_lanes(tasks: TaskTable, holding: HeldStreams) -> tuple[RaggedArray, int]:
    """The lanes that each kind of task occupies, and their number: those of the streams of its ranks. Ranks with
    exactly the same tasks share lanes.
    """
    used, first = np.unique(tasks.kind, return_index=True)
    kinds = [(number, tasks.kinds[number]) for number in used[np.argsort(first)].tolist()]
    like = representative_ranks(kind.ranks for _, kind in kinds)
    known: dict[tuple[int, str], int] = {}
    lanes: list[list[int]] = [[] for _ in tasks.kinds]
    for number, kind in kinds:
        ranks = sorted({like[rank] for rank in kind.ranks})
        streams = (kind.stream, *holding.get(kind.phase, ()))
        lanes[number] = [known.setdefault((rank, stream), len(known)) for stream in streams for rank in ranks]
    return ragged(lanes), len(known)


def deadlock_error(ids: Sequence[str], activities: Activities, ended: Sequence[bool]) -> InputError:
    """An error that names the first task that never ended: all before it did, so it waits for a later one."""
    stuck = next(i for i, done in enumerate(ended) if not done)
    awaited = next(i for i in activities.after[stuck] if not ended[i])
    return InputError(
        f"{ids[stuck]} waits for {ids[awaited]}, which cannot start before it",
        where="steps",
        fix="change `order` so that each task comes after those it waits for",
    )
