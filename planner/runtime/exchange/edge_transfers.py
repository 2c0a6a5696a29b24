"""Routes of encoder outputs between ranks in a step, for all ranks, from the plan alone."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from planner.launch.communication import RankPair
from planner.plan.plan_file import Plan
from planner.plan.task import Task
from planner.plan.tokens.resharding import Route, TransferKey, edge_of_transfer, encoder_transfers, transfer_key
from planner.runtime.exchange.micro_batch_in_flight import InFlightKey, in_flight_key
from planner.specs.model import EdgeInput


@dataclass(frozen=True, slots=True)
class EdgeTransfer:
    """A route of encoder outputs between two ranks, and the micro-batches in flight at both ends."""

    route: Route
    writer: InFlightKey
    reader: InFlightKey
    by: EdgeInput

    def pair(self, of: str) -> RankPair:
        """Sender and receiver: outputs (`of` F) go from writer to reader, gradients (B) back."""
        route = self.route
        return (route.source, route.target) if of == "F" else (route.target, route.source)


def transfers_by_pair(transfers: Iterable[EdgeTransfer], of: str) -> dict[RankPair, list[EdgeTransfer]]:
    """Transfers grouped into one message per pair of ranks; a pair of equal ranks is a local copy."""
    by_pair: dict[RankPair, list[EdgeTransfer]] = defaultdict(list)
    for transfer in transfers:
        by_pair[transfer.pair(of)].append(transfer)
    return by_pair


def edge_transfers(plan: Plan, tasks: Sequence[Task]) -> dict[TransferKey, list[EdgeTransfer]]:
    """Transfers of each send of encoder outputs among `tasks`; empty for plans without edges."""
    if not plan.edges:
        return {}
    return {
        transfer_key(send): [
            EdgeTransfer(
                route, writer_key(send), in_flight_key(reader, reader.layers[0]), edge_of_transfer(plan, send).by
            )
            for reader, route in carried
        ]
        for send, carried in encoder_transfers(plan, tasks)
    }


def writer_key(send: Task) -> InFlightKey:
    """Key of the micro-batch in flight whose outputs a send transfers."""
    return send.module, send.layers[0], send.micro_batch, send.group.partition(">")[0]
