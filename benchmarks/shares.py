"""What shares of devices give the golden job of three encoders, by assumed κ and by the share of the encoders' time
that memory bounds: a band, as nobody timed it there.
"""

from collections.abc import Iterator
from pathlib import Path

from benchmarks.registry import Figures
from planner import files
from planner.plan.plan_file import Plan
from planner.specs.base import with_fields
from planner.strategies.sharing import with_shares
from planner.strategies.spatial_sharing import best_shares
from planner.strategies.static import fitting_seconds

GOLDEN = Path(__file__).parents[1] / "tests/golden/spatial_sharing/three-encoders/plan.yaml"
KAPPAS = (1.0, 1.5, 2.0, 3.0)
MEMORY_SHARES = (0.2, 0.5)
ENCODERS = ("vision", "depth", "audio")


def run(data: Path | None) -> Iterator[Figures]:
    """Simulated gains."""
    golden = files.read(GOLDEN, Plan)
    bare = with_shares(golden, dict.fromkeys(golden.layouts, 1.0))
    for kappa in KAPPAS:
        for bound in MEMORY_SHARES:
            memory_shares = {**golden.uses.prices.shares.memory_shares, **dict.fromkeys(ENCODERS, bound)}
            shares = with_fields(golden.uses.prices.shares, kappa=kappa, memory_shares=memory_shares)
            prices = with_fields(golden.uses.prices, shares=shares)
            plan = with_fields(bare, uses=with_fields(bare.uses, prices=prices))
            found, seconds, _ = best_shares(plan, 4)
            gain = round(fitting_seconds(plan) / seconds, 4)
            yield {"kappa": kappa, "memory_share": bound, "gain": gain, "shares": found}
