"""A step to be drawn, with facts about its tasks: simulated from a plan, or read from a recording."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from planner.plan.model import Plan, assignments
from planner.simulate import Memory, Timeline
from planner.simulate.recorded import Recorded
from planner.verify.score import Score


class Fact(NamedTuple):
    """Group and tokens of a task."""

    group: str
    tokens: int = 0


class Held(NamedTuple):
    """Items of a group in a micro-batch, in all layers of a module or in some."""

    module: str  # `vit`, or `vit[0-11]`
    micro_batch: int
    group: str
    items: tuple[int, ...]
    sizes: tuple[int, ...]  # tokens of each


@dataclass(frozen=True, slots=True)
class Shown:
    """One step, ready to be drawn."""

    title: str
    label: str  # simulated or measured
    timeline: Timeline
    facts: Mapping[str, Fact] = field(default_factory=dict)  # by id of task
    held: tuple[Held, ...] = ()
    memory: Memory | None = None


def simulated(plan: Plan, number: int, score: Score) -> Shown:
    """A simulated step of a plan."""
    return Shown(
        title=f"step {number}",
        label="simulated",
        timeline=score.timeline,
        facts={task.id: Fact(task.group, task.tokens) for task in score.tasks},
        held=held(plan, number),
        memory=score.memory,
    )


def held(plan: Plan, number: int) -> tuple[Held, ...]:
    """Items of every group and micro-batch of a step."""
    found = []
    for at, micro_batch in enumerate(plan.steps[number].micro_batches):
        for a in assignments(plan, micro_batch):
            sizes = tuple(plan.uses.tokens(a.module, item) for item in a.items)
            module = a.module if a.layers is None else f"{a.module}[{a.layers}]"
            found.append(Held(module, at, a.group, a.items, sizes))
    return tuple(found)


def recorded(title: str, step: Recorded) -> Shown:
    """A recorded step; recordings state group and tokens of a task, but not its items."""
    facts = {task: Fact(group, step.tokens.get(task, 0)) for task, group in step.groups.items()}
    return Shown(title, step.label, step.timeline, facts)


def tasks_of(timeline: Timeline) -> list[float]:
    """Number of tasks for which each event stands: ranks that were not simulated equal a simulated one."""
    if not timeline.like:
        return [1] * len(timeline.events)
    doing = timeline.doing()
    stand = {ranks: doing(ranks) / (len(ranks) or 1) for ranks in {event.ranks for event in timeline.events}}
    return [stand[event.ranks] for event in timeline.events]
