"""What trainers of several tasks do today, in place of waves: baselines with the same prices.

sequential     each tower on all replicas, or fewer where it is quicker there, one after another
task_by_task   each task on all replicas, its towers one after another: one that two tasks read runs twice
marginal_gain  each task on replicas of its own, given one by one to that which gains most; where there are more tasks
               than replicas, each on one, the longest first to that which has least (Spindle's task-level baseline,
               arXiv 2409.03365, section 6).
"""

from collections.abc import Mapping, Sequence
from functools import partial

from planner.costs import TowerSeconds
from planner.specs.inputs import Inputs
from planner.strategies.waves.wave_plan import TowerPass


def sequential(towers: Mapping[str, TowerSeconds], replicas: int) -> list[TowerPass]:
    """Each tower by itself, the longest first."""
    passes, start = list[TowerPass](), 0.0
    for tower in towers.values():
        count = len(tower.samples)
        width = min(range(1, min(replicas, count) + 1), key=lambda width: (tower.seconds(width, count), width))
        passes.append(TowerPass(tower.name, tuple(tower.samples), tuple(range(width)), start))
        start += tower.seconds(width, count)
    return passes


def marginal_gain(inputs: Inputs, towers: Mapping[str, TowerSeconds], replicas: int) -> list[TowerPass]:
    """Each task by itself, on replicas that no other has while there are enough."""
    tasks, seconds = inputs.model.tasks, partial(task_seconds, inputs, towers)
    if len(tasks) > replicas:
        return longest_first(inputs, towers, [(replica,) for replica in range(replicas)])
    widths = dict.fromkeys(tasks, 1)
    for _ in range(replicas - len(tasks)):
        gains = {task: seconds(task, width) - seconds(task, width + 1) for task, width in widths.items()}
        widths[max(gains, key=lambda task: gains[task])] += 1
    passes, first = list[TowerPass](), 0
    for task, width in widths.items():
        passes += task_passes(inputs, towers, task, tuple(range(first, first + width)), 0.0)
        first += width
    return passes


def task_seconds(inputs: Inputs, towers: Mapping[str, TowerSeconds], task: str, replicas: int) -> float:
    """Seconds of the towers of a task one after another on so many replicas."""
    count = len(inputs.batches[0].tasks[task])
    return sum(towers[name].seconds(min(replicas, count), count) for name in inputs.model.tasks[task].modules)


def longest_first(
    inputs: Inputs, towers: Mapping[str, TowerSeconds], places: Sequence[Sequence[int]]
) -> list[TowerPass]:
    """Each task by itself on one of some places, all of as many replicas: the longest first to that which has least."""
    passes, busy = list[TowerPass](), [0.0] * len(places)
    seconds = {task: task_seconds(inputs, towers, task, len(places[0])) for task in inputs.model.tasks}
    for task in sorted(seconds, key=lambda task: -seconds[task]):
        least = busy.index(min(busy))
        passes += task_passes(inputs, towers, task, places[least], busy[least])
        busy[least] += seconds[task]
    return passes


def task_passes(
    inputs: Inputs, towers: Mapping[str, TowerSeconds], task: str, replicas: Sequence[int], start: float
) -> list[TowerPass]:
    """The towers of a task one after another on the same replicas, no more of them than it has samples."""
    samples, passes = inputs.batches[0].tasks[task], list[TowerPass]()
    own = tuple(replicas[: len(samples)])
    for name in inputs.model.tasks[task].modules:
        passes.append(TowerPass(name, tuple(samples), own, start))
        start += towers[name].seconds(len(own), len(samples))
    return passes
