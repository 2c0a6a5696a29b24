"""Which sample goes where, and with it which item of which encoder: modules balanced together.

Samples are assigned longest first, by the LLM's seconds alone, and by those of encoders beside the LLM too; items then
go to replicas whose ranks have least to do, or to these on ranks of the replica that reads them; and with the best of
these, items that are longer than a fair share are split. The assignment is taken by which an estimate of the step
(step_estimate.py) is least; that which minds nothing but the LLM is among them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from planner.costs import Pricing
from planner.packing import exchange_loads, longest_first
from planner.plan.mesh.rank_mesh import stage_ranks
from planner.plan.plan_file import Layout
from planner.plan.schedules import Slot
from planner.plan.task import Phase, Task
from planner.specs.base import Layers, Ranks
from planner.specs.hardware.profile import BACKWARD_SHARE, FORWARD_SHARE
from planner.specs.inputs import Inputs
from planner.specs.workload.samples import ReadersByItem, SampleBatch
from planner.strategies.assignment.encoder_orders import Orders
from planner.strategies.assignment.joint_streams import (
    AssignmentRule,
    Balance,
    JointAssignment,
    JointStreams,
    PlacedSamples,
    replica_homes,
)
from planner.strategies.assignment.module_items import (
    ReplicaItems,
    assign_items,
    item_line,
    micro_batch_count,
    replica_groups,
)
from planner.strategies.assignment.pipeline_turns import first_stage_slots, pipeline_turns
from planner.strategies.assignment.rank_loads import pipeline_loads, stage_shares
from planner.strategies.assignment.step_estimate import PipelineWork

EXCHANGES = 200  # of samples between replicas
LESS = 1.0 - 1e-9  # of the best so far: what another assignment must stay below to be taken
BY_SAMPLES = AssignmentRule(together=False, balance=Balance(ranks=False, homes=False))


class JointItems(JointStreams):
    """The samples of a batch and the items that they read, with the layout of every module."""

    def __init__(self, pricing: Pricing, inputs: Inputs, layouts: dict[str, Layout], orders: Orders) -> None:
        super().__init__(pricing, inputs, layouts, orders)
        self.layout = layouts[inputs.module]
        self.replicas = [group.ranks for group in replica_groups(self.layout).values()]
        self.line, sizes = item_line(pricing, inputs.module, self.layout), self.batch.items
        of_size = {size: np.array(self.line.item_parts(size)) for size in {*sizes.values()}}
        self.parts = {item: of_size[size] for item, size in sizes.items()}
        self.loads = {item: float(parts[0]) for item, parts in self.parts.items()}
        mean = sum(sizes.values()) // len(sizes)
        first = {*stage_ranks(self.layout, 0)}
        ranks = Ranks(rank for rank in self.replicas[0] if rank in first)
        self.shares = stage_shares(pricing, inputs.module, self.layout, ranks, mean)
        self.known_placed: dict[bool, PlacedSamples] = {}  # whether they are balanced together

    def best(self) -> JointAssignment:
        """The assignment with the least estimate, of equal ones the first: that by the LLM alone."""
        found = self.candidates()
        best = next(found)
        for each in found:
            best = each if each.seconds < best.seconds * LESS else best
        return best

    def by_samples(self) -> JointAssignment:
        """The assignment by the LLM alone."""
        return self.by_rule(BY_SAMPLES)

    def candidates(self) -> Iterator[JointAssignment]:
        """By the LLM alone; samples with what their items take of its ranks, items on any rank, or at home; and the
        best of these with long items split.
        """
        either = (False, True) if any(self.brought_seconds.values()) else (False,)
        balanced = (AssignmentRule(each, Balance(ranks=True, homes=homes)) for each in either for homes in either)
        rules = [BY_SAMPLES, *balanced]
        tried = list[tuple[float, int]]()  # seconds and place of each rule
        for number, rule in enumerate(rules):
            found = self.by_rule(rule)
            tried.append((found.seconds, number))
            yield found
        best = rules[min(tried)[1]]
        for degree in self.degrees:
            yield self.by_rule(best._replace(balance=best.balance._replace(ranks=True, degree=degree)))

    def by_rule(self, rule: AssignmentRule) -> JointAssignment:
        """The assignment by a rule, by as much of it as these layouts know: what nothing is brought to, or does not
        split, is as without.
        """
        together = rule.together and bool(self.brought_seconds)
        if together not in self.known_placed:
            self.known_placed[together] = self.placed(self.balanced if together else self.balanced_alone)
        return replace(self.beside(self.known_placed[together], rule.balance), rule=rule)

    @property
    def count(self) -> int:
        """Micro-batches of each replica."""
        return micro_batch_count(self.layout, len(self.loads))

    @cached_property
    def first_stage_slots(self) -> list[Slot]:
        """What the first stage of each replica runs."""
        return first_stage_slots(self.layout, self.count)

    def exchange_seconds(self, passes: float) -> float:
        """Seconds of ZeRO-3's exchange of a chunk in each micro-batch that both its passes, of so many seconds, do not
        hide.
        """
        if self.layout.zero < 3:
            return 0.0
        module, ranks = self.inputs.module, stage_ranks(self.layout, 0)
        layers = self.layout.stages[0] if self.layout.stages else Layers(range(self.inputs.spec.layers))
        hiding: tuple[tuple[Phase, float], ...] = (("gather", FORWARD_SHARE), ("sync", BACKWARD_SHARE))
        return sum(
            self.pricing.exposed_seconds(Task(module, layers, phase, 0, "all", ranks), share * passes)
            for phase, share in hiding
        )

    @cached_property
    def readers(self) -> dict[str, ReadersByItem]:
        """By encoder, item → samples that read it, themselves or over other encoders."""
        found: dict[str, ReadersByItem] = {self.inputs.module: {sample: (sample,) for sample in self.loads}}
        for name in self.streams:
            found[name] = sample_readers(self.batch, name, found)
        return found

    @cached_property
    def brought_seconds(self) -> dict[int, float]:
        """Sample → seconds that its items take of each rank of a replica, of encoders on ranks of every replica; none
        where there is one replica.
        """
        if len(self.replicas) == 1:
            return {}
        found = dict.fromkeys(self.loads, 0.0)
        for name, stream in self.streams.items():
            within = sum({*replica} <= {*group} for replica in stream.replicas for group in self.replicas)
            if within != len(stream.replicas) or within % len(self.replicas):
                continue
            for item, samples in self.readers[name].items():
                found[samples[0]] += stream.loads[item] / (within // len(self.replicas)) / self.layouts[name].pp
        return found

    @cached_property
    def balanced_alone(self) -> ReplicaItems:
        """Samples whose seconds on the LLM are even over replicas."""
        return assign_items(self.pricing, self.inputs, self.layout)

    @cached_property
    def balanced(self) -> ReplicaItems:
        """Samples whose seconds on all modules together are even over replicas; longest first in each."""
        brought = self.brought_seconds
        order = sorted(self.loads, key=lambda item: (-self.batch.items[item], item))
        together = np.array([self.loads[item] * self.shares.max() + brought[item] for item in order])
        count, nothing = self.count, np.zeros(len(self.replicas))
        bins = longest_first(together, nothing, count * self.layout.micro_batch)
        seconds = np.repeat(together[:, None], len(nothing), axis=1)
        bins = exchange_loads(seconds, bins, nothing, EXCHANGES, may_move=False)
        items = np.array(order)
        return [self.in_micro_batches(items[bins == replica].tolist(), count) for replica in range(len(nothing))]

    def in_micro_batches(self, items: Sequence[int], count: int) -> list[tuple[int, ...]]:
        """Samples of a replica by micro-batch: each to the one that has least, with room for another."""
        loads, room = np.array([self.loads[item] for item in items]), self.layout.micro_batch
        bins = longest_first(loads, np.zeros(count), room)
        return [tuple(items[at] for at in np.flatnonzero(bins == number).tolist()) for number in range(count)]

    def placed(self, samples: ReplicaItems) -> PlacedSamples:
        """The samples on their replicas."""
        module, layout = self.inputs.module, self.layout
        nothing = np.zeros(1 + len(self.line.launches))
        packs = [[sum((self.parts[item] for item in items), nothing) for items in each] for each in samples]
        seconds = self.line.packed_seconds(np.array(packs))
        of_ranks = pipeline_loads(self.replicas, layout, self.shares, seconds, self.inputs.cluster.size)
        passes = seconds * self.shares.max() / layout.vpp
        passes = np.where(passes > 0.0, passes + self.exchange_seconds(float(passes.mean())), 0.0)
        turns = pipeline_turns(self.first_stage_slots, passes, of_ranks, self.replicas)
        homes = replica_homes(module, layout)
        return PlacedSamples(
            cells=[[[*of_replica[number]] for of_replica in samples] for number in range(len(samples[0]))],
            groups=[*replica_groups(layout).values()],
            work=PipelineWork(self.replicas, turns, of_ranks.warm_up, of_ranks.drain, layout.zero == 3),
            busy=of_ranks.busy - of_ranks.warm_up,  # of the drain nothing: last micro-batches are the shortest
            clocks={reader: range(number, number + 1) for number, reader in enumerate(homes)},
            homes=homes,
        )


def sample_readers(batch: SampleBatch, name: str, readers: Mapping[str, ReadersByItem]) -> ReadersByItem:
    """Item of a module → samples that read it, themselves or over modules whose `readers` are known."""
    found: dict[int, list[int]] = {item: [] for item in batch.streams[name]}
    for target, feeds in batch.feeds[name].items():
        for item, of_item in feeds.items():
            found[item] += [sample for reader in of_item for sample in readers[target][reader]]
    return {item: tuple(sorted({*samples})) for item, samples in found.items()}
