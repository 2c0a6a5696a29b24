"""Regions of tensors: what sharding selects, and what two shards share, against indices written out one by one."""

from math import prod

import torch
from hypothesis import given
from hypothesis import strategies as st

from planner.models.sharding import EqualShard, ParameterSplit, take_shard
from planner.models.tensor_region import chunk, copy_shared, held_region, whole_region
from tests.examples import examples


@st.composite
def layouts(draw, sizes):
    """A way to shard a tensor over ranks: splits that divide it, in sections too, and chunks of one dimension."""
    dims = draw(st.lists(st.sampled_from(range(len(sizes))), unique=True, max_size=2)) if sizes else []
    degrees = {dim: draw(st.sampled_from([each for each in (1, 2, 3) if sizes[dim] % (2 * each) == 0])) for dim in dims}
    sections = {dim: draw(st.sampled_from([(), (sizes[dim] // 2,) * 2])) for dim in dims}
    chunked = (draw(st.sampled_from(range(len(sizes)))), draw(st.integers(1, 5))) if sizes else (0, 1)
    return degrees, sections, chunked


def ranks_of(degrees, sections, chunked):
    """Of each rank, its splits and its chunk."""
    for index in range(prod(degrees.values())):
        splits, left = [], index
        for dim, degree in degrees.items():
            splits.append(ParameterSplit(dim, EqualShard(left % degree, degree), "tp", sections[dim]))
            left //= degree
        for place in range(chunked[1]):
            yield splits, place


def shards_of(full, layout):
    """Region and values of each rank, whose chunk is what torch makes, or empty."""
    dim, count = layout[2]
    for splits, place in ranks_of(*layout):
        values = take_shard(full, splits).clone()
        region = held_region(values, splits)
        if values.dim():
            region = region.select(dim, [chunk(values.shape[dim], place, count)])
            chunks = values.chunk(count, dim)
            values = chunks[place] if place < len(chunks) else values.narrow(dim, 0, 0)
        yield region, values


@st.composite
def two_layouts(draw):
    sizes = draw(st.lists(st.sampled_from([12, 24]), max_size=3).map(tuple))
    return sizes, draw(layouts(sizes)), draw(layouts(sizes))


@examples(60)
@given(two_layouts())
def test_shards_of_any_layout_are_found_in_those_of_any_other(drawn):
    sizes, before, after = drawn
    full = torch.arange(prod(sizes), dtype=torch.float64).reshape(sizes)
    stored = {region: values for region, values in shards_of(full, before)}
    assert sum(region.numbers for region in stored) == full.numel()
    for region, want in shards_of(full, after):
        assert region.shape == tuple(want.shape)
        found = torch.full_like(want, -1)
        copied = sum(copy_shared(found, region, values, other) for other, values in stored.items())
        assert copied == region.numbers and torch.equal(found, want)


def test_what_is_not_shared_stays():
    left = whole_region((4, 6)).select(1, [(0, 2), (4, 5)])
    right = whole_region((4, 6)).select(1, [(2, 4)])
    into = torch.zeros(left.shape)
    assert copy_shared(into, left, torch.ones(right.shape), right) == 0 and not into.any()
