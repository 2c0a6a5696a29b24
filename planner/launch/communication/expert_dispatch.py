"""Dispatch of tokens to experts on several ranks, and back (MoE parallel folding, arXiv 2504.14960).

Experts are sharded over ep, and each expert's width over etp, on a mesh of their own over the ranks of one stage: ranks
that exchange tokens here may belong to different sequence-parallel groups, and some have no tokens. How many tokens a
rank receives is known only at run time: counts are sent first, in one small message, and are read once on the host.
"""

from collections.abc import Iterable

import torch
from torch import Tensor

from planner.launch.communication.communication_meter import CommunicationMeter
from planner.launch.communication.process_groups import ProcessGroups
from planner.launch.communication.ragged_collectives import RaggedGroup
from planner.models import LOCAL_DISPATCHER, EqualShard, ExpertChoice, ExpertFunction, TokenDispatcher, combine_outputs
from planner.plan.mesh.rank_mesh import expert_coordinates, expert_groups_over, expert_shards, stage_ranks_of
from planner.plan.plan_file import Layout
from planner.specs.base import Ranks


class StageDispatcher:
    """A rank of a stage that holds all experts; load balancing is over the stage."""

    def __init__(self, stage: RaggedGroup) -> None:
        self.stage = stage

    def dispatch(self, x: Tensor, choice: ExpertChoice, compute: ExpertFunction) -> Tensor:
        """Send x `(tokens, hidden)` through the local experts to the same shape."""
        return LOCAL_DISPATCHER.dispatch(x, choice, compute)

    def all_reduce_counts(self, counts: Tensor) -> Tensor:
        """The sum of counts (any shape) over the stage."""
        return self.stage.all_reduce_no_grad(counts)


