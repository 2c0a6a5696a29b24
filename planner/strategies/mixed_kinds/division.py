"""Layers of pipeline stages on ranks of several kinds: as many on each as it is quick.

Replicas whose stages are of the same kinds are alike. With n_c replicas of a kind, in which the slowest of the stages
takes t_c for a micro-batch and the others f_c together, b micro-batches of all replicas take

    X = (b + Σ n_c f_c / t_c) / Σ n_c / t_c

if each has as many as it is quick: whole ones, which simulation counts, take a little longer. Of stages of the same
kinds in all replicas layers differ by one at most; single layers are moved between them and others as long as X falls.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

from planner.costs import Pricing
from planner.plan.mesh.rank_mesh import stage_ranks
from planner.plan.plan_file import Group, Layout
from planner.specs.base import Layers, Ranks
from planner.strategies.assignment.replica_seconds import both_passes

StageKinds = tuple[str, ...]  # of the ranks of one replica on one stage


class StageSeconds(NamedTuple):
    """Seconds of a micro-batch on ranks of some kinds, forward and backward."""

    constant: float
    layer: float
    full_layer: float  # that is recomputed in full
    head: float

    def of(self, layers: int, full: int, last: bool) -> float:
        """Of a stage with so many layers, of which some are recomputed in full."""
        return self.constant + (layers - full) * self.layer + full * self.full_layer + last * self.head


@dataclass(frozen=True, slots=True)
class StageProblem:
    """What layers of stages are divided by."""

    replicas: dict[tuple[StageKinds, ...], int]  # kinds by stage → how many replicas have them
    seconds: dict[StageKinds, StageSeconds]
    layers: int
    least: int  # layers of a stage
    batches: float  # micro-batches of all replicas
    chunks: int
    equal: bool = False  # whether replicas have equally many micro-batches

    @property
    def stages(self) -> int:
        """How many there are."""
        return len(next(iter(self.replicas)))

    def kinds_of(self, stage: int) -> tuple[StageKinds, ...]:
        """What is alike of stages that have as many layers: their kinds in all replicas."""
        return tuple(kinds[stage] for kinds in self.replicas)

    def step_seconds(self, layers: Sequence[int], full: Sequence[int]) -> float:
        """Seconds of all micro-batches with these layers on the stages, of which `full` are recomputed in full."""
        last, rate, filled, longest = self.stages - 1, 0.0, 0.0, 0.0
        own = self.batches / sum(self.replicas.values())
        for kinds, count in self.replicas.items():
            each = [
                self.seconds[kind].of(layers[stage], min(full[stage], layers[stage]), stage == last)
                for stage, kind in enumerate(kinds)
            ]
            slowest = max(each)
            fill = (sum(each) - slowest) / self.chunks
            rate, filled = rate + count / slowest, filled + count * fill / slowest
            longest = max(longest, own * slowest + fill)
        return longest if self.equal else (self.batches + filled) / rate


def divided_layers(problem: StageProblem, full: Sequence[int]) -> tuple[int, ...]:
    """The layers of each stage in the quickest division that moves of single layers come to."""
    layers = [problem.least] * problem.stages
    while sum(layers) < problem.layers:  # each next layer where it lengthens the step least
        more = [[own + (at == stage) for at, own in enumerate(layers)] for stage in range(problem.stages)]
        layers = min(more, key=lambda each: (problem.step_seconds(each, full), each))
    seconds = problem.step_seconds(layers, full)
    while True:
        moved = min(moves(problem, layers), key=lambda each: problem.step_seconds(each, full), default=layers)
        if problem.step_seconds(moved, full) >= seconds * (1.0 - 1e-9):
            return tuple(layers)
        layers, seconds = moved, problem.step_seconds(moved, full)


def moves(problem: StageProblem, layers: Sequence[int]) -> list[list[int]]:
    """The divisions in which a stage has one layer less, and one of other kinds one more, or the last."""
    ends: dict[object, list[int]] = {}
    for stage in range(problem.stages):
        ends.setdefault((problem.kinds_of(stage), stage == problem.stages - 1), []).append(stage)
    givers = [max(stages, key=layers.__getitem__) for stages in ends.values()]
    takers = [min(stages, key=layers.__getitem__) for stages in ends.values()]
    return [
        [own - (stage == giver) + (stage == taker) for stage, own in enumerate(layers)]
        for giver, taker in product(givers, takers)
        if giver != taker and layers[giver] > problem.least
    ]


class Priced(NamedTuple):
    """A layout with what prices it."""

    layout: Layout
    pricing: Pricing


def stage_problem(
    plain: Priced, full: Priced, groups: Sequence[Group], sizes: Sequence[int], equal: bool
) -> StageProblem:
    """The problem of a layout's stages, for items of these tokens; `full`: where all layers are recomputed in full."""
    (layout, pricing), length = plain, typical(sizes)
    ((module, spec),) = ((name, pricing.models[name]) for name in pricing.layouts)
    holding = [frozenset(stage_ranks(layout, stage)) for stage in range(layout.pp)]
    replicas, ranks_of = Counter[tuple[StageKinds, ...]](), dict[StageKinds, Ranks]()
    for group in groups:
        own = [Ranks(rank for rank in group.ranks if rank in of_stage) for of_stage in holding]
        kinds = tuple(pricing.device_kinds(ranks) for ranks in own)
        replicas[kinds] += 1
        for each, ranks in zip(kinds, own, strict=True):
            ranks_of.setdefault(each, ranks)
    seconds = {kinds: stage_seconds(plain, full, module, ranks, length) for kinds, ranks in ranks_of.items()}
    batches = len(sizes) / layout.micro_batch
    return StageProblem(dict(replicas), seconds, spec.layers, layout.vpp, batches, layout.vpp, equal)


def typical(sizes: Sequence[int]) -> int:
    """The length of the sequence of the mean token."""
    return max(1, round(sum(size * size for size in sizes) / sum(sizes)))


def stage_seconds(plain: Priced, full: Priced, module: str, ranks: Ranks, length: int) -> StageSeconds:
    """The seconds of stages on these ranks: layers in the mean of all but the last, behind which the head is."""
    count = plain.pricing.models[module].layers
    inner = max(1, count - 1)

    def seconds(by: Priced, first: int, last: int) -> float:
        return both_passes(by.pricing, module, by.layout, ranks, Layers(range(first, last)), length)

    def of_layer(by: Priced) -> float:
        return (seconds(by, 0, inner) - seconds(by, 0, 1)) / (inner - 1) if inner > 1 else seconds(by, 0, 1)

    one, layer = seconds(plain, 0, 1), of_layer(plain)
    head = seconds(plain, count - 1, count) - one if count > 1 else 0.0
    return StageSeconds(max(0.0, one - layer), layer, of_layer(full), max(0.0, head))
