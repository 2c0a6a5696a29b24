"""A step in time, with what is to be said of its tasks: simulated from a plan, or read back from a recording."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from planner.plan.model import Plan, assignments
from planner.simulate import Memory, Timeline
from planner.simulate.recorded import Recorded
from planner.verify.score import Score


class Fact(NamedTuple):
    """Of a task."""

    group: str
    tokens: int = 0


class Held(NamedTuple):
    """What a group works on in a micro-batch, in all layers of a module or in some."""

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
    """A step of a plan."""
    return Shown(
        title=f"step {number}",
        label="simulated",
        timeline=score.timeline,
        facts={task.id: Fact(task.group, task.tokens) for task in score.tasks},
        held=held(plan, number),
        memory=score.memory,
    )


def held(plan: Plan, number: int) -> tuple[Held, ...]:
    """Every assignment of a step."""
    found = []
    for at, row in enumerate(plan.steps[number].micro_batches):
        for a in assignments(plan, row):
            sizes = tuple(plan.uses.tokens(a.module, item) for item in a.items)
            module = a.module if a.layers is None else f"{a.module}[{a.layers}]"
            found.append(Held(module, at, a.group, a.items, sizes))
    return tuple(found)


def recorded(title: str, step: Recorded) -> Shown:
    """A recording says of its tasks which group worked on how many tokens, and not on which items."""
    facts = {task: Fact(group, step.tokens.get(task, 0)) for task, group in step.groups.items()}
    return Shown(title, step.label, step.timeline, facts)


def tasks_of(timeline: Timeline) -> list[float]:
    """For how many tasks each event stands: ranks that were not simulated do what their like does."""
    if not timeline.like:
        return [1] * len(timeline.events)
    doing = timeline.doing()
    stand = {ranks: doing(ranks) / (len(ranks) or 1) for ranks in {event.ranks for event in timeline.events}}
    return [stand[event.ranks] for event in timeline.events]
