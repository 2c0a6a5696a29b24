"""The contrastive loss is that of CLIP's paper, whoever computes which rows of it."""

import math

import pytest
import torch
import torch.nn.functional as F

from planner.models.contrastive_loss import LOGIT_SCALE, contrastive_loss


def test_rows_add_up_to_what_the_paper_writes():
    """Figure 3 of arXiv 2103.00020, for any features."""
    features = torch.randn(2, 7, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    one, other = (side / side.norm(dim=1, keepdim=True) for side in features)
    logits, labels = one @ other.T * LOGIT_SCALE, torch.arange(7)
    paper = (F.cross_entropy(logits, labels) + F.cross_entropy(logits.T, labels)) / 2
    parts = [contrastive_loss(features, torch.arange(first, 7, 3)) for first in range(3)]
    assert sum(parts).item() / 7 == pytest.approx(paper.item(), rel=1e-14)


def test_rows_that_are_alike_are_told_apart_by_chance_alone():
    features = torch.ones(2, 6, 3, dtype=torch.float64)
    assert contrastive_loss(features, torch.arange(6)).item() == pytest.approx(6 * math.log(6), rel=1e-14)
