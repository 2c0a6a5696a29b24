"""The greedy of Megatron-Core's hybrid context parallelism (hybrid_cp_schedule.py), micro-batch after micro-batch.

A sequence of L tokens needs the smallest power-of-two degree that holds it, and costs L²/degree. Longest first, cut
into as many queues of like cost as there are degrees; the first queue whose head can be placed gives it to a new group,
or to the least loaded group of its degree when no ranks are free. A micro-batch ends when no head can be placed, or
when degrees have fallen and loads are within 5 %; the last sequence of the heaviest group goes back while that evens
them out; and the smallest groups are doubled while ranks are idle. All ranks meet before the next micro-batch.

Assumed: a group takes no sequence beyond its tokens, since ours hold all sequences of a micro-batch at once; theirs run
one after another. Seconds are those of the problem, so a group's constant counts once.
"""

from collections import deque
from dataclasses import dataclass, field

from benchmarks.baselines.groups import longest_first, placed, powers_of_two
from planner.costs.packing_problem import PackingProblem
from planner.packing.packed_groups import PackedGroup, Packing

SLACK = 0.05  # of the largest load
QUEUE_EXCESS = 1.1


@dataclass(slots=True)
class Open:
    shape: int
    load: float  # Σ L²/degree
    left: int  # tokens
    items: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Row:
    """A micro-batch in the making."""

    problem: PackingProblem
    shapes: dict[int, int]  # item → the shape it needs
    free: int  # ranks
    groups: list[Open] = field(default_factory=list)

    def degree(self, shape: int) -> int:
        return self.problem.shapes[shape].degree

    def cost(self, item: int, shape: int) -> float:
        return self.problem.sizes[item] ** 2 / self.degree(shape)

    def target(self, item: int) -> Open | None:
        """Where an item goes: a new group, the least loaded of its degree, or nowhere."""
        shape, size = self.shapes[item], self.problem.sizes[item]
        if self.degree(shape) <= self.free:
            return Open(shape, 0.0, self.problem.shapes[shape].room)
        fitting = [group for group in self.groups if group.shape == shape and group.left >= size]
        return min(fitting, key=lambda group: group.load, default=None)

    def put(self, item: int, group: Open) -> None:
        if not group.items:
            self.groups.append(group)
            self.free -= self.degree(group.shape)
        group.items.append(item)
        group.load += self.cost(item, group.shape)
        group.left -= self.problem.sizes[item]

    def even(self) -> bool:
        loads = [group.load for group in self.groups]
        return not self.free and max(loads) - min(loads) <= SLACK * max(loads)


def hybrid_cp(problem: PackingProblem) -> Packing | None:
    shapes = needed(problem)
    if shapes is None:
        return None
    waiting, rows = longest_first(problem), []
    while waiting:
        row, waiting = next_row(Row(problem, shapes, problem.ranks), waiting)
        rows.append([PackedGroup(group.shape, tuple(group.items)) for group in row.groups])
    return placed(problem, rows)


def needed(problem: PackingProblem) -> dict[int, int] | None:
    """The smallest power-of-two shape that holds each item."""
    powers, shapes = powers_of_two(problem), {}
    for item, size in problem.sizes.items():
        holding = [shape for shape in powers if problem.shapes[shape].room >= size]
        if not holding:
            return None
        shapes[item] = holding[0]
    return shapes


def next_row(row: Row, waiting: list[int]) -> tuple[Row, list[int]]:
    """One micro-batch, and what it leaves, longest first."""
    queues = like_cost(row, waiting)
    widest = row.degree(row.shapes[waiting[0]])
    falling = False
    while queues:
        found = next(((queue, to) for queue in queues if (to := row.target(queue[0]))), None)
        if found is None:
            break
        queue, group = found
        row.put(queue.popleft(), group)
        queues = [queue for queue in queues if queue]
        falling |= row.degree(group.shape) < widest
        if falling and row.even():
            break
    left = [item for queue in queues for item in queue] + trim(row)
    double(row)
    return row, sorted(left, key=lambda item: (-row.problem.sizes[item], item))


def like_cost(row: Row, waiting: list[int]) -> list[deque[int]]:
    """Slices of about the same cost, as many as there are degrees."""
    count = len({row.shapes[item] for item in waiting})
    costs = [row.cost(item, row.shapes[item]) for item in waiting]
    most = QUEUE_EXCESS * sum(costs) / count
    queues: list[deque[int]] = [deque()]
    held = 0.0
    for number, (item, cost) in enumerate(zip(waiting, costs, strict=True)):
        if queues[-1] and (held + cost > most or len(waiting) - number <= count - len(queues)):
            queues.append(deque())
            held = 0.0
        queues[-1].append(item)
        held += cost
    return queues


def trim(row: Row) -> list[int]:
    """Take the last item from the heaviest group while that brings the loads together; gives what was taken."""
    taken: list[int] = []
    while not row.free and not row.even():
        heaviest = max(row.groups, key=lambda group: group.load)
        if len(heaviest.items) < 2:
            break
        cost = row.cost(heaviest.items[-1], heaviest.shape)
        loads = [group.load for group in row.groups]
        after = [group.load - (cost if group is heaviest else 0.0) for group in row.groups]
        if max(after) - min(after) >= max(loads) - min(loads):
            break
        heaviest.load -= cost
        taken.append(heaviest.items.pop())
    return taken


def double(row: Row) -> None:
    """Widen the first of the smallest groups while ranks are idle."""
    wider = {row.degree(shape): shape for shape in powers_of_two(row.problem)}
    while row.free:
        smallest = min(row.groups, key=lambda group: row.degree(group.shape))
        degree = row.degree(smallest.shape)
        if row.free < degree or 2 * degree not in wider:
            break
        smallest.shape = wider[2 * degree]
        smallest.load /= 2
        row.free -= degree
