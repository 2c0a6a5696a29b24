"""Random tasks for property tests, and what ranks hold while tasks run."""

import numpy as np
from hypothesis import strategies as st

from planner.costs.cost_lines import Cost
from planner.plan.task import Task
from planner.plan.tasks.task_table import TaskTable
from planner.simulate import MemoryCurves, TaskSpans, Timeline, simulate_memory
from planner.specs.base import Layers, Ranks

PHASES = ("F", "B", "gather", "send", "recv", "offload")


def task(number: int, ranks=(0,), phase="F", share=1.0, group="g") -> Task:
    return Task("m", Layers((0,)), phase, number, group, Ranks(ranks), share=share)


@st.composite
def programs(draw, shared: bool = True):
    """Tasks in an order in which each comes after what it waits for, and a price for each."""
    tasks: list[Task] = []
    for number in range(draw(st.integers(1, 25))):
        ranks = sorted(draw(st.sets(st.integers(0, 3), min_size=1)))
        after = draw(st.sets(st.integers(0, number - 1), max_size=3)) if number else ()
        share = draw(st.sampled_from((1.0, 1.0, 0.5, 0.3, 0.1))) if shared else 1.0
        drawn = task(number, ranks, draw(st.sampled_from(PHASES)), share, draw(st.sampled_from("ghk")))
        tasks.append(drawn.with_dependencies(*(tasks[i].id for i in sorted(after)), "m[0]/F/99/unknown"))
    seconds = draw(st.lists(st.integers(0, 8), min_size=len(tasks), max_size=len(tasks)))
    costs = {t.id: Cost(s / 4, "fitted", 0.1, s / 16) for t, s in zip(tasks, seconds, strict=True)}
    return tasks, lambda t: costs[t.id]


def by_lane(tasks: list[Task], timeline: Timeline) -> dict:
    """(rank, stream) → its tasks with their events, in program order."""
    lanes: dict = {}
    for t, event in zip(tasks, timeline.events, strict=True):
        for rank in t.ranks:
            lanes.setdefault((rank, t.stream), []).append((t, event))
    return lanes


def memory_of(timeline: Timeline, tasks, activation_bytes, state_bytes, recomputed_bytes=lambda t: 0.0) -> MemoryCurves:
    """Memory curves where a forward keeps some bytes of activations, and a backward holds others besides."""
    kept = np.array([activation_bytes(t) if t.phase == "F" else 0.0 for t in tasks])
    recomputed = np.array([recomputed_bytes(t) if t.phase in ("B", "I") else 0.0 for t in tasks])
    return simulate_memory(TaskSpans.of(timeline), TaskTable.of(tasks), kept, state_bytes, recomputed)
