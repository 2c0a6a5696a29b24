"""One static layout: the numbers that say it, in words, as a setup of the closed form, and as a plan's layout."""

from dataclasses import dataclass, fields, replace
from itertools import pairwise

from planner.costs.static.layouts import Batch, setup_of
from planner.costs.static.setup import Scheme, Setup
from planner.costs.static.states import layers_before
from planner.plan.model import Layout
from planner.specs.base import Layers, Ranks
from planner.specs.job import Dtype, Recompute, StaticLayout
from planner.specs.model import Module

RECOMPUTE: tuple[Recompute, ...] = ("none", "selective", "full")


@dataclass(frozen=True, slots=True, order=True)
class Choice:
    """Everything that a layout decides, beside the ranks there are."""

    tp: int = 1
    cp: int = 1
    pp: int = 1
    vpp: int = 1
    ep: int = 1
    etp: int = 1
    zero: int = 0
    recompute: int = 0  # of RECOMPUTE
    micro_batch: int = 1

    def dp(self, ranks: int) -> int:
        """Replicas of the dense part, each of which works on sequences of its own."""
        return ranks // (self.tp * self.cp * self.pp)

    def text(self, ranks: int) -> str:
        """`tp 4 · pp 2 · dp 8 · zero 1 · recompute full · micro-batch 1`: what is 1 and could be more is left out."""
        names = ("tp", "cp", "pp", "vpp", "ep", "etp")
        parts = [f"{name} {getattr(self, name)}" for name in names if getattr(self, name) > 1]
        parts += [f"dp {self.dp(ranks)}", f"zero {self.zero}", f"recompute {RECOMPUTE[self.recompute]}"]
        return " · ".join([*parts, f"micro-batch {self.micro_batch}"])

    def changes(self, other: "Choice") -> list[str]:
        """What another choice has otherwise, in its words."""
        names = [f.name for f in fields(Choice) if getattr(self, f.name) != getattr(other, f.name)]
        return [
            f"{name} {RECOMPUTE[other.recompute] if name == 'recompute' else getattr(other, name)}" for name in names
        ]


@dataclass(frozen=True, slots=True)
class Trained:
    """What a layout is for: the module, its ranks, and what a step works on."""

    module: Module
    ranks: int
    dtype: Dtype
    sizes: tuple[int, ...]  # tokens of each sequence
    schedule: Scheme | None = None  # None: 1F1B, interleaved where a rank has several chunks

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


def layout_of(choice: Choice, trained: Trained) -> Layout:
    """Ranks with tp fastest, then cp, which the mesh counts among the replicas, then dp, then pp."""
    sizes = {"pp": choice.pp, "dp": choice.dp(trained.ranks) * choice.cp, "tp": choice.tp}
    experts = {"ep": choice.ep, "etp": choice.etp}
    return Layout(
        ranks=Ranks(range(trained.ranks)),
        mesh={dim: size for dim, size in sizes.items() if size > 1 or dim == "dp"},
        experts={dim: size for dim, size in experts.items() if size > 1},
        stages=chunks_of(choice, trained) if choice.pp > 1 else (),
        zero=choice.zero,
        recompute=RECOMPUTE[choice.recompute],
        dtype=trained.dtype,
    )


def chunks_of(choice: Choice, trained: Trained) -> tuple[Layers, ...]:
    """Layers of each chunk, as memory counts them."""
    setup = Setup(ranks=trained.ranks, seq=1.0, batch=1.0, pp=choice.pp, vpp=choice.vpp)
    cuts = [int(layers_before(trained.module.layers, setup, at)) for at in range(choice.pp * choice.vpp + 1)]
    return tuple(Layers(range(first, last)) for first, last in pairwise(cuts))


def setup_for(choice: Choice, trained: Trained) -> Setup:
    """The setup of the closed form whose micro-batches are of mean length."""
    batch = Batch(seq=trained.mean, batch=trained.batch, micro_batch=float(choice.micro_batch))
    setup = setup_of(layout_of(choice, trained), batch, choice.cp)
    return replace(setup, scheme=trained.schedule) if trained.schedule else setup


def fixed_text(fixed: StaticLayout) -> str:
    """`tp 8 · pp 4`: what a job fixes."""
    said = ((name, getattr(fixed, name)) for name in fixed.__struct_fields__)
    return " · ".join(f"{name} {value}" for name, value in said if value is not None)
