"""One static layout of a job: the fields that the job fixes, those that a search decides, and the closed form's
columns.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from planner.costs import LayoutColumns, PipelineBatch, columns_of
from planner.costs.memory import layers_before
from planner.plan.plan_file import Layout
from planner.specs.base import Layers, Ranks
from planner.specs.layers import Module
from planner.specs.parallelism import Dtype, Parallelism, Recompute, Schedule, decided_fields

RECOMPUTE: tuple[Recompute, ...] = ("none", "selective", "full")
RECOMPUTE_BY_RANGES = len(RECOMPUTE)  # in a table of layouts: ranges of layers, as the job says
# Fields that a search decides, as integers; the others are as the job says, or defaults.
SEARCHED_FIELDS = ("tp", "cp", "pp", "vpp", "ep", "etp", "zero", "recompute", "micro_batch")
NOTHING_FIXED = Parallelism()


@dataclass(frozen=True, slots=True)
class TrainingSetup:
    """What a layout is for: the module, its ranks, the sequences of a step, and the fields that the job fixes."""

    module: Module
    ranks: int
    sizes: tuple[int, ...]  # tokens of each sequence
    fixed: Parallelism = NOTHING_FIXED

    @property
    def dtype(self) -> Dtype:
        """The fixed dtype, else bf16."""
        return self.fixed.dtype or "bf16"

    @property
    def mean_tokens(self) -> float:
        """Mean length over tokens: that of the sequence of a random token."""
        return sum(size * size for size in self.sizes) / sum(self.sizes)

    @property
    def mean_sequences(self) -> float:
        """Number of sequences of that length with as many tokens, and as many token pairs, as the step."""
        return sum(self.sizes) / self.mean_tokens

    @property
    def equal_lengths(self) -> bool:
        """Whether all sequences have the same length."""
        return min(self.sizes) == max(self.sizes)


def layout_of(trained: TrainingSetup, numbers: Mapping[str, int]) -> Layout:
    """A layout with these searched fields, the others as the job says; dp is the rest of the ranks."""
    chosen: dict[str, Any] = {**decided_fields(trained.fixed), **numbers}
    how = numbers.get("recompute", 0)
    chosen["recompute"] = trained.fixed.recompute if how == RECOMPUTE_BY_RANGES else RECOMPUTE[how]
    pp, vpp = chosen.get("pp", 1), chosen.get("vpp", 1)
    chosen["dp"] = trained.ranks // (chosen.get("tp", 1) * chosen.get("cp", 1) * pp * chosen.get("replica", 1))
    return Layout(
        ranks=Ranks(range(trained.ranks)),
        stages=chunk_layers(trained, pp, vpp) if pp > 1 else (),
        **{**chosen, "schedule": schedule_of(trained, pp, vpp)},
    )


def schedule_of(trained: TrainingSetup, pp: int, vpp: int) -> Schedule | None:
    """The schedule of a pipeline: the job's, else interleaved or 1F1B; None without a pipeline."""
    return None if pp == 1 else trained.fixed.schedule or ("interleaved" if vpp > 1 else "1f1b")


def chunk_layers(trained: TrainingSetup, pp: int, vpp: int) -> tuple[Layers, ...]:
    """Layers of each chunk, by the same rule as in the memory model."""
    at = LayoutColumns(ranks=trained.ranks, seq=1.0, batch=1.0, pp=pp, vpp=vpp)
    cuts = [int(layers_before(trained.module.layers, at, chunk)) for chunk in range(pp * vpp + 1)]
    return tuple(Layers(range(first, last)) for first, last in pairwise(cuts))


def columns_for(layout: Layout, trained: TrainingSetup) -> LayoutColumns:
    """A layout as columns of the closed form, its sequences of mean length."""
    at = columns_of(layout, PipelineBatch(trained.mean_tokens, trained.mean_sequences, float(layout.micro_batch)))
    return (
        replace(at, full_recompute=full_recompute_share(layout, trained)) if isinstance(layout.recompute, dict) else at
    )


def full_recompute_share(layout: Layout, trained: TrainingSetup) -> float:
    """Share of the layers that are recomputed in full."""
    layers = trained.module.layers
    return layout.recompute_counts(range(layers)).get("full", 0) / layers


def fixed_text(fixed: Parallelism) -> str:
    """The fields that a job fixes, as `tp 8 · pp 4`."""
    return " · ".join(f"{name} {value}" for name, value in decided_fields(fixed).items())
