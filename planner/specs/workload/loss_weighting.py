"""How the loss of a step weighs its target tokens: each token alike, each sample alike, or in between.

A sample of n targets gives each of them the weight w(n). The loss of a step is Σ w·ℓ / Σ w over all its targets,
wherever they are. `token`: w = 1. `sample`: w = 1/n, so that the loss is the mean over samples of their own means.
`square_root`: w = 1/√n (InternVL 2.5, arXiv 2412.05271).
"""

from collections.abc import Iterable
from typing import Literal

LossWeighting = Literal["token", "sample", "square_root"]
POWERS: dict[LossWeighting, float] = {"token": 0.0, "sample": -1.0, "square_root": -0.5}  # of n in w


def target_weight(weighting: LossWeighting, targets: int) -> float:
    """Return the weight of each target of a sample that has so many; 0 for one without."""
    return float(targets ** POWERS[weighting]) if targets else 0.0


def total_weight(weighting: LossWeighting, targets: Iterable[int]) -> float:
    """Return the weight of all targets of a step, from the number in each of its samples; 1 where there are none, so
    that it can divide.
    """
    return sum(float(count ** (1 + POWERS[weighting])) for count in targets if count) or 1.0
