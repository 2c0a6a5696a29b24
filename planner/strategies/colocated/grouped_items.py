"""Which replica of an encoder computes what the samples of packed groups read: the quickest assignment of a few."""

from collections.abc import Iterator

import numpy as np

from planner.costs import PackingProblem, Pricing, split_degree
from planner.packing import PackedGroup, Packing
from planner.plan.plan_file import Group
from planner.specs.base import Ranks
from planner.specs.inputs import Inputs
from planner.strategies.assignment.encoder_orders import Orders
from planner.strategies.assignment.joint_streams import Balance, JointAssignment, JointStreams, PlacedSamples
from planner.strategies.assignment.pipeline_turns import turns_without_pipeline
from planner.strategies.assignment.step_estimate import PipelineWork


class GroupedItems(JointStreams):
    """The samples of a batch, to be packed on groups, and the items that they read."""

    def __init__(self, pricing: Pricing, inputs: Inputs, problem: PackingProblem, orders: Orders) -> None:
        super().__init__(pricing, inputs, pricing.layouts, orders)
        self.problem = problem

    def best(self, packed: Packing) -> JointAssignment:
        """The assignment with the least estimate, of equal ones the first."""
        return min(self.candidates(packed), key=lambda each: each.seconds)

    def candidates(self, packed: Packing) -> Iterator[JointAssignment]:
        """Items level by themselves, level with what ranks have to do, and so on ranks that read them; the second with
        long ones split.
        """
        placed = self.placed(packed)
        for balance in (Balance(False, False), Balance(True, False), Balance(True, True)):
            yield self.beside(placed, balance)
        for degree in self.degrees:
            yield self.beside(placed, Balance(True, False, degree))

    def placed(self, packed: Packing) -> PlacedSamples:
        """The samples on their groups. Every rank is a clock of its own."""
        size, module = self.inputs.cluster.size, self.inputs.module
        groups = {ranks: self.group(ranks) for each in packed for group in each for ranks in [self.ranks(group)]}
        cells = [[[*self.items_on(ranks, each)] for ranks in groups] for each in packed]
        seconds = np.zeros((len(packed), size))
        for number, each in enumerate(packed):
            for group in each:
                seconds[number, list(self.ranks(group))] = self.problem.seconds(group.shape, group.items)
        synchronised = self.problem.sync == "micro_batch"
        idle = np.zeros(size)
        return PlacedSamples(
            cells=cells,
            groups=[*groups.values()],
            work=PipelineWork(
                replicas=[Ranks((rank,)) for rank in range(size)],
                turns=turns_without_pipeline(seconds.T),
                warm_up=idle,
                drain=idle,
                synchronised=synchronised,
                together=[[clocks_of(self.ranks(group)) for group in each] for each in packed],
            ),
            busy=seconds if synchronised else seconds.sum(axis=0),
            clocks={(module, ranks): clocks_of(ranks) for ranks in groups},
            homes={(module, ranks): ranks for ranks in groups},
        )

    def ranks(self, group: PackedGroup) -> Ranks:
        """The ranks of a packed group."""
        return Ranks(range(group.first_rank, group.first_rank + self.problem.shapes[group.shape].degree))

    def group(self, ranks: Ranks) -> Group:
        """Such ranks as a group of a plan."""
        return Group(ranks=ranks, split=split_degree(self.inputs.spec, len(ranks)))  # type: ignore[arg-type]

    def items_on(self, ranks: Ranks, micro_batch: tuple[PackedGroup, ...]) -> tuple[int, ...]:
        """The samples on these ranks as a group."""
        return next((group.items for group in micro_batch if self.ranks(group) == ranks), ())


def clocks_of(ranks: Ranks) -> range:
    """The clocks of consecutive ranks."""
    return range(ranks[0], ranks[-1] + 1)
