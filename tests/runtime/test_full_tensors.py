"""Shards of all ranks make the unsharded tensor, and replicas must be the same."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import RunFailed
from planner.models.checkpoints import HeldShard
from planner.models.sharding import EqualShard, ParameterSplit, take_shard
from planner.models.tensor_region import held_region
from planner.runtime.state import full_tensors
from planner.runtime.state.full_tensors import REPLICA_TOLERANCE, assemble, messages, replicas_differ

WHOLE = torch.arange(24, dtype=torch.float64).view(4, 6) + 1


def held(splits=()):
    """What a rank holds whose shard of the matrix these splits make."""
    values = take_shard(WHOLE, splits).clone()
    return HeldShard(held_region(values, splits), values)


def parts():
    """Of six ranks, of which each has one part of a matrix that is split along both dims."""
    for row in range(2):
        for column in range(3):
            yield held((ParameterSplit(0, EqualShard(row, 2), "ep"), ParameterSplit(1, EqualShard(column, 3), "etp")))


def put_together(shards):
    """One tensor, of which rank after rank brings a shard."""
    return assemble((rank, {("llm", "w"): shard}) for rank, shard in enumerate(shards))["llm", "w"]


def test_parts_make_the_whole():
    assert torch.equal(put_together(parts()), WHOLE)
    assert torch.equal(put_together(held() for _ in range(6)), WHOLE)


def test_a_part_that_nobody_brings_is_noticed():
    with pytest.raises(AssertionError, match=r"ranks lack llm\.w"):
        put_together([*parts()][1:])


def test_ranks_with_the_same_part_are_compared_part_by_part():
    twice = [*parts(), *parts()]
    assert torch.equal(put_together(twice), WHOLE)
    twice[8].values.mul_(2)
    with pytest.raises(RunFailed, match=r"`llm\.w` differs between rank 2 and rank 8"):
        put_together(twice)


@pytest.mark.parametrize("by", [2 * REPLICA_TOLERANCE, float("nan")])
def test_ranks_that_drift_apart_are_named(by):
    of_rank = [held() for _ in range(6)]
    of_rank[4].values.mul_(1 + by)
    with pytest.raises(RunFailed, match=r"`llm\.w` differs between rank 0 and rank 4"):
        put_together(of_rank)


def test_what_overflows_on_all_ranks_is_the_same():
    of_rank = [held() for _ in range(6)]
    for own in of_rank:
        own.values[2, 3] = float("nan")
    assert put_together(of_rank).isnan().sum() == 1


def test_ranks_may_round_in_ways_of_their_own():
    of_rank = [held() for _ in range(6)]
    of_rank[4].values.mul_(1 + REPLICA_TOLERANCE / 2)
    assert torch.equal(put_together(of_rank), WHOLE)


SIZES = st.lists(st.tuples(st.integers(0, 9), st.sampled_from([torch.float32, torch.float64])), max_size=30)


@given(SIZES)
def test_messages_have_every_shard_once_in_its_order_and_one_dtype(sizes):
    sizes = {("llm", str(number)): size for number, size in enumerate(sizes)}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(full_tensors, "MESSAGE_NUMBERS", 12)
        found = [*messages(sizes)]
    assert [key for together in found for key in together] == [*sizes]
    assert all(len({sizes[key][1] for key in together}) == 1 for together in found)
    assert all(len(together) == 1 or sum(sizes[key][0] for key in together) <= 12 for together in found)


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
