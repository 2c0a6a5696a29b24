"""The ways of tokens to experts that lie on several ranks, and back (MoE parallel folding, arXiv 2504.14960).

Experts are spread over ep, and each expert's width over etp, on a mesh of their own over the ranks of one stage: those
that exchange tokens here may belong to different sequence groups, and some have none. Of tokens a rank knows how many
come only when they come: counts go first, in one small message, and are read once on the host.
"""

from collections.abc import Iterable

import torch
from torch import Tensor

from planner.launch.groups import Groups
from planner.launch.meter import Meter
from planner.launch.ragged import Ragged
from planner.models.dispatch import HERE, Choice, Compute, Dispatch, combined
from planner.models.held import Part
from planner.plan.mesh import expert_coordinates, expert_groups_over, own_stage, spread_of_experts
from planner.plan.model import Layout
from planner.specs.base import Ranks


class OnStage:
    """One rank of a stage, with all experts; their balance is that of the stage."""

    def __init__(self, stage: Ragged) -> None:
        self.stage = stage

    def run(self, x: Tensor, choice: Choice, compute: Compute) -> Tensor:
        return HERE.run(x, choice, compute)

    def total(self, counts: Tensor) -> Tensor:
        return self.stage.total(counts)


class AllToAll(OnStage):
    """A copy of a token goes to each expert of its choice, to a rank along ep with several of these so many; its ranks
    along etp gather what came to any of them, and add up their parts of the outputs on the way back.
    """

    def __init__(self, stage: Ragged, ep: Ragged, etp: Ragged) -> None:
        super().__init__(stage)
        self.ep, self.etp = ep, etp

    def run(self, x: Tensor, choice: Choice, compute: Compute) -> Tensor:
        counts, coming = self.counts(choice)
        sent, received, gathered = self.sizes(counts, coming)
        order = choice.order()[: sum(sent)]
        rows = self.ep.all_to_all(x[order // choice.topk], sent, received)
        rows = self.etp.all_gather(rows, gathered)
        place = by_expert(coming, sum(gathered))
        y = compute(rows.index_select(0, place), coming.sum(0)).index_select(0, place.argsort())
        y = self.etp.reduce_scatter(y, gathered)
        return combined(self.ep.all_to_all(y, received, sent), order, choice)

    def counts(self, choice: Choice) -> tuple[Tensor, Tensor]:
        """This rank's choices by expert [E], and those that come by source and expert here [etp x ep, E / ep]."""
        own, once = choice.counts(), [1] * self.ep.ranks
        coming = self.ep.swap(own.view(self.ep.ranks, -1), once, once)
        return own, self.etp.copies(coming, [self.ep.ranks] * self.etp.ranks)

    def sizes(self, counts: Tensor, coming: Tensor) -> tuple[list[int], list[int], list[int]]:
        """Rows that go to each rank along ep, that come from each, and that each along etp then has."""
        to, of = counts.view(self.ep.ranks, -1).sum(1), coming.sum(1)
        both: list[int] = torch.cat([to, of]).tolist()
        sent, sources = both[: self.ep.ranks], both[self.ep.ranks :]
        by_rank = [sources[first : first + self.ep.ranks] for first in range(0, len(sources), self.ep.ranks)]
        return sent, by_rank[self.etp.index], [sum(each) for each in by_rank]


class AllGather(OnStage):
    """All tokens come to all ranks that have experts; each takes those of its own, and their weighted outputs are added
    up on the way back. It sends less where a token chooses more experts than there are ranks (arXiv 2505.11432).
    """

    def __init__(self, stage: Ragged, among: Ragged, ep: Part) -> None:
        super().__init__(stage)
        self.among, self.ep = among, ep

    def run(self, x: Tensor, choice: Choice, compute: Compute) -> Tensor:
        rows, counts, kept = self.counts(len(x), choice)
        x, weights = self.among.all_gather(x, rows), self.among.all_gather(choice.weights, rows)
        first, last = self.ep.span(choice.among)
        experts = self.among.copies(choice.experts.to(torch.int32), rows).long() - first
        mine = Choice(experts.where((experts >= 0) & (experts < last - first), last - first), weights, last - first)
        order = mine.order()[:kept]
        y = compute(x[order // choice.topk], counts)
        y = y * weights.flatten()[order].unsqueeze(1).to(y.dtype)
        return self.among.reduce_scatter(torch.zeros_like(x).index_add(0, order // choice.topk, y), rows)

    def counts(self, tokens: int, choice: Choice) -> tuple[list[int], Tensor, int]:
        """Tokens of each rank, and of all of them the choices of each expert here [E / ep], and of all of these."""
        own = torch.cat([choice.counts(), choice.experts.new_full((1,), tokens)])
        every = self.among.copies(own.unsqueeze(0), [1] * self.among.ranks)  # [ranks, E + 1]
        counts = every[:, slice(*self.ep.span(choice.among))].sum(0)
        read: list[int] = torch.cat([every[:, -1], counts.sum(0, keepdim=True)]).tolist()
        return read[:-1], counts, read[-1]


def by_expert(coming: Tensor, rows: int) -> Tensor:
    """[rows]: which rows to take, so that those of an expert lie together, by source; `coming` [sources, experts] says
    how many of each lie there by source, then expert.
    """
    experts = torch.arange(coming.shape[1], device=coming.device).repeat(len(coming))
    return experts.repeat_interleave(coming.flatten(), output_size=rows).argsort(stable=True)


def dispatch_by_layer(layout: Layout, layers: Iterable[int], groups: Groups, meter: Meter) -> dict[int, Dispatch]:
    """Of this rank, in each of these layers of a module."""
    found = ((dispatch_over(at, groups, meter), own) for at, own in layout.by_experts(layers))
    return {layer: dispatch for dispatch, own in found for layer in own}


def dispatch_over(layout: Layout, groups: Groups, meter: Meter) -> Dispatch:
    """Of this rank, whatever the micro-batch, where experts of all layers lie alike. Every rank makes its own."""
    rank = groups.rank

    def ragged(ranks: Ranks) -> Ragged:
        return Ragged(groups[ranks] if len(ranks) > 1 else None, meter)

    stage = ragged(own_stage(layout, rank))
    if spread_of_experts(layout) == 1:
        return OnStage(stage)
    if layout.dispatch == "all_gather":
        part = Part(expert_coordinates(layout, rank)["ep"], layout.ep)
        return AllGather(stage, ragged(expert_groups_over(layout, ("ep", "etp"))[rank]), part)
    ep, etp = (ragged(expert_groups_over(layout, (dim,))[rank]) for dim in ("ep", "etp"))
    return AllToAll(stage, ep, etp)