class AllToAllDispatcher(StageDispatcher):
    """Dispatch by all-to-all. A copy of a token goes to each expert of its choice, several of them where a rank along
    ep has several of these; ranks along etp gather all received tokens, and reduce-scatter their partial outputs on the
    way back.
    """

    def __init__(self, stage: RaggedGroup, ep: RaggedGroup, etp: RaggedGroup) -> None:
        super().__init__(stage)
        self.ep, self.etp = ep, etp

    def dispatch(self, x: Tensor, choice: ExpertChoice, compute: ExpertFunction) -> Tensor:
        """Send x `(tokens, hidden)` through the experts of its choice to the same shape."""
        counts, incoming = self.exchange_counts(choice)
        sent, received, gathered = self.row_counts(counts, incoming)
        order = choice.sorted_by_expert()[: sum(sent)]
        rows = self.ep.all_to_all(x[order // choice.topk], sent, received)
        rows = self.etp.all_gather(rows, gathered)
        by_expert_order = expert_order(incoming, sum(gathered))
        y = compute(rows.index_select(0, by_expert_order), incoming.sum(0)).index_select(0, by_expert_order.argsort())
        y = self.etp.reduce_scatter(y, gathered)
        return combine_outputs(self.ep.all_to_all(y, received, sent), order, choice)

    def exchange_counts(self, choice: ExpertChoice) -> tuple[Tensor, Tensor]:
        """This rank's choices `(experts)`, and incoming ones by source and expert `(etp * ep, experts / ep)`."""
        outgoing, one_each = choice.counts(), [1] * self.ep.size
        incoming = self.ep.all_to_all_no_grad(outgoing.view(self.ep.size, -1), one_each, one_each)
        return outgoing, self.etp.all_gather_no_grad(incoming, [self.ep.size] * self.etp.size)

    def row_counts(self, counts: Tensor, incoming: Tensor) -> tuple[list[int], list[int], list[int]]:
        """Rows that go to each rank along ep, that come from each, and that each rank along etp then has.

        `counts` `(experts)` and `incoming` `(etp * ep, experts / ep)` are those of `exchange_counts`.
        """
        outgoing_rows, incoming_rows = counts.view(self.ep.size, -1).sum(1), incoming.sum(1)
        both: list[int] = torch.cat([outgoing_rows, incoming_rows]).tolist()
        sent, sources = both[: self.ep.size], both[self.ep.size :]
        by_rank = [sources[first : first + self.ep.size] for first in range(0, len(sources), self.ep.size)]
        return sent, by_rank[self.etp.index], [sum(each) for each in by_rank]


class AllGatherDispatcher(StageDispatcher):
    """Dispatch by all-gather. Every rank with experts gets all tokens and computes those of its own experts; weighted
    outputs are reduce-scattered. It sends less where a token chooses more experts than there are ranks (arXiv
    2505.11432).
    """

    def __init__(self, stage: RaggedGroup, among: RaggedGroup, ep: EqualShard) -> None:
        super().__init__(stage)
        self.expert_ranks, self.ep = among, ep

    def dispatch(self, x: Tensor, choice: ExpertChoice, compute: ExpertFunction) -> Tensor:
        """Send x `(tokens, hidden)` through the experts of its choice to the same shape."""
        rows, counts, local_choices = self.exchange_counts(len(x), choice)
        x, weights = self.expert_ranks.all_gather(x, rows), self.expert_ranks.all_gather(choice.weights, rows)
        first, last = self.ep.span(choice.expert_count)
        experts = self.expert_ranks.all_gather_no_grad(choice.experts.to(torch.int32), rows).long() - first
        local = ExpertChoice(
            experts.where((experts >= 0) & (experts < last - first), last - first), weights, last - first
        )
        order = local.sorted_by_expert()[:local_choices]
        y = compute(x[order // choice.topk], counts)
        y = y * weights.flatten()[order].unsqueeze(1).to(y.dtype)
        return self.expert_ranks.reduce_scatter(torch.zeros_like(x).index_add(0, order // choice.topk, y), rows)

    def exchange_counts(self, tokens: int, choice: ExpertChoice) -> tuple[list[int], Tensor, int]:
        """Tokens of each rank, choices of each local expert over all ranks `(experts / ep)`, and the sum of these."""
        local = torch.cat([choice.counts(), choice.experts.new_full((1,), tokens)])
        ones = [1] * self.expert_ranks.size
        all_counts = self.expert_ranks.all_gather_no_grad(local.unsqueeze(0), ones)  # (ranks, experts + 1)
        counts = all_counts[:, slice(*self.ep.span(choice.expert_count))].sum(0)
        on_host: list[int] = torch.cat([all_counts[:, -1], counts.sum(0, keepdim=True)]).tolist()
        return on_host[:-1], counts, on_host[-1]


def expert_order(incoming: Tensor, rows: int) -> Tensor:
    """Row indices `(rows)` that sort rows by expert, then source; `incoming` `(sources, experts)` holds the numbers of
    rows, which are ordered by source, then expert.
    """
    experts = torch.arange(incoming.shape[1], device=incoming.device).repeat(len(incoming))
    return experts.repeat_interleave(incoming.flatten(), output_size=rows).argsort(stable=True)


def dispatchers_by_layer(
    layout: Layout, layers: Iterable[int], groups: ProcessGroups, meter: CommunicationMeter
) -> dict[int, TokenDispatcher]:
    """This rank's token dispatcher in each of these layers of a module."""
    dispatchers = (
        (token_dispatcher(sublayout, groups, meter), own_layers)
        for sublayout, own_layers in layout.by_expert_placement(layers)
    )
    return {layer: dispatch for dispatch, own_layers in dispatchers for layer in own_layers}


def token_dispatcher(layout: Layout, groups: ProcessGroups, meter: CommunicationMeter) -> TokenDispatcher:
    """This rank's token dispatcher where experts of all layers have one layout. All ranks call it."""
    rank = groups.rank

    def ragged(ranks: Ranks) -> RaggedGroup:
        return RaggedGroup(groups[ranks] if len(ranks) > 1 else None, meter, "ep")

    stage = ragged(stage_ranks_of(layout, rank))
    if expert_shards(layout) == 1:
        return StageDispatcher(stage)
    if layout.dispatch == "all_gather":
        part = EqualShard(expert_coordinates(layout, rank)["ep"], layout.ep)
        return AllGatherDispatcher(stage, ragged(expert_groups_over(layout, ("ep", "etp"))[rank]), part)
    ep, etp = (ragged(expert_groups_over(layout, (dim,))[rank]) for dim in ("ep", "etp"))
    return AllToAllDispatcher(stage, ep, etp)
