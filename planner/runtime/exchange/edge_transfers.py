"""Who sends to whom in a step, for all ranks, from the plan alone: routes of encoder outputs between ranks, and the
channels between all ranks that send to each other in any step, which are created before the first.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, product

from planner.launch.communication import Channel, RankPair
from planner.plan.group_catalogue import groups_of_module
from planner.plan.mesh.rank_mesh import stage_ranks
from planner.plan.plan_file import Plan
from planner.plan.task import Task
from planner.plan.tokens.encoder_outputs import reading_stages
from planner.plan.tokens.resharding import (
    Route,
    TransferKey,
    edge_of_transfer,
    encoder_transfers,
    is_between_modules,
    transfer_key,
)
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


def plan_channels(plan: Plan, steps: Iterable[Sequence[Task]]) -> set[Channel]:
    """All channels between pipeline stages and between modules; `steps`: the tasks of each step of the plan."""
    channels: set[Channel] = set()
    if plan.then:
        for source, target in between_stages(plan):
            channels |= {Channel(source, target, "stages"), Channel(target, source, "stages")}
        for source, target in between_modules(plan):
            channels |= {Channel(source, target, "modules"), Channel(target, source, "modules")}
    for tasks in steps:
        for task in tasks:
            if task.phase == "send" and not is_between_modules(task):
                pairs = zip(task.ranks, task.peers, strict=True)
                channels.update(Channel(source, target, "stages") for source, target in pairs)
        for each in chain.from_iterable(edge_transfers(plan, tasks).values()):
            channels.update(Channel(*each.pair(of), "modules") for of in "FB")
    return {channel for channel in channels if channel.source != channel.target}


def between_stages(plan: Plan) -> Iterator[RankPair]:
    """Pairs that send activations forward in any step on the groups of a plan, also steps planned during the run; with
    chunks (virtual stages) also from the last stage to the first.
    """
    for name, layout in plan.layouts.items():
        stages = layout.pp
        of_stages = [stage_ranks(layout, stage) for stage in range(stages)]
        for group in groups_of_module(plan, name) if stages > 1 else ():
            members = [sorted(set(group.ranks) & set(ranks)) for ranks in of_stages]
            following = [*members[1:], members[0]] if len(layout.stages) > stages else members[1:]
            for near, far in zip(members, following, strict=False):
                yield from zip(near, far, strict=False)  # stages of unequal size are illegal in any step


def between_modules(plan: Plan) -> Iterator[RankPair]:
    """Pairs over edges in any step: every rank with outputs of the source, every rank of the target that reads."""
    for edge in plan.edges:
        source, target = plan.layouts[edge.source], plan.layouts[edge.target]
        last, readers = source.pp - 1, reading_stages(plan.uses.models[edge.target], target, edge.by)
        for stage in dict.fromkeys(number % target.pp for number in readers):
            yield from product(stage_ranks(source, last), stage_ranks(target, stage))
