"""Ranks whose part another rank was simulated for, with tasks and events of their own: those of their own group."""

from collections.abc import Collection
from dataclasses import replace

from planner.plan.task import Task
from planner.simulate.slices import Traced
from planner.simulate.timeline import Event, Timeline
from planner.specs.base import Ranks


def unfolded(traced: Traced, ranks: Collection[int]) -> Traced:
    """The step, in which each of these ranks has events, whether it was simulated or not.

    A task of theirs has the items of the simulated group: as many, of the same sizes, but not the same ones. Its groups
    then name, for each group that none of these ranks is in, the one among theirs that does the same.
    """
    timeline = traced.timeline
    if not timeline.groups:
        return traced
    own: dict[str, Own] = {}  # by group
    wanted = {timeline.group_of[rank] for rank in ranks if rank in timeline.group_of}
    for rank, group in timeline.group_of.items():
        if group in wanted:
            own.setdefault(group, Own(group, timeline.groups[group])).rank[timeline.like[rank]] = rank
    doing: dict[str, list[Own]] = {}  # by the group that was simulated
    for each in own.values():
        doing.setdefault(each.simulated, []).append(each)
    tasks, events = list[Task](), list[Event]()
    group_of = {task.id: task.group for task in traced.tasks}
    for task in traced.tasks:
        tasks += [task, *(each.task(task) for each in doing.get(task.group, ()))]
    for event in timeline.events:
        events += [event, *(each.event(event) for each in doing.get(group_of[event.id], ()))]
    whole = Timeline(
        events=tuple(events),
        step_seconds=timeline.step_seconds,
        ranks=timeline.ranks,
        like={rank: like for rank, like in timeline.like.items() if timeline.group_of[rank] not in own},
        groups=named(timeline.groups, tasks, ranks),
        group_of={rank: group for rank, group in timeline.group_of.items() if group not in own},
    )
    return replace(traced, timeline=whole, tasks=tuple(tasks))


class Own:
    """A group that was not simulated, by the one that was."""

    def __init__(self, group: str, simulated: str) -> None:
        self.group, self.simulated = group, simulated
        self.rank: dict[int, int] = {}  # rank of the simulated group → the one in its place

    def task(self, of: Task) -> Task:
        after = tuple(self.id(awaited) for awaited in of.after)
        return replace(of, group=self.group, ranks=self.ranks(of.ranks), peers=self.ranks(of.peers), after=after)

    def event(self, of: Event) -> Event:
        return of._replace(id=self.id(of.id), ranks=self.ranks(of.ranks), cause=self.id(of.cause))

    def id(self, of: str) -> str:
        head = of.removesuffix(f"/{self.simulated}")
        return of if head == of else f"{head}/{self.group}"

    def ranks(self, of: Ranks) -> Ranks:
        return Ranks(self.rank.get(rank, rank) for rank in of)


def named(groups: dict[str, str], tasks: Collection[Task], ranks: Collection[int]) -> dict[str, str]:
    """`groups`: each group → the simulated one of its kind. Of those without a task on `ranks`: one that has some."""
    asked = {*ranks}
    there = {task.group for task in tasks if not asked.isdisjoint(task.ranks)}
    kinds = {**groups, **{simulated: simulated for simulated in groups.values()}}
    first: dict[str, str] = {}
    for group, kind in kinds.items():
        if group in there:
            first.setdefault(kind, group)
    return {group: first[kind] for group, kind in kinds.items() if kind in first and group not in there}
