"""Along which dimension FSDP2 shards a parameter."""

import pytest
import torch
from torch import nn

from planner.runtime.state.fsdp import shard_dimension


@pytest.mark.parametrize(
    ("shape", "ranks", "dim"),
    [
        ((8, 6, 4), 4, 0),
        ((9, 8), 4, 0),  # uneven along the first, as FSDP2 can
        ((1, 6, 4), 4, 2),
        ((2, 8, 4), 4, 1),
        ((1, 6, 5), 4, 0),  # nothing divides
        ((3,), 4, 0),
        ((1, 6, 4), 1, 0),
    ],
)
def test_few_experts_are_shared_out_along_a_width_that_divides(shape, ranks, dim):
    shard = shard_dimension(nn.Parameter(torch.empty(shape, device="meta")), ranks)
    assert (shard.dim if shard else 0) == dim
