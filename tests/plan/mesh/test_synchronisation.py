"""When ranks of a stage need each other: in every micro-batch, and where gradients are summed."""

from collections import Counter

import pytest

from planner.plan.legal.plan_laws import violations
from planner.plan.mesh.synchronisation import all_ranks_join_micro_batches, reduces_gradients
from planner.plan.plan_file import Group, Layout, Plan, Step
from planner.plan.tasks.expand import expand
from planner.specs.base import Ranks, with_fields
from planner.specs.layers.components import Experts
from tests.meshes import meshed
from tests.plans import decoder, plan_of, stages_of, uses

DENSE = decoder()
MOE = with_fields(DENSE, moe=Experts(experts=4, topk=2, ffn=32))
WEIGHED = with_fields(DENSE, moe=Experts(experts=4, topk=2, ffn=32, balance=0.01))


def spread(zero=0, ep=1, etp=1, **mesh: int) -> Layout:
    size = 1
    for extent in mesh.values():
        size *= extent
    stages = stages_of(4, mesh["pp"]) if "pp" in mesh else ()
    return Layout(ranks=Ranks(range(size)), **meshed(mesh), ep=ep, etp=etp, zero=zero, stages=stages)


def uneven(module, layout: Layout) -> Plan:
    """Two replicas of a pipeline of two stages; the second has nothing to do in the second of three micro-batches."""
    groups = {name: Group(ranks=Ranks((first, first + 2))) for name, first in (("a", 0), ("b", 1))}
    rows = ({"a": (0,), "b": (1,)}, {"a": (2,)}, {"a": (3,), "b": (4,)})
    sync = "micro_batch" if layout.zero == 3 else "step"
    facts = uses(4, {"llm": module}, {"llm": dict.fromkeys(range(5), 8)})
    return plan_of(4, facts, {"llm": layout}, groups, Step(sync=sync, micro_batches=rows))


@pytest.mark.parametrize(
    ("module", "layout", "met"),
    [
        (DENSE, spread(dp=4), False),
        (DENSE, spread(dp=4, zero=3), True),
        (MOE, spread(dp=4), False),
        (MOE, spread(dp=4, ep=2), True),
        (MOE, spread(dp=4, etp=2), True),
        (MOE, spread(dp=4, ep=1), False),
        (WEIGHED, spread(dp=4), True),
    ],
)
def test_who_meets_in_every_micro_batch(module, layout, met):
    assert all_ranks_join_micro_batches(layout, module) is met


@pytest.mark.parametrize(
    ("module", "layout", "summed"),
    [
        (DENSE, spread(dp=1), False),
        (DENSE, spread(dp=2, pp=2), True),
        (DENSE, spread(replica=2, pp=2), True),
        (DENSE, spread(tp=2, pp=2), False),
        (MOE, spread(tp=2, pp=2), True),
        (MOE, spread(tp=2, pp=2, ep=2), False),
        (MOE, spread(dp=2, ep=2), True),
    ],
)
def test_whose_gradients_are_summed(module, layout, summed):
    assert reduces_gradients(layout, module) is summed


@pytest.mark.parametrize(
    ("module", "layout", "met"),
    [
        (DENSE, spread(pp=2, dp=2), False),
        (MOE, spread(pp=2, dp=2), False),
        (MOE, spread(pp=2, dp=2, ep=2), True),
        (WEIGHED, spread(pp=2, dp=2), True),
        (DENSE, spread(pp=2, dp=2, zero=3), True),
    ],
    ids=["dense", "experts on each rank", "experts spread", "balanced", "ZeRO-3"],
)
def test_where_ranks_meet_every_rank_has_every_pass_of_every_micro_batch(module, layout, met):
    plan = uneven(module, layout)
    assert violations(plan) == []
    tasks = expand(plan)
    passes = Counter((rank, task.phase) for task in tasks if task.phase in ("F", "B") for rank in task.ranks)
    of_each = {rank: {passes[rank, phase] for phase in ("F", "B")} for rank in range(4)}
    assert of_each == ({rank: {3} for rank in range(4)} if met else {0: {3}, 1: {2}, 2: {3}, 3: {2}})
    idle = [task for task in tasks if task.group.startswith("idle")]
    assert all(task.sizes == () and task.micro_batch == 1 and len(task.ranks) == 1 for task in idle)


@pytest.mark.parametrize("zero", [0, 1, 2])
def test_replicas_are_synced_once_a_step_with_dp_or_without(zero):
    """Of one stage: a sync and an update over all ranks, and a gather where the update was sharded."""
    for mesh in ({"replica": 4}, {"replica": 2, "dp": 2}, {"dp": 4}):
        layout = spread(zero=zero, **mesh)
        groups = {f"g{rank}": Group(ranks=Ranks((rank,))) for rank in range(4)}
        rows = ({f"g{rank}": (rank,) for rank in range(4)},)
        facts = uses(4, {"llm": DENSE}, {"llm": dict.fromkeys(range(4), 8)})
        plan = plan_of(4, facts, {"llm": layout}, groups, Step(sync="step", micro_batches=rows))
        assert violations(plan) == []
        once = [task for task in expand(plan) if task.micro_batch is None]
        assert [task.phase for task in once] == ["sync", "update", "gather"][: 3 if zero else 2]
        assert all(task.ranks == Ranks(range(4)) for task in once)
