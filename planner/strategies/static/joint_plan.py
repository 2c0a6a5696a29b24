"""Several modules, each with the layout and on the ranks that the job fixes for it, as one plan.

Which sample and which item goes where is decided for all modules together (joint_assignment.py).
"""

from collections.abc import Sequence
from dataclasses import replace

from planner.costs import Pricing
from planner.errors import InputError
from planner.plan.gradient_flow import gradient_flows
from planner.plan.legal.plan_laws import require_legal
from planner.plan.mesh.synchronisation import reduces_each_micro_batch
from planner.plan.plan_file import Edge, Group, ItemEntry, Layout, MicroBatch, Plan, SharedDeviceItems
from planner.scoring import Score, outcome_of, prediction_of, require_memory, score, with_score
from planner.specs.base import with_fields
from planner.specs.hardware.rank_kinds import rank_kinds
from planner.specs.inputs import Inputs
from planner.strategies.plan_drafts import draft_plan, plan_uses
from planner.strategies.static.joint_assignment import JointItems
from planner.strategies.static.packed_modules import packs_samples
from planner.strategies.static.placement import placed_layouts
from planner.strategies.static.sample_assignment import packed_micro_batches
from planner.strategies.static.static_plan import replica_groups

AS_FIXED = "layouts as fixed"  # the effort of an outcome


def unsupported_together(inputs: Inputs) -> str | None:
    """The reason why the modules of a job cannot be planned together, and the fix after ` | `; None when they can."""
    one_kind = len(rank_kinds(inputs.cluster)) == 1
    return undefined_items(inputs) or (None if one_kind else "a static layout needs ranks of one kind | give a plan")


def undefined_items(inputs: Inputs) -> str | None:
    """The modules whose items a job does not define, and the fix after ` | `; None where it defines all."""
    known = {inputs.module, *inputs.batches[0].streams}
    others = " and ".join(f"`{name}`" for name in inputs.model.modules if name not in known)
    none = "lengths: {from: sample_mix, text: 2048, multimodal: 0, text_only: 1}"
    fix = f"for text alone, {none}; or give workload.streams"
    return f"the job does not define the items of {others} | {fix}" if others else None


def fixes_every_module(inputs: Inputs) -> bool:
    """Whether a job has several modules and fixes the layout of each, so that no strategy has a layout to decide."""
    modules = inputs.model.modules
    return len(modules) > 1 and {*modules} <= {*inputs.job.fix.layouts} and unsupported_together(inputs) is None


def solve_together(inputs: Inputs) -> Plan:
    """The priced plan of the layouts that a job fixes. Raises InputError, and Infeasible where it does not fit."""
    plan, found = priced_together(inputs)
    require_memory(plan, found)
    return plan


def priced_together(inputs: Inputs, runs: bool = True) -> tuple[Plan, Score]:
    """The plan with its outcome, whether it fits or not, and its score. Raises InputError."""
    plan = plan_together(inputs, runs)
    found = score(plan)
    return with_fields(plan, outcome=outcome_of(found, AS_FIXED), prediction=prediction_of(found)), found


def assign_batch(inputs: Inputs, layouts: dict[str, Layout]) -> Plan:
    """The priced plan of a batch in which layouts are those of an earlier one. Raises InputError, and Infeasible where
    it does not fit.
    """
    return with_score(plan_of_layouts(inputs, layouts), AS_FIXED)


def plan_together(inputs: Inputs, runs: bool = True) -> Plan:
    """The unpriced plan of the layouts that a job fixes. Raises InputError when a layout's degrees do not divide
    evenly, a rank would have no module, or, if it is to run, the batch does not divide over the layout of the samples;
    and Infeasible where a sample is more than a rank may hold.
    """
    by_hand = replace(inputs, job=with_fields(inputs.job, strategy="by_hand"))
    return plan_of_layouts(by_hand, placed_layouts(inputs, runs and not packs_samples(inputs)))


def plan_of_layouts(inputs: Inputs, layouts: dict[str, Layout]) -> Plan:
    """The unpriced plan of one batch with a decided layout of every module, by the job's strategy. Raises InputError
    where it is not legal, and Infeasible where a sample is more than a rank may hold.
    """
    packed = packs_samples(inputs)
    used = plan_uses(inputs, layouts, ())
    flows = gradient_flows(used.models, inputs.model.edges)
    pricing = Pricing(used.models, layouts, inputs.cluster, used.prices, used.devices, flows=flows)
    micro_batches = (packed_by_group if packed else balanced_by_group)(pricing, inputs, layouts)
    sharded = any(map(reduces_each_micro_batch, layouts.values()))
    job = with_fields(inputs.job, sync="micro_batch" if sharded else "step")
    plan = draft_plan(
        replace(inputs, job=job),
        used,
        layouts,
        module_groups(layouts),
        nonempty_micro_batches(micro_batches, layouts[inputs.module]),
    )
    plan = with_fields(plan, edges=plan_edges(inputs, layouts))
    require_legal(plan, str(inputs.sources["job"]))
    return plan


def packed_by_group(pricing: Pricing, inputs: Inputs, layouts: dict[str, Layout]) -> list[MicroBatch]:
    """Micro-batches of samples that are packed to the job's limits. Raises InputError."""
    for name in (name for name, layout in layouts.items() if layout.serves > 1):
        message = f"a pass of `{name}` computes what its own packs read, and serves is {layouts[name].serves}"
        where = f"{inputs.sources['job']} (fix.layouts.{name}.serves)"
        raise InputError(message, where=where, fix="leave serves out, or limits.inputs_per_rank and tokens_per_rank")
    return [
        {name: items_by_group(name, cells) for name, cells in each.items() if name == inputs.module or any(cells)}
        for each in packed_micro_batches(pricing, inputs, layouts)
    ]


def balanced_by_group(pricing: Pricing, inputs: Inputs, layouts: dict[str, Layout]) -> list[MicroBatch]:
    """Micro-batches of as many samples as their layout says, with what they read."""
    cells = JointItems(pricing, inputs, layouts).best().cells
    return [
        {
            name: items_by_group(name, of_module[number])
            for name, of_module in cells.items()
            if name == inputs.module or any(of_module[number])
        }
        for number in range(len(cells[inputs.module]))
    ]


def nonempty_micro_batches(micro_batches: Sequence[MicroBatch], layout: Layout) -> tuple[MicroBatch, ...]:
    """The micro-batches without empty ones, which interleaving keeps."""
    return tuple(micro_batch for micro_batch in micro_batches if any(micro_batch.values()) or layout.vpp > 1)


def items_by_group(name: str, cells: Sequence[Sequence[int]]) -> dict[str, tuple[ItemEntry, ...] | SharedDeviceItems]:
    """Items of a micro-batch by group, one group per replica."""
    return {f"{name}.dp{number}": tuple(sorted(items)) for number, items in enumerate(cells) if items}


def module_groups(layouts: dict[str, Layout]) -> dict[str, Group]:
    """The groups of all modules, named by module and replica."""
    return {
        f"{name}.{group}": each for name, layout in layouts.items() for group, each in replica_groups(layout).items()
    }


def plan_edges(inputs: Inputs, layouts: dict[str, Layout]) -> tuple[Edge, ...]:
    """The edges of the model, resharded where the target uses a ring."""
    return tuple(
        Edge(
            source=edge.source,
            target=edge.target,
            by=edge.by,
            reshard="zigzag" if layouts[edge.target].default_split.ring > 1 else "contiguous",
        )
        for edge in inputs.model.edges
    )
