"""Relative positions as in T5 (arXiv 1910.10683, section 2.1): each head has one learned number per bucket of distances
from query to key, which is added to the score. Scores are unscaled products of queries and keys.

Half of the buckets hold one distance each, the others grow logarithmically. In a bidirectional module each side has
half.
"""

import math

import torch
from torch import Tensor

UNIT_SCALE = 1.0
MAX_DISTANCE = 128  # tokens; all larger distances share the last bucket


def bias_by_distance(table: Tensor, longest: int, causal: bool) -> Tensor:
    """The bias `(heads, 2 * longest - 1)` of each distance from query to key, of a table `(buckets, heads)`."""
    distances = torch.arange(1 - longest, longest, device=table.device)
    return table[bucket_indices(distances, len(table), causal)].t()


def bucket_indices(distances: Tensor, count: int, causal: bool) -> Tensor:
    """The bucket of each distance (any shape), of `count` in all; a causal module has buckets only for keys before the
    query.

    Logarithms are computed in float32, as in the reference implementation.
    """
    if causal:
        return one_sided_buckets((-distances).clamp(min=0), count)
    half = count // 2
    return one_sided_buckets(distances.abs(), half) + half * (distances > 0)


def one_sided_buckets(distances: Tensor, count: int) -> Tensor:
    """The bucket of each distance (any shape, none negative) on one side, of `count`."""
    near = count // 2
    logarithms = (distances.float() / near).log() / math.log(MAX_DISTANCE / near)
    far_buckets = near + (logarithms * (count - near)).clamp(min=0).long()
    return torch.where(distances < near, distances, far_buckets.clamp(max=count - 1))


def bias_by_pair(biases: Tensor, tokens: int) -> Tensor:
    """The bias `(heads, tokens, tokens)` of every query and key, from those of distances `(heads, 2 * longest - 1)`."""
    longest = (biases.shape[1] + 1) // 2
    return biases[:, longest - tokens : longest + tokens - 1].unfold(1, tokens, 1).flip(1)
