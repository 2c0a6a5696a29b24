"""The towers of a job with several tasks: the layouts that they may have, and what they take on how many replicas."""

from collections.abc import Mapping
from itertools import product
from typing import Any

from planner.costs import TowerSeconds
from planner.plan.plan_file import Layout
from planner.scoring import PlanMemory, exceeds_memory, states_error
from planner.specs.base import Ranks, with_fields
from planner.specs.inputs import Inputs
from planner.specs.parallelism import decided_fields
from planner.strategies.assignment.module_items import item_line
from planner.strategies.plan_drafts import draft_plan, plan_uses
from planner.strategies.static.layouts_plan import pricing_for

MEMORY_LADDER = ("none", "selective", "full")  # recomputation, as little as fits


def towers_of(inputs: Inputs, layouts: Mapping[str, Layout]) -> dict[str, TowerSeconds]:
    """The towers of a job, whose replicas have these layouts."""
    pricing, batch = pricing_for(inputs, dict(layouts)), inputs.batches[0]
    return {
        name: TowerSeconds(
            name, batch.items if name == inputs.module else batch.streams[name], item_line(pricing, name, layout)
        )
        for name, layout in layouts.items()
    }


def layouts_on_all_ranks(inputs: Inputs, tp: int, recompute: str) -> dict[str, Layout]:
    """Each tower data-parallel over all ranks, in replicas of `tp`, with what the job fixes of it. Forwards of a step
    come before its backwards, which wait for losses. Raises InputError.
    """
    size, found = inputs.cluster.size, dict[str, Layout]()
    for name in inputs.model.modules:
        usual: dict[str, Any] = {"tp": tp, "zero": 1, "recompute": recompute, "schedule": "gpipe"}
        fields = usual | decided_fields(inputs.fixed_of(name))
        found[name] = with_fields(Layout(ranks=Ranks(range(size))), **{**fields, "dp": size // fields["tp"]})
    return found


def replica_sizes(inputs: Inputs) -> list[int]:
    """The numbers of ranks that replicas of all towers may have, the least first; none where the job fixes several."""
    kind, modules = inputs.cluster.ranks[0], inputs.model.modules
    sizes = (inputs.cluster.size, min(kind.per_node, inputs.cluster.size), *(each.heads for each in modules.values()))
    fixed = {tp for name in modules if (tp := inputs.fixed_of(name).tp)}
    return [tp for tp in fixed or (1, 2, 4, 8) if len(fixed) < 2 and not any(size % tp for size in sizes)]


def layouts_by_memory(inputs: Inputs) -> list[dict[str, Layout]]:
    """Layouts of all towers that hold ever less on a rank: more recomputed, then in replicas of more ranks."""
    able = list[dict[str, Layout]]()
    for tp, recompute in product(replica_sizes(inputs), MEMORY_LADDER):
        layouts = layouts_on_all_ranks(inputs, tp, recompute)
        if layouts not in able:  # where the job fixes what is recomputed
            able.append(layouts)
    return able


def require_states(inputs: Inputs, layouts: Mapping[str, Layout]) -> None:
    """Raises Infeasible where the states of a tower fit no rank, though all share what ZeRO shards, before a search."""
    for name, layout in layouts.items():
        alone = {name: layout}
        draft = draft_plan(inputs, plan_uses(inputs, alone, ()), alone, {}, ())
        memory = PlanMemory(draft, pricing_for(inputs, alone))
        if exceeds_memory(memory.static_bytes(0), memory.allowed_bytes(0)):
            raise states_error(memory)
