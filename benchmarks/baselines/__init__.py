"""Published ways of packing sequences, written again from their papers: what our packing is held against.

Each takes a problem and gives a packing, or None where its way finds none. All know ranks of one kind only, and no
sequence whose degree is fixed.
"""

from collections.abc import Callable

from benchmarks.baselines.best_fit import best_fit
from benchmarks.baselines.dhp import dhp
from benchmarks.baselines.flexsp import flexsp
from benchmarks.baselines.hybrid_cp import hybrid_cp
from benchmarks.baselines.karmarkar_karp import karmarkar_karp
from benchmarks.baselines.static_degree import static_degree
from planner.costs.packing_problem import PackingProblem
from planner.packing.balanced import best_balanced
from planner.packing.packed_groups import Packing

Baseline = Callable[[PackingProblem], Packing | None]

BASELINES: dict[str, Baseline] = {
    "static degree": static_degree,
    "best-fit homogeneous": best_fit,
    "balanced homogeneous": best_balanced,
    "Karmarkar-Karp": karmarkar_karp,
    "Megatron hybrid CP": hybrid_cp,
    "DHP": dhp,
}
TIMED: dict[str, Baseline] = {"FlexSP": flexsp}  # stopped by the clock, after minutes

__all__ = ["BASELINES", "TIMED", "Baseline"]
