"""Sums over replicas in buckets: every gradient once, and no bucket larger than it may be."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from planner.runtime.state.replicas import gradient_buckets

MOST_BYTES = 128


def weights_of(sizes):
    weights = [nn.Parameter(torch.zeros(size, 2)) for size in sizes]
    for number, weight in enumerate(weights):
        weight.grad = torch.full_like(weight, float(number)).T.contiguous().T  # of any strides
    return weights


@given(st.lists(st.integers(1, 40), max_size=12))
def test_each_gradient_is_summed_once_in_full_buckets(sizes):
    weights, calls = weights_of(sizes), []

    def double(flat):
        calls.append(flat.nbytes)
        flat.mul_(2)

    buckets = list(gradient_buckets(weights, double, MOST_BYTES))
    for bucket in buckets:
        bucket.sum()
    held = [sum(weight.nbytes for weight in bucket.weights) for bucket in buckets]
    assert calls == held and sum(held) == 8 * sum(sizes)
    assert all(size <= MOST_BYTES or len(bucket.weights) == 1 for size, bucket in zip(held, buckets, strict=True))
    assert all(held[i] + buckets[i + 1].weights[0].nbytes > MOST_BYTES for i in range(len(buckets) - 1))
    for number, weight in enumerate(weights):
        assert torch.equal(weight.grad, torch.full_like(weight, 2.0 * number))
