"""The head plan, which later steps continue: it lists every group on which a later batch may be placed."""

import re

from planner.costs.step.sequences import pools, split
from planner.online.batches import Batches
from planner.online.catalogue import blocks
from planner.plan.model import Group, Plan, Then, group_name
from planner.specs.base import Ranks, changed
from planner.specs.inputs import Inputs


def headed(plan: Plan, inputs: Inputs) -> Plan:
    """Adds the catalogue of groups and the step folder to a plan of the job's first batches."""
    groups = {
        group_name(block): Group(ranks=block, split=split(inputs.spec, len(block)))  # type: ignore[arg-type]
        for pool in pools(inputs.cluster, Ranks(range(inputs.cluster.size)))
        for block in blocks(pool, plan.uses.degrees)
    } | plan.groups
    total = Batches(inputs).total
    return changed(
        plan,
        groups=dict(sorted(groups.items(), key=lambda entry: (entry[1].ranks[0], -len(entry[1].ranks), entry[0]))),
        then=Then(
            folder=re.sub(r"[^\w.+-]", "_", plan.name) + ".steps",
            batches=None if total is None else total - len(plan.steps),
        ),
    )
