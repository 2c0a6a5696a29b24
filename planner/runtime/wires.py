"""Which rows of encoders' outputs go from where to where in a step: of all ranks, made from the plan alone."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from planner.launch.channels import Pair
from planner.plan.model import Plan
from planner.plan.reshard import Crossing, Route, crossing, crossings, edge_of
from planner.plan.task import Task
from planner.runtime.flight import Key, key_of
from planner.specs.model import By


@dataclass(frozen=True, slots=True)
class Wire:
    """A route and what is at its ends."""

    route: Route
    writer: Key
    reader: Key
    by: By

    def pair(self, of: str) -> Pair:
        """From and to: outputs go forwards, their gradients back."""
        route = self.route
        return (route.source, route.target) if of == "F" else (route.target, route.source)


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
    return {
        crossing(send): [
            Wire(route, writer(send), key_of(reader, 0), edge_of(plan, send).by) for reader, route in carried
        ]
        for send, carried in crossings(plan, tasks)
    }


def writer(send: Task) -> Key:
    """The flight whose outputs a send has."""
    return send.module, send.layers[0], send.micro_batch, send.group.partition(">")[0]
