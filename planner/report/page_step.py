"""A step to be drawn, with facts about its tasks: simulated from a plan, or read from a recording."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from planner.plan.plan_file import Plan, assignments
from planner.scoring import Score
from planner.simulate import MemoryCurves, RecordedStep, Timeline


class TaskFact(NamedTuple):
    """Group and tokens of a task, and its share of the device."""

    group: str
    tokens: int = 0
    share: float = 1.0


class GroupItems(NamedTuple):
    """Items of a group in a micro-batch, in all layers of a module or in some."""

    module: str  # `vit`, or `vit[0-11]`
    micro_batch: int
    group: str
    items: tuple[int, ...]
    sizes: tuple[int, ...]  # tokens of each


@dataclass(frozen=True, slots=True)
class PageStep:
    """One step, ready to be drawn."""

    title: str
    label: str  # simulated or measured
    timeline: Timeline
    facts: Mapping[str, TaskFact] = field(default_factory=dict)  # by id of task
    group_items: tuple[GroupItems, ...] = ()
    memory: MemoryCurves | None = None


def simulated_step(plan: Plan, number: int, score: Score) -> PageStep:
    """A simulated step of a plan, with groups, tokens and items of its tasks, and its memory over time."""
    return PageStep(
        title=f"step {number}",
        label="simulated",
        timeline=score.timeline,
        facts={task.id: TaskFact(task.group, task.tokens, task.share) for task in score.tasks},
        group_items=group_items(plan, number),
        memory=score.memory,
    )


def group_items(plan: Plan, number: int) -> tuple[GroupItems, ...]:
    """Items of every group and micro-batch of a step."""
    groups = []
    for at, micro_batch in enumerate(plan.steps[number].micro_batches):
        for a in assignments(plan, micro_batch):
            sizes = tuple(plan.uses.tokens(a.module, item) for item in a.items)
            module = a.module if a.layers is None else f"{a.module}[{a.layers}]"
            groups.append(GroupItems(module, at, a.group, a.items, sizes))
    return tuple(groups)


def recorded_step(title: str, step: RecordedStep) -> PageStep:
    """A recorded step; recordings state group and tokens of a task, but not its items."""
    facts = {task: TaskFact(group, step.tokens.get(task, 0)) for task, group in step.groups.items()}
    return PageStep(title, step.label, step.timeline, facts)


def task_counts(timeline: Timeline) -> list[float]:
    """Number of tasks for which each event stands: ranks that were not simulated equal a simulated one."""
    if not timeline.representative_rank:
        return [1.0] * len(timeline.events)
    doing = timeline.rank_multiplicity()
    count_of = {ranks: doing(ranks) / (len(ranks) or 1) for ranks in {event.ranks for event in timeline.events}}
    return [count_of[event.ranks] for event in timeline.events]
