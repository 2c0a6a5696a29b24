"""Sums over replicas in buckets: every gradient once, and no bucket larger than it may be."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from planner.runtime.state.replicas import buckets, sum_over_replicas

SIZES, MOST_BYTES = st.lists(st.integers(1, 40), max_size=12), 128


def weights_of(sizes):
    weights = [nn.Parameter(torch.zeros(size, 2)) for size in sizes]
    for number, weight in enumerate(weights):
        weight.grad = torch.full_like(weight, float(number)).T.contiguous().T  # of any strides
    return weights


@given(SIZES)
def test_each_gradient_is_summed_once_and_keeps_its_place(sizes):
    weights, calls = weights_of(sizes), []

    def double(flat):
        calls.append(flat.nbytes)
        flat.mul_(2)

    sum_over_replicas(weights, double, MOST_BYTES)
    assert sum(calls) == 8 * sum(sizes)
    for number, weight in enumerate(weights):
        assert torch.equal(weight.grad, torch.full_like(weight, 2.0 * number))


@given(SIZES)
def test_buckets_are_full_and_no_larger(sizes):
    found = list(buckets(weights_of(sizes), MOST_BYTES))
    held = [sum(weight.nbytes for weight in bucket) for bucket in found]
    assert [weight.shape[0] for bucket in found for weight in bucket] == sizes
    assert all(size <= MOST_BYTES or len(bucket) == 1 for size, bucket in zip(held, found, strict=True))
    assert all(held[i] + found[i + 1][0].nbytes > MOST_BYTES for i in range(len(found) - 1))
