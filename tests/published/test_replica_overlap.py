"""Whether replicas reduce gradients beside backward, as a record says it."""

import pytest

from planner.published.replica_overlap import overlaps_replicas, prefetches
from tests.published.made_records import record


@pytest.mark.parametrize(
    ("software", "settings", "overlaps"),
    [
        ("megatron", "tensor-model-parallel-size=1; overlap-grad-reduce=True", True),
        ("megatron", "tensor-model-parallel-size=1; bf16=True", False),  # its arguments, without that one
        ("megatron", "", True),  # nothing is said
        ("megatron", "DistributedOptimizer", False),
        ("megatron", "OverlappedDistributedOptimizer", True),
        ("torchtitan", "DistributedOptimizer", True),
        ("nemo", "overlap_grad_reduce=False", False),
    ],
)
def test_a_record_says_whether_its_replicas_overlap(software, settings, overlaps):
    made = record(other_settings=settings)
    assert overlaps_replicas(made, settings.lower(), software) is overlaps


@pytest.mark.parametrize(
    ("settings", "gathers_ahead"),
    [
        ("fsdp; backward_prefetch=backward_post", False),
        ("no prefetch", False),
        ("backward_prefetch=backward_pre", True),
    ],
)
def test_a_record_says_whether_backward_gathers_ahead(settings, gathers_ahead):
    assert prefetches(settings) is gathers_ahead
