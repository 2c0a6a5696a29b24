"""The head plan, which later steps continue: it lists every group on which a later batch may be placed."""

import re

from planner.costs import rank_pools, split_degree
from planner.online.batch_stream import BatchStream
from planner.online.group_placement import catalogue_blocks
from planner.plan.plan_file import FollowingSteps, Group, Plan, group_name
from planner.specs.base import Ranks, with_fields
from planner.specs.inputs import Inputs


def with_group_catalogue(plan: Plan, inputs: Inputs) -> Plan:
    """Adds the catalogue of groups and the step folder to a plan of the job's first batches."""
    groups = {
        group_name(block): Group(ranks=block, split=split_degree(inputs.spec, len(block)))  # type: ignore[arg-type]
        for pool in rank_pools(inputs.cluster, Ranks(range(inputs.cluster.size)))
        for block in catalogue_blocks(pool, plan.uses.degrees)
    } | plan.groups
    total = BatchStream(inputs).total
    return with_fields(
        plan,
        groups=dict(sorted(groups.items(), key=lambda entry: (entry[1].ranks[0], -len(entry[1].ranks), entry[0]))),
        then=FollowingSteps(
            folder=re.sub(r"[^\w.+-]", "_", plan.name) + ".steps",
            batches=None if total is None else total - len(plan.steps),
        ),
    )
