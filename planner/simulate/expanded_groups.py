"""Gives ranks that were not simulated tasks and events of their own, copied from the group that represents theirs."""

from collections.abc import Collection
from dataclasses import replace

from planner.plan.task import Task
from planner.simulate.timeline import TaskEvent, Timeline
from planner.simulate.trace_records import TracedStep
from planner.specs.base import Ranks


def expand_groups(traced: TracedStep, ranks: Collection[int]) -> TracedStep:
    """The step with events for each of these ranks, whether it was simulated or not.

    A copied task keeps the items of the simulated group: as many and of the same lengths, but not the same ones. In
    the result, each group that none of these ranks is in is represented by one that some of them are in.
    """
    timeline = traced.timeline
    if not timeline.representative_group:
        return traced
    own: dict[str, GroupCopy] = {}  # by group
    wanted = {timeline.group_of[rank] for rank in ranks if rank in timeline.group_of}
    for rank, group in timeline.group_of.items():
        if group in wanted:
            own.setdefault(group, GroupCopy(group, timeline.representative_group[group])).rank[
                timeline.representative_rank[rank]
            ] = rank
    copies: dict[str, list[GroupCopy]] = {}  # by the simulated group
    for each in own.values():
        copies.setdefault(each.simulated, []).append(each)
    tasks, events = list[Task](), list[TaskEvent]()
    group_of = {task.id: task.group for task in traced.tasks}
    for task in traced.tasks:
        tasks += [task, *(each.task(task) for each in copies.get(task.group, ()))]
    for event in timeline.events:
        events += [event, *(each.event(event) for each in copies.get(group_of[event.id], ()))]
    whole = Timeline(
        events=tuple(events),
        step_seconds=timeline.step_seconds,
        ranks=timeline.ranks,
        representative_rank={
            rank: like for rank, like in timeline.representative_rank.items() if timeline.group_of[rank] not in own
        },
        representative_group=rename_representatives(timeline.representative_group, tasks, ranks),
        group_of={rank: group for rank, group in timeline.group_of.items() if group not in own},
    )
    return replace(traced, timeline=whole, tasks=tuple(tasks))


class GroupCopy:
    """A group that was not simulated, as a copy of the one that represents it."""

    def __init__(self, group: str, simulated: str) -> None:
        self.group, self.simulated = group, simulated
        self.rank: dict[int, int] = {}  # rank of the simulated group → rank of this group in the same position

    def task(self, of: Task) -> Task:
        after = tuple(self.id(awaited) for awaited in of.after)
        return of.changed(group=self.group, ranks=self.ranks(of.ranks), peers=self.ranks(of.peers), after=after)

    def event(self, of: TaskEvent) -> TaskEvent:
        return of._replace(id=self.id(of.id), ranks=self.ranks(of.ranks), cause=self.id(of.cause))

    def id(self, of: str) -> str:
        head = of.removesuffix(f"/{self.simulated}")
        return of if head == of else f"{head}/{self.group}"

    def ranks(self, of: Ranks) -> Ranks:
        return Ranks(self.rank.get(rank, rank) for rank in of)


def rename_representatives(groups: dict[str, str], tasks: Collection[Task], ranks: Collection[int]) -> dict[str, str]:
    """For each group without a task on `ranks`, a group of the same kind that has one.

    `groups`: each group → the simulated group that represents it.
    """
    asked = {*ranks}
    there = {task.group for task in tasks if not asked.isdisjoint(task.ranks)}
    kinds = {**groups, **{simulated: simulated for simulated in groups.values()}}
    first: dict[str, str] = {}
    for group, kind in kinds.items():
        if group in there:
            first.setdefault(kind, group)
    return {group: first[kind] for group, kind in kinds.items() if kind in first and group not in there}
