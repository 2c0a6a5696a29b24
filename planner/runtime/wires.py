"""Which rows of encoders' outputs go from where to where in a step: of all ranks, made from the plan alone."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from planner.launch.channels import Pair
from planner.plan.feeding import Fed, Item, feeding, merged_tokens
from planner.plan.model import Plan
from planner.plan.shares import runs
from planner.plan.task import Task
from planner.runtime.flight import Key, key_of
from planner.runtime.reshard import Route, outputs, readings, routes

Crossing = tuple[str, int | None, str]  # module, micro-batch, group of the tasks that carry outputs and their gradients


@dataclass(frozen=True, slots=True)
class Wire:
    """A route and what is at its ends."""

    route: Route
    writer: Key
    reader: Key

    def pair(self, of: str) -> Pair:
        """From and to: outputs go forwards, their gradients back."""
        route = self.route
        return (route.source, route.target) if of == "F" else (route.target, route.source)


def on_edge(task: Task) -> bool:
    """Whether a send or a recv is between modules."""
    return ">" in task.group


def crossing(task: Task) -> Crossing:
    return task.module, task.micro_batch, task.group


def messages(wires: Iterable[Wire], of: str) -> dict[Pair, list[Wire]]:
    """One from each rank to each other, with all that goes this way; and what a rank reads of its own."""
    found: dict[Pair, list[Wire]] = defaultdict(list)
    for wire in wires:
        found[wire.pair(of)].append(wire)
    return found


def wires(plan: Plan, tasks: Sequence[Task]) -> dict[Crossing, list[Wire]]:
    """By cell of an encoder. Tasks that read nothing, or whose cell is not among `tasks`, have none."""
    if not plan.edges:
        return {}
    fed = feeding(plan)
    readers = {
        (task.module, item): task for task in tasks if task.phase == "F" and task.layers[0] == 0 for item in task.items
    }
    return {
        crossing(task): [*cell_wires(plan, task, fed, readers)]
        for task in tasks
        if task.phase == "send" and task.of == "F" and on_edge(task)
    }


def cell_wires(plan: Plan, send: Task, fed: Mapping[Item, Fed], readers: Mapping[Item, Task]) -> Iterator[Wire]:
    """Of what one send carries."""
    spec = plan.uses.models[send.module]
    held = [*outputs(runs(spec, plan.layouts[send.module], send), merged_tokens(spec))]
    writer: Key = send.module, send.layers[0], send.micro_batch, send.group.partition(">")[0]
    own = {item: fed[send.module, item] for item in send.items}
    reading = {key_of(task, 0): task for place in own.values() if (task := readers.get(place.target))}
    for key, task in reading.items():
        read = runs(plan.uses.models[task.module], plan.layouts[task.module], task)
        yield from (Wire(route, writer, key) for route in routes(held, readings(read, task.module, own)))
