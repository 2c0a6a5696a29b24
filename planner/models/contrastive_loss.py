"""The contrastive loss of CLIP (arXiv 2103.00020, figure 3): samples of two modules, told apart by their features.

With a_i and b_i the features of sample i, of length 1, and logits a_i·b_j / 0.07, the loss of a sample is the mean of
two cross entropies: that of its pair b_i among all b_j, and that of a_i among all a_j. CLIP learns the factor of
logits; here it stays what it is there at first.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

LOGIT_SCALE = 1 / 0.07


def contrastive_loss(features: Tensor, some: Tensor) -> Tensor:
    """The loss (scalar), summed over `some` samples (some) int64, of features `(2, samples, width)` of any length."""
    sides = F.normalize(features, dim=2)
    logits = torch.stack([LOGIT_SCALE * one[some] @ other.T for one, other in zip(sides, sides.flip(0), strict=True)])
    return F.cross_entropy(logits.flatten(0, 1), some.repeat(2), reduction="sum") / 2
