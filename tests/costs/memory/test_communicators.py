"""Communicators of the experts' mesh: one more for each group whose ranks are no dense group."""

import numpy as np
import pytest

from planner.costs.layout_columns import LayoutColumns, columns_of, stack_columns
from planner.costs.memory.communicators import GROUP_BUFFERS, PAIR_BUFFERS, communicator_bytes
from planner.plan.mesh.rank_mesh import expert_groups_over, groups_over
from planner.plan.plan_file import Layout
from planner.specs.base import Ranks
from tests.costs.machines import LLAMA, MIXTRAL


def layout(**degrees):
    ranks = int(np.prod([degrees.get(dim, 1) for dim in ("tp", "cp", "dp", "pp")]))
    return Layout(ranks=Ranks(range(ranks)), **degrees)


def counted(at: Layout) -> float:
    """Bytes of rank 0 from its groups by rank: those of experts that no dense group equals."""
    dense = {groups_over(at, dims)[0] for dims in (("tp",), ("cp",), ("cp", "dp"), ("tp", "cp", "dp", "replica", "pp"))}
    own = {expert_groups_over(at, dims)[0] for dims in (("etp",), ("ep",), ("edp",))} - dense
    sizes = [len(group) for group in own if len(group) > 1]
    return GROUP_BUFFERS + sum(GROUP_BUFFERS if size >= 4 else PAIR_BUFFERS for size in sizes)


CASES = [
    {"tp": 4, "cp": 2, "dp": 8, "pp": 4, "ep": 64},  # the folding of arXiv 2504.14960, §3: every other group is dense
    {"tp": 2, "dp": 8, "ep": 4, "etp": 2},
    {"tp": 2, "dp": 8, "ep": 8, "etp": 2},
    {"dp": 8, "ep": 8},
    {"dp": 8},
    {"tp": 4, "dp": 4, "ep": 2, "etp": 2, "pp": 2},
]


@pytest.mark.parametrize("degrees", CASES)
def test_every_group_of_the_experts_counts_once_unless_a_dense_group_has_its_ranks(degrees):
    at = layout(**degrees)
    assert float(communicator_bytes(MIXTRAL, columns_of(at))) == counted(at)
    assert float(communicator_bytes(LLAMA, columns_of(at))) == GROUP_BUFFERS


def test_many_layouts_are_counted_as_each():
    each = [columns_of(layout(**degrees)) for degrees in CASES]
    many = communicator_bytes(MIXTRAL, stack_columns(each))
    assert many.tolist() == [float(communicator_bytes(MIXTRAL, at)) for at in each]
    assert float(communicator_bytes(MIXTRAL, LayoutColumns(ranks=1, seq=1, batch=1))) == 0.0
