"""Whatever counts alike in a loss, the weights of a step add up to one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.specs.workload.loss_weighting import target_weight, total_weight

COUNTS = st.lists(st.integers(0, 10**6), max_size=30)
every = pytest.mark.parametrize("loss", ["token", "sample", "square_root"])


@every
@given(counts=COUNTS)
def test_shares_of_all_targets_add_up_to_one(loss, counts):
    total = total_weight(loss, counts)
    shares = sum(count * target_weight(loss, count) / total for count in counts)
    assert shares == pytest.approx(1 if any(counts) else 0, rel=1e-12)


@given(counts=COUNTS)
def test_the_total_is_what_counts_alike(counts):
    present = [count for count in counts if count] or [1]
    assert total_weight("token", counts) == sum(present)
    assert total_weight("sample", counts) == len(present)
    assert total_weight("square_root", counts) == pytest.approx(sum(count**0.5 for count in present), rel=1e-12)


@given(count=st.integers(1, 10**6))
def test_a_square_root_is_half_way(count):
    token, root, sample = (target_weight(loss, count) for loss in ("token", "square_root", "sample"))
    assert root == pytest.approx((token * sample) ** 0.5, rel=1e-12)
