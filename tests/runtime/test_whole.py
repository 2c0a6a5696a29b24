"""Parts that ranks hold make the whole again, and what several hold must be the same."""

import pytest
import torch

from planner.errors import RunFailed
from planner.models.held import Part, Split, part_of
from planner.runtime.whole import APART, Piece, together

WHOLE = torch.arange(24, dtype=torch.float64).view(4, 6) + 1


def ranks():
    """Six, of which each has one part of a matrix that is split along both dims, and all of a norm."""
    for row in range(2):
        for column in range(3):
            splits = (Split(0, Part(row, 2), "ep"), Split(1, Part(column, 3), "etp"))
            yield {"llm": {"w": Piece(splits, part_of(WHOLE, splits).clone()), "norm": Piece((), WHOLE[0].clone())}}


def test_parts_make_the_whole():
    found = together([*ranks()])
    assert found.keys() == {"llm"} and found["llm"].keys() == {"w", "norm"}
    assert torch.equal(found["llm"]["w"], WHOLE) and torch.equal(found["llm"]["norm"], WHOLE[0])


@pytest.mark.parametrize("by", [2 * APART, float("nan")])
def test_ranks_that_drift_apart_are_named(by):
    of_rank = [*ranks()]
    of_rank[4]["llm"]["norm"].values.mul_(1 + by)
    with pytest.raises(RunFailed, match=r"`llm.norm` is one on rank 0 and another on rank 4"):
        together(of_rank)


def test_what_overflows_on_all_ranks_is_the_same():
    of_rank = [*ranks()]
    for own in of_rank:
        own["llm"]["norm"].values[2] = float("nan")
    assert together(of_rank)["llm"]["norm"].isnan().sum() == 1


def test_ranks_may_round_in_ways_of_their_own():
    of_rank = [*ranks()]
    of_rank[4]["llm"]["norm"].values.mul_(1 + APART / 2)
    assert torch.equal(together(of_rank)["llm"]["norm"], WHOLE[0])
