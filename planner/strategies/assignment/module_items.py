"""Which replica of a module works on which of its items in which micro-batch, by what an item takes of a replica."""

from math import ceil

from planner.costs import CostLine, Pricing
from planner.errors import Infeasible
from planner.layouts import assign_least_loaded
from planner.plan.mesh.rank_mesh import groups_over
from planner.plan.mesh.synchronisation import all_ranks_join_micro_batches
from planner.plan.plan_file import Group, Layout, Plan, assignments
from planner.specs.base import Ranks, with_fields
from planner.specs.inputs import Inputs
from planner.specs.parallelism import DEFAULT_RANK_ORDER
from planner.strategies.assignment.replica_seconds import assign_soonest, has_several_kinds, replica_seconds

ReplicaItems = list[list[tuple[int, ...]]]  # by replica, the items of each micro-batch


def assign_items(pricing: Pricing, inputs: Inputs, layout: Layout) -> ReplicaItems:
    """Assign items longest first to the least loaded replica with room for one more, and there likewise to a
    micro-batch: the first micro-batches hold the longest items. Replicas on unlike ranks have as many as they are
    quick, unless the software has as many for each.
    """
    if has_several_kinds(pricing, layout) and inputs.software.knobs.groups == "any":
        return assign_to_unlike(pricing, inputs, layout)
    line, sizes = item_line(pricing, inputs.module, layout), inputs.batches[0].items
    count = micro_batch_count(layout, len(sizes))
    seconds = {size: line.item_seconds(size) for size in set(sizes.values())}
    order = sorted(sizes, key=lambda item: (-sizes[item], item))
    loads = {item: seconds[sizes[item]] for item in order}
    assigned = assign_least_loaded(order, loads, layout.dp * layout.replica, count * layout.micro_batch)
    return [
        [tuple(micro_batch) for micro_batch in assign_least_loaded(items, loads, count, layout.micro_batch)]
        for items in assigned
    ]


def assign_to_unlike(pricing: Pricing, inputs: Inputs, layout: Layout) -> ReplicaItems:
    """The items of replicas on ranks of several kinds, each with micro-batches of its own number: of those that join
    every micro-batch (ZeRO-3, experts) all have as many, of unlike size.
    """
    sizes, groups = inputs.batches[0].items, [*replica_groups(layout).values()]
    lengths = sorted({*sizes.values()})
    replicas = replica_seconds(pricing, inputs.module, layout, groups, lengths)
    order = sorted(sizes, key=lambda item: (-sizes[item], item))
    joined = all_ranks_join_micro_batches(layout, inputs.spec)
    together = layout.micro_batch if len(lengths) == 1 and not joined else 1
    of_replicas = assign_soonest(order, sizes, replicas, together)
    counts = [ceil(len(items) / layout.micro_batch) for items in of_replicas]
    most = ceil(max(counts) / layout.pp) * layout.pp if layout.vpp > 1 else max(counts)
    found: ReplicaItems = []
    for items, replica, count in zip(of_replicas, replicas, counts, strict=True):
        loads = {item: replica.seconds[sizes[item]] for item in items}
        some = assign_least_loaded(items, loads, most if joined else max(1, count), layout.micro_batch)
        found.append([*map(tuple, some), *((),) * (most - len(some))])
    return found


def item_line(pricing: Pricing, module: str, layout: Layout, group: Group | None = None) -> CostLine:
    """Seconds of both passes of an item through a whole module on one replica, or on a group, as a line over its
    tokens.
    """
    ranks = Ranks(layout.ranks[: layout.tp * layout.cp]) if group is None else group.ranks
    split = layout.default_split if group is None else group.resolved_split(layout)
    whole = with_fields(
        layout, rank_order=DEFAULT_RANK_ORDER
    )  # the placement of a replica's ranks hardly changes the balance
    near = Pricing(
        pricing.models,
        {module: whole},
        pricing.cluster,
        pricing.prices,
        pricing.devices,
        repeated=pricing.repeated,
        flows=pricing.flows,
        shared=pricing.shared,
    )
    forward, backward = (near.module_line(module, ranks, split, first)[0] for first in (True, False))
    return forward + backward


def micro_batch_count(layout: Layout, samples: int) -> int:
    """Micro-batches of each replica; interleaving needs a multiple of the pipeline's ranks."""
    count = ceil(samples / (layout.dp * layout.replica * layout.micro_batch))
    return ceil(count / layout.pp) * layout.pp if layout.vpp > 1 else count


def replica_groups(layout: Layout) -> dict[str, Group]:
    """The ranks of each replica on all stages, as groups; items are split over them as the layout says."""
    blocks = dict.fromkeys(groups_over(layout, ("tp", "cp", "pp")).values())
    return {f"dp{number}": Group(ranks=ranks) for number, ranks in enumerate(sorted(blocks))}


def require_token_limit(chosen: Plan) -> None:
    """Raises Infeasible where a micro-batch has more tokens than the job allows a rank."""
    most, ((name, layout),) = chosen.uses.limits.tokens_per_rank, chosen.layouts.items()
    ranks = layout.tp * layout.cp
    for micro_batch in chosen.steps[0].micro_batches:
        for each in assignments(chosen, micro_batch):
            tokens = sum(chosen.uses.tokens(name, item) for item in each.items)
            if most is not None and tokens > most * ranks:
                message = (
                    f"group {each.group} would hold {tokens:,} tokens, its {ranks} ranks may hold {most * ranks:,}"
                )
                raise Infeasible(message, where="limits.tokens_per_rank", fix="fewer sequences in a micro-batch")
