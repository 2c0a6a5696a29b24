"""Relative positions as in T5 (arXiv 1910.10683, section 2.1): to each score one number is added, which a head has for
the bucket that the distance from query to key falls into. Scores are products of queries and keys, divided by nothing.

Half of the buckets are of one distance each, the others grow with it. Where a token sees both sides, each has half.
"""

import math

import torch
from torch import Tensor

UNSCALED = 1.0
FARTHEST = 128  # tokens; whatever is farther away is in the last bucket


def by_distance(table: Tensor, longest: int, causal: bool) -> Tensor:
    """From numbers [buckets, H] to those of the distances, key less query, 1 - longest to longest - 1: [H, all]."""
    distances = torch.arange(1 - longest, longest, device=table.device)
    return table[buckets(distances, len(table), causal)].t()


def buckets(distances: Tensor, count: int, causal: bool) -> Tensor:
    """Of each distance, one of `count`; a causal module's are of keys behind the query alone.

    Logarithms are in float32, as those with which models were trained.
    """
    if causal:
        return of_side((-distances).clamp(min=0), count)
    half = count // 2
    return of_side(distances.abs(), half) + half * (distances > 0)


def of_side(away: Tensor, count: int) -> Tensor:
    """Of distances that are not negative."""
    near = count // 2
    logarithms = (away.float() / near).log() / math.log(FARTHEST / near)
    far = near + (logarithms * (count - near)).clamp(min=0).long()
    return torch.where(away < near, away, far.clamp(max=count - 1))


def of_pairs(numbers: Tensor, tokens: int) -> Tensor:
    """Those of distances [H, 2 * longest - 1] for each query and key of so many tokens: [H, tokens, tokens]."""
    longest = (numbers.shape[1] + 1) // 2
    return numbers[:, longest - tokens : longest + tokens - 1].unfold(1, tokens, 1).flip(1)
