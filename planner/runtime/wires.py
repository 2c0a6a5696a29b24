"""Routes of encoder outputs between ranks in a step, for all ranks, from the plan alone."""

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
    """A route of encoder outputs between two ranks, and the micro-batches in flight at both ends."""

    route: Route
    writer: Key
    reader: Key
    by: By

    def pair(self, of: str) -> Pair:
        """Sender and receiver: outputs (`of` F) go from writer to reader, gradients (B) back."""
        route = self.route
        return (route.source, route.target) if of == "F" else (route.target, route.source)


def messages(transfers: Iterable[Wire], of: str) -> dict[Pair, list[Wire]]:
    """Transfers grouped into one message per pair of ranks; a pair of equal ranks is a local copy."""
    by_pair: dict[Pair, list[Wire]] = defaultdict(list)
    for transfer in transfers:
        by_pair[transfer.pair(of)].append(transfer)
    return by_pair


def wires(plan: Plan, tasks: Sequence[Task]) -> dict[Crossing, list[Wire]]:
    """Transfers of each send of encoder outputs among `tasks`; empty for plans without edges."""
    if not plan.edges:
        return {}
    return {
        crossing(send): [
            Wire(route, writer(send), key_of(reader, 0), edge_of(plan, send).by) for reader, route in carried
        ]
        for send, carried in crossings(plan, tasks)
    }


def writer(send: Task) -> Key:
    """Key of the micro-batch in flight whose outputs a send transfers."""
    return send.module, send.layers[0], send.micro_batch, send.group.partition(">")[0]
