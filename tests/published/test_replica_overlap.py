"""Whether replicas reduce gradients beside backward and gather weights beside forward, as a record says it."""

import pytest

from planner.published.exchange_settings import gathers_ahead, overlaps_replicas, prefetches
from tests.published.made_records import record


@pytest.mark.parametrize(
    ("software", "settings", "reduces", "gathers"),
    [
        ("megatron", "tensor-model-parallel-size=1; overlap-grad-reduce=True", True, False),
        ("megatron", "tensor-model-parallel-size=1; overlap-grad-reduce=True; overlap-param-gather=True", True, True),
        ("megatron", "tensor-model-parallel-size=1; bf16=True", False, False),  # its arguments, without these two
        ("megatron", "", None, None),  # nothing is said
        ("megatron", "DistributedOptimizer", False, None),
        ("megatron", "OverlappedDistributedOptimizer", None, None),
        ("torchtitan", "DistributedOptimizer", None, None),
        ("nemo", "overlap_grad_reduce=False", False, None),
        ("megatron-2021", "overlap_grad_sync=true; overlap_param_sync: off", True, False),
        ("fsdp", "without gradient overlap", False, None),
    ],
)
def test_a_record_says_what_its_replicas_overlap_or_nothing(software, settings, reduces, gathers):
    made = record(other_settings=settings)
    assert overlaps_replicas(made, settings.lower(), software) is reduces
    assert gathers_ahead(made, settings.lower(), software) is gathers


@pytest.mark.parametrize(
    ("settings", "ahead"),
    [
        ("fsdp; backward_prefetch=backward_post", False),
        ("no prefetch", False),
        ("backward_prefetch=backward_pre", True),
    ],
)
def test_a_record_says_whether_backward_gathers_ahead(settings, ahead):
    assert prefetches(settings) is ahead
