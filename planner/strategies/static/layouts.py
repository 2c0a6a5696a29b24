"""One static layout of a job: what the job says of it, what a search adds, and what the closed form makes of it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from planner.costs.columns import Batch, Columns, columns_of
from planner.costs.memory.states import layers_before
from planner.plan.model import Layout
from planner.specs.base import Layers, Ranks
from planner.specs.layers import Module
from planner.specs.parallelism import Dtype, Parallelism, Recompute, Schedule, said

RECOMPUTE: tuple[Recompute, ...] = ("none", "selective", "full")
BY_RANGES = len(RECOMPUTE)  # in a table of layouts: as the job says it, range by range
# Fields that a search decides, as whole numbers; the others are as the job says, or as usual.
SEARCHED = ("tp", "cp", "pp", "vpp", "ep", "etp", "zero", "recompute", "micro_batch")
NOTHING = Parallelism()


@dataclass(frozen=True, slots=True)
class Trained:
    """What a layout is for: the module, its ranks, what a step works on, and what the job says."""

    module: Module
    ranks: int
    sizes: tuple[int, ...]  # tokens of each sequence
    said: Parallelism = NOTHING

    @property
    def dtype(self) -> Dtype:
        return self.said.dtype or "bf16"

    @property
    def mean(self) -> float:
        """Tokens of the sequence that the mean token is in."""
        return sum(size * size for size in self.sizes) / sum(self.sizes)

    @property
    def batch(self) -> float:
        """Sequences of that length with as many tokens, and as many pairs of them, as there are."""
        return sum(self.sizes) / self.mean

    @property
    def equal(self) -> bool:
        return min(self.sizes) == max(self.sizes)


def layout_of(trained: Trained, numbers: Mapping[str, int]) -> Layout:
    """A layout with these of SEARCHED, others as the job says; dp is what is left of the ranks."""
    chosen: dict[str, Any] = {**said(trained.said), **numbers}
    how = numbers.get("recompute", 0)
    chosen["recompute"] = trained.said.recompute if how == BY_RANGES else RECOMPUTE[how]
    pp, vpp = chosen.get("pp", 1), chosen.get("vpp", 1)
    chosen["dp"] = trained.ranks // (chosen.get("tp", 1) * chosen.get("cp", 1) * pp * chosen.get("replica", 1))
    return Layout(
        ranks=Ranks(range(trained.ranks)),
        stages=chunks_of(trained, pp, vpp) if pp > 1 else (),
        **{**chosen, "schedule": schedule(trained, pp, vpp)},
    )


def schedule(trained: Trained, pp: int, vpp: int) -> Schedule | None:
    """Of a pipeline, what the job says, else the usual one."""
    return None if pp == 1 else trained.said.schedule or ("interleaved" if vpp > 1 else "1f1b")


def chunks_of(trained: Trained, pp: int, vpp: int) -> tuple[Layers, ...]:
    """Layers of each chunk, as memory counts them."""
    at = Columns(ranks=trained.ranks, seq=1.0, batch=1.0, pp=pp, vpp=vpp)
    cuts = [int(layers_before(trained.module.layers, at, chunk)) for chunk in range(pp * vpp + 1)]
    return tuple(Layers(range(first, last)) for first, last in pairwise(cuts))


def columns_for(layout: Layout, trained: Trained) -> Columns:
    """A layout for the closed form, its micro-batches of mean length."""
    at = columns_of(layout, Batch(trained.mean, trained.batch, float(layout.micro_batch)))
    return replace(at, full=full_share(layout, trained)) if isinstance(layout.recompute, dict) else at


def full_share(layout: Layout, trained: Trained) -> float:
    """Of all layers, those that are recomputed whole."""
    layers = trained.module.layers
    return layout.recomputes(range(layers)).get("full", 0) / layers


def fixed_text(fixed: Parallelism) -> str:
    """`tp 8 · pp 4`: what a job fixes."""
    return " · ".join(f"{name} {value}" for name, value in said(fixed).items())
