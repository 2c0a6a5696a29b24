"""How many tokens the fullest rank of experts gets over the mean of all: a distribution, not a number.

From counts of tokens per expert, where the module has them: of each row (a layer or a step) the fullest of ep blocks of
consecutive experts, and the mean and spread over the rows. Else assumed: routing is random, so that the load of n
experts together deviates by 1/√n of that of one, which is a coefficient of the framework, and the fullest of more ranks
by more.
"""

from dataclasses import replace
from statistics import NormalDist
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.costs.compute.layer_work import LayerWork, Matmul, layer_work
from planner.costs.layout_columns import LayoutColumns, Number
from planner.specs.framework.timing_coefficients import TimingCoefficients
from planner.specs.layers import Module
from planner.specs.layers.blocks import LayerKind, kind_blocks

NORMAL_80 = 1.2816  # half-width of a normal's 80 % interval, in standard deviations


class ExpertLoad(NamedTuple):
    """Tokens of the fullest rank over the mean of all."""

    mean: Number
    spread: Number  # half-width of the 80 % interval
    source: Literal["measured", "assumed"]


def expert_load(module: Module, at: LayoutColumns, timing: TimingCoefficients) -> ExpertLoad:
    """The load of the fullest of the ranks that share a layer's experts; 1 where one rank has them all."""
    moe = module.routed_experts
    if moe is None:
        return ExpertLoad(1.0, 0.0, "measured")
    if moe.counts:
        each = fullest_by_degree(np.asarray(moe.counts, dtype=np.float64), at.ep)
        return ExpertLoad(each[..., 0], each[..., 1], "measured")
    excess = timing.imbalance * expected_maximum(at.ep) / np.sqrt(np.maximum(1.0, moe.experts / at.ep))
    return ExpertLoad(1.0 + at.imbalance * excess, excess, "assumed")


def expected_maximum(count: Number) -> Number:
    """The greatest of so many standard normal numbers, as expected (Blom's approximation); 0 of one."""
    each, which = np.unique(np.asarray(count, dtype=np.float64), return_inverse=True)
    greatest = [NormalDist().inv_cdf((n - 0.375) / (n + 0.25)) if n > 1.0 else 0.0 for n in each.tolist()]
    return np.array(greatest)[which].reshape(np.shape(count))


def counted_load(module: Module, at: LayoutColumns, assumed: float) -> Number:
    """The mean load of the fullest rank where the module has counts of it, else the assumed one."""
    moe = module.routed_experts
    if moe is None or not moe.counts:
        return assumed
    return fullest_by_degree(np.asarray(moe.counts, dtype=np.float64), at.ep)[..., 0]


def fullest_by_degree(counts: NDArray[np.float64], ep: Number) -> NDArray[np.float64]:
    """Mean and 80 % half-width (..., 2) of the fullest rank's load, from counts (rows, experts), for each ep."""
    degrees, which = np.unique(np.asarray(ep, dtype=np.int64), return_inverse=True)
    found = np.empty((len(degrees), 2))
    for index, degree in enumerate(degrees):
        blocks = np.array_split(np.arange(counts.shape[1]), min(int(degree), counts.shape[1]))
        fullest = np.max([counts[:, block].sum(axis=1) for block in blocks], axis=0) * len(blocks) / counts.sum(axis=1)
        found[index] = fullest.mean(), NORMAL_80 * fullest.std()
    return found[which].reshape((*np.shape(ep), 2))


def fullest_load(module: Module, at: LayoutColumns, timing: TimingCoefficients) -> Number:
    """The load that a layout is priced at: the mean, and `at.load_spreads` half-widths more."""
    load = expert_load(module, at, timing)
    return load.mean + at.load_spreads * load.spread


def routed_work(
    module: Module, kind: LayerKind, at: LayoutColumns, timing: TimingCoefficients, window: int | None = None
) -> LayerWork:
    """The work of one layer on the rank whose experts get most tokens: the others wait for it."""
    work = layer_work(module, kind, at, window)
    if "experts" not in kind_blocks(kind):
        return work
    fullest = fullest_load(module, at, timing)
    return replace(work, matmuls=tuple(with_load(product, fullest) for product in work.matmuls))


def with_load(product: Matmul, fullest: Number) -> Matmul:
    """The product on the fullest rank."""
    return replace(product, m=product.m * fullest) if product.grouped else product
