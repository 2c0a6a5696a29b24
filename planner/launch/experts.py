"""Dispatch of tokens to experts on several ranks, and back (MoE parallel folding, arXiv 2504.14960).

Experts are sharded over ep, and each expert's width over etp, on a mesh of their own over the ranks of one stage: ranks
that exchange tokens here may belong to different sequence-parallel groups, and some have no tokens. How many tokens a
rank receives is known only at run time: counts are sent first, in one small message, and are read once on the host.
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
    """A rank of a stage that holds all experts; load balancing is over the stage."""

    def __init__(self, stage: Ragged) -> None:
        self.stage = stage

    def run(self, x: Tensor, choice: Choice, compute: Compute) -> Tensor:
        """x `(tokens, hidden)` through the local experts to the same shape."""
        return HERE.run(x, choice, compute)

    def total(self, counts: Tensor) -> Tensor:
        """The sum of counts (any shape) over the stage."""
        return self.stage.total(counts)


class AllToAll(OnStage):
    """Dispatch by all-to-all. A copy of a token goes to each expert of its choice, several of them where a rank along
    ep has several of these; ranks along etp gather all received tokens, and reduce-scatter their partial outputs on the
    way back.
    """

    def __init__(self, stage: Ragged, ep: Ragged, etp: Ragged) -> None:
        super().__init__(stage)
        self.ep, self.etp = ep, etp

    def run(self, x: Tensor, choice: Choice, compute: Compute) -> Tensor:
        """x `(tokens, hidden)` through the experts of its choice to the same shape."""
        counts, incoming = self.counts(choice)
        sent, received, gathered = self.sizes(counts, incoming)
        order = choice.order()[: sum(sent)]
        rows = self.ep.all_to_all(x[order // choice.topk], sent, received)
        rows = self.etp.all_gather(rows, gathered)
        by_expert_order = expert_order(incoming, sum(gathered))
        y = compute(rows.index_select(0, by_expert_order), incoming.sum(0)).index_select(0, by_expert_order.argsort())
        y = self.etp.reduce_scatter(y, gathered)
        return combined(self.ep.all_to_all(y, received, sent), order, choice)

    def counts(self, choice: Choice) -> tuple[Tensor, Tensor]:
        """This rank's choices by expert `(experts)`, and incoming ones by source and local expert `(etp * ep, experts /
        ep)`.
        """
        outgoing, one_each = choice.counts(), [1] * self.ep.ranks
        incoming = self.ep.swap(outgoing.view(self.ep.ranks, -1), one_each, one_each)
        return outgoing, self.etp.copies(incoming, [self.ep.ranks] * self.etp.ranks)

    def sizes(self, counts: Tensor, incoming: Tensor) -> tuple[list[int], list[int], list[int]]:
        """Rows that go to each rank along ep, that come from each, and that each rank along etp then has."""
        outgoing_rows, incoming_rows = counts.view(self.ep.ranks, -1).sum(1), incoming.sum(1)
        both: list[int] = torch.cat([outgoing_rows, incoming_rows]).tolist()
        sent, sources = both[: self.ep.ranks], both[self.ep.ranks :]
        by_rank = [sources[first : first + self.ep.ranks] for first in range(0, len(sources), self.ep.ranks)]
        return sent, by_rank[self.etp.index], [sum(each) for each in by_rank]


class AllGather(OnStage):
    """Dispatch by all-gather. Every rank with experts gets all tokens and computes those of its own experts; weighted
    outputs are reduce-scattered. It sends less where a token chooses more experts than there are ranks (arXiv
    2505.11432).
    """

    def __init__(self, stage: Ragged, among: Ragged, ep: Part) -> None:
        super().__init__(stage)
        self.among, self.ep = among, ep

    def run(self, x: Tensor, choice: Choice, compute: Compute) -> Tensor:
        """x `(tokens, hidden)` through the experts of its choice to the same shape."""
        rows, counts, local_choices = self.counts(len(x), choice)
        x, weights = self.among.all_gather(x, rows), self.among.all_gather(choice.weights, rows)
        first, last = self.ep.span(choice.among)
        experts = self.among.copies(choice.experts.to(torch.int32), rows).long() - first
        local = Choice(experts.where((experts >= 0) & (experts < last - first), last - first), weights, last - first)
        order = local.order()[:local_choices]
        y = compute(x[order // choice.topk], counts)
        y = y * weights.flatten()[order].unsqueeze(1).to(y.dtype)
        return self.among.reduce_scatter(torch.zeros_like(x).index_add(0, order // choice.topk, y), rows)

    def counts(self, tokens: int, choice: Choice) -> tuple[list[int], Tensor, int]:
        """Tokens of each rank, choices of each local expert over all ranks `(experts / ep)`, and the sum of these
        choices.
        """
        local = torch.cat([choice.counts(), choice.experts.new_full((1,), tokens)])
        all_counts = self.among.copies(local.unsqueeze(0), [1] * self.among.ranks)  # (ranks, experts + 1)
        counts = all_counts[:, slice(*self.ep.span(choice.among))].sum(0)
        on_host: list[int] = torch.cat([all_counts[:, -1], counts.sum(0, keepdim=True)]).tolist()
        return on_host[:-1], counts, on_host[-1]


def expert_order(incoming: Tensor, rows: int) -> Tensor:
    """Row indices `(rows)` that sort rows by expert, then source; `incoming` `(sources, experts)` holds the numbers of
    rows, which are ordered by source, then expert.
    """
    experts = torch.arange(incoming.shape[1], device=incoming.device).repeat(len(incoming))
    return experts.repeat_interleave(incoming.flatten(), output_size=rows).argsort(stable=True)


def dispatch_by_layer(layout: Layout, layers: Iterable[int], groups: Groups, meter: Meter) -> dict[int, Dispatch]:
    """This rank's token dispatcher in each of these layers of a module."""
    dispatchers = (
        (dispatch_over(sublayout, groups, meter), own_layers) for sublayout, own_layers in layout.by_experts(layers)
    )
    return {layer: dispatch for dispatch, own_layers in dispatchers for layer in own_layers}


def dispatch_over(layout: Layout, groups: Groups, meter: Meter) -> Dispatch:
    """This rank's token dispatcher for all micro-batches, where experts of all layers have the same layout. All ranks
    call it.
    """
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
