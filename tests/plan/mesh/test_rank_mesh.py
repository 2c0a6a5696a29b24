"""Ranks of one block of a mesh share one object, so that what is known of a mesh grows with its ranks alone."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.plan.mesh.rank_mesh import all_blocks, coordinates, distinct_blocks, groups_over
from planner.plan.plan_file import Layout
from planner.specs.base import Ranks


@pytest.mark.parametrize("ranks", [64, 4096])
def test_blocks_hold_each_rank_once(ranks):
    """Not once for each rank of the block, which is quadratic."""
    blocks = groups_over(Layout(ranks=Ranks(range(ranks)), dp=ranks), ("dp",))
    assert len(blocks) == ranks
    assert sum(len(block) for block in {id(block): block for block in blocks.values()}.values()) == ranks


@given(st.tuples(*[st.integers(1, 3)] * 4), st.sets(st.sampled_from(["tp", "cp", "pp", "dp"])), st.integers(0, 5))
def test_blocks_differ_in_their_dims_only(sizes, dims, first):
    tp, cp, pp, dp = sizes
    count = tp * cp * pp * dp
    layout = Layout(ranks=Ranks(range(first, first + count)), tp=tp, cp=cp, pp=pp, dp=dp)
    blocks = groups_over(layout, dims)
    at = {rank: coordinates(layout, rank) for rank in layout.ranks}
    for one, other in product(layout.ranks, repeat=2):
        assert (other in blocks[one]) == all(at[one][dim] == at[other][dim] for dim in at[one] if dim not in dims)
    assert sorted(rank for block in all_blocks(blocks) for rank in block) == [*layout.ranks]
    some = layout.ranks[::2]
    assert distinct_blocks(blocks, some) == [*dict.fromkeys(blocks[rank] for rank in some)]
