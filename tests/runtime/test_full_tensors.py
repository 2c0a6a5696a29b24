"""Shards of all ranks make the unsharded tensor, and replicas must be the same."""

import pytest
import torch

from planner.errors import RunFailed
from planner.models.sharding import EqualShard, ParameterSplit, take_shard
from planner.runtime.state import full_tensors
from planner.runtime.state.full_tensors import REPLICA_TOLERANCE, TensorShard, assemble, replicas_differ

WHOLE = torch.arange(24, dtype=torch.float64).view(4, 6) + 1


def parts():
    """Of six ranks, of which each has one part of a matrix that is split along both dims."""
    for row in range(2):
        for column in range(3):
            splits = (ParameterSplit(0, EqualShard(row, 2), "ep"), ParameterSplit(1, EqualShard(column, 3), "etp"))
            yield TensorShard(splits, take_shard(WHOLE, splits).clone())


def norms():
    """Of six ranks, of which each has all of it."""
    return [TensorShard((), WHOLE[0].clone()) for _ in range(6)]


def test_parts_make_the_whole():
    assert torch.equal(assemble("w", enumerate(parts())), WHOLE)
    assert torch.equal(assemble("norm", enumerate(norms())), WHOLE[0])


def test_ranks_with_the_same_part_are_compared_part_by_part():
    twice = [*parts(), *parts()]
    assert torch.equal(assemble("w", enumerate(twice)), WHOLE)
    twice[8].values.mul_(2)
    with pytest.raises(RunFailed, match="`w` differs between rank 2 and rank 8"):
        assemble("w", enumerate(twice))


@pytest.mark.parametrize("by", [2 * REPLICA_TOLERANCE, float("nan")])
def test_ranks_that_drift_apart_are_named(by):
    of_rank = norms()
    of_rank[4].values.mul_(1 + by)
    with pytest.raises(RunFailed, match=r"`llm.norm` differs between rank 0 and rank 4"):
        assemble("llm.norm", enumerate(of_rank))


@pytest.mark.parametrize("at", [None, 0, 23])
def test_large_ones_are_compared_slice_by_slice(monkeypatch, at):
    monkeypatch.setattr(full_tensors, "COMPARED_AT_ONCE", 4)
    other = WHOLE * (1 + REPLICA_TOLERANCE / 2)
    if at is not None:
        other.view(-1)[at] += 1
    for turn in (False, True):  # also where numbers do not lie one behind the other
        one, two = (WHOLE.T, other.T) if turn else (WHOLE, other)
        assert replicas_differ(one, two) == (at is not None)
        assert replicas_differ(one[0, 0], two[0, 0]) == (at == 0)


def test_what_overflows_on_all_ranks_is_the_same():
    of_rank = norms()
    for own in of_rank:
        own.values[2] = float("nan")
    assert assemble("norm", enumerate(of_rank)).isnan().sum() == 1


def test_ranks_may_round_in_ways_of_their_own():
    of_rank = norms()
    of_rank[4].values.mul_(1 + REPLICA_TOLERANCE / 2)
    assert torch.equal(assemble("norm", enumerate(of_rank)), WHOLE[0])
