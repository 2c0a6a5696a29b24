"""Whatever ranks come to ask for is in the catalogue of the plan: nobody can make a group later."""

import pytest

from planner.plan.group_catalogue import EXPERT_EXCHANGE_DIMS, process_groups
from planner.plan.mesh.rank_mesh import (
    expert_groups_over,
    expert_state_groups_of_rank,
    groups_over,
    state_groups_of_rank,
)
from planner.plan.plan_file import ExpertLayout
from planner.specs.base import with_fields
from planner.specs.layers.components import Experts
from tests.meshes import meshed
from tests.runtime.training_worlds import DECODER, spread

MOE = with_fields(DECODER, moe=Experts(experts=8, topk=2, ffn=16))
MESHES = (
    {"dp": 8}, {"replica": 2, "dp": 4}, {"replica": 2, "dp": 2, "tp": 2}, {"pp": 2, "replica": 2, "dp": 2},
    {"dp": 2, "pp": 2, "tp": 2}, {"tp": 8}, {"replica": 4, "pp": 2},
    {"dp": 2, "cp": 4}, {"cp": 2, "dp": 2, "tp": 2}, {"pp": 2, "replica": 2, "cp": 2},
)  # fmt: skip
EXPERTS = ({}, {"ep": 2}, {"ep": 2, "etp": 2}, {"ep": 2, "experts": {"1": ExpertLayout(ep=1, etp=2)}})


@pytest.mark.parametrize("zero", range(4))
@pytest.mark.parametrize("mesh", MESHES, ids=str)
@pytest.mark.parametrize("experts", [None, *EXPERTS], ids=str)
def test_groups_of_states_are_there(mesh, zero, experts):
    spec, said = (DECODER, {}) if experts is None else (MOE, experts)
    plan = spread(8, spec, **meshed(mesh), zero=zero, **said)
    layout, found = plan.layouts["llm"], process_groups(plan)
    for rank in range(8):
        wanted = [*state_groups_of_rank(layout, rank), groups_over(layout, ("tp",))[rank]]
        for layer in range(spec.layers) if experts is not None else ():
            at = layout.at_layer(layer)
            wanted += [
                *expert_state_groups_of_rank(at, rank),
                *(expert_groups_over(at, dims)[rank] for dims in EXPERT_EXCHANGE_DIMS),
            ]
        assert all(rank in ranks and (len(ranks) == 1 or ranks in found) for ranks in wanted)


@pytest.mark.parametrize("zero", range(4))
@pytest.mark.parametrize("mesh", MESHES, ids=str)
def test_a_state_is_held_once_by_those_that_share_it_and_whole_by_zero_0(mesh, zero):
    """Brute force: the ranks with the same layers and part of matrices are the sharing ones times the replicas."""
    layout = spread(8, **meshed(mesh), zero=zero).layouts["llm"]
    for rank in range(8):
        shared, replicas = state_groups_of_rank(layout, rank)
        same = groups_over(layout, ("dp", "cp", "replica"))[rank]
        assert len(shared) * len(replicas) == len(same) and set(shared) | set(replicas) <= set(same)
        assert len(shared) == (1 if zero == 0 else mesh.get("dp", 1) * mesh.get("cp", 1))
