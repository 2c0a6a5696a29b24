"""What cannot be is refused instead of shown: one check, which every score of a plan and every closed form passes.

A step takes no less than its FLOPs at the peak of its ranks and what they exchange at that of its links, and its bound
is no more than it takes; times, bytes and chances are finite and not negative, and parts are no more than their whole.
What a plan's own fits or rates make impossible is an error in them, with its place; anything else is a bug.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from math import inf, isfinite

from planner.costs import Pricing
from planner.errors import Impossible, InputError
from planner.plan.plan_file import Plan
from planner.scoring.work_at_peak import seconds_at_peak
from planner.specs.base import Ranks
from planner.specs.hardware.cluster import entry_of_kind
from planner.units import duration

ROUNDING = 1e-9  # relative: by which sums of the same numbers differ
BUG = "this is a bug in planner, not in your input"
FITS, RATES, TIMING, COLLECTIVES = (
    f"uses.prices.{table}" for table in ("modules", "rates", "timing", "collectives")
)  # where a plan has its prices


def require_possible(found: Mapping[str, float], name: str, whole: float = inf, rounding: float = ROUNDING) -> None:
    """Raises Impossible for a figure that is no number, negative, or above the whole that it is a part of."""
    least = -rounding * (whole if isfinite(whole) else 1.0)
    for what, figure in found.items():
        if not isfinite(figure) or figure < least:
            raise impossible(f"{what} is {figure:.6g}", name)
        if figure > whole * (1 + rounding):
            raise impossible(f"{what} is {figure:.6g} of {whole:.6g}", name)


def require_peak(plan: Plan, number: int, pricing: Pricing, seconds: float, computing: float) -> None:
    """Raises where a step takes less than the FLOPs of a module at the peak of its ranks, or the mean rank computes for
    less than those of all at that of all: InputError where prices of the plan are quicker than that, else Impossible.
    """
    own, shared = (seconds_at_peak(plan, [number], ranks) for ranks in (None, Ranks(range(plan.size))))
    least = [(f"`{name}`", "a step of", seconds, each) for name, each in own.items()]
    least.append(("the mean rank", "computing for", computing, sum(shared.values())))
    for name, what, taken, at_peak in least:
        if has_peaks(plan) and at_peak > taken * (1 + ROUNDING):
            message = f"{what} {duration(taken)}, and the FLOPs of {name} take {duration(at_peak)} at the peak"
            for module in plan.layouts:
                require_slower_prices(plan, pricing, module, message)
            raise impossible(message, plan.name)


def require_links(plan: Plan, seconds: float, on_links: float) -> None:
    """Raises where a step takes less than what passes exchange takes on its links: InputError where collectives of
    the plan were measured, else Impossible.
    """
    if has_peaks(plan) and on_links > seconds * (1 + ROUNDING):
        message = (
            f"a step of {duration(seconds)}, and what its passes exchange takes {duration(on_links)} at links' peak"
        )
        if plan.uses.prices.collectives:
            fix = "measure them again (planner profile), or correct gb_per_s of the cluster's levels"
            raise InputError(f"{message}: collectives measured too quick", where=COLLECTIVES, fix=fix)
        raise impossible(message, plan.name)


def has_peaks(plan: Plan) -> bool:
    """Whether data sheets say what all of a plan's devices can do at most: of CPUs they do not, and a profile that was
    measured may not know a dtype.
    """
    known = [device.kind == "cuda" for device in plan.uses.devices.values()]
    dtypes = {layout.dtype for layout in plan.layouts.values()} if plan.uses.prices.modules else set()
    return all(known) and all(dtypes <= {*device.tflops} for device in plan.uses.devices.values())


def require_slower_prices(plan: Plan, pricing: Pricing, module: str, message: str) -> None:
    """Raises InputError, located in the plan, where prices of a module are quicker than its devices can be."""
    prices = plan.uses.prices
    for kind in pricing.device_kinds(plan.layouts[module].ranks):
        if entry_of_kind(prices.modules, module, kind):
            name = f"{module}@{kind}" if f"{module}@{kind}" in prices.modules else module
            fix = "measure it again (planner profile), or correct the device's tflops"
            raise InputError(f"{message} of {kind}: measured too quick", where=f"{FITS}.{name}", fix=fix)
        rates = prices.rates[kind]
        share = max(curve.share for curve in rates.gemm.values()) * max(rates.sustained.values(), default=1.0)
        if share > 1:
            what = f"{message} of {kind}: its rates sustain {share:.4g} of that"
            raise InputError(what, where=f"{RATES}.{kind}", fix="share · sustained of at most 1")
        if share * prices.timing.kernels > 1 or max(prices.timing.attention, prices.timing.attention_ampere) > 1:
            fix = "timing.kernels and timing.attention with which rates stay below the peak"
            raise InputError(f"{message} of {kind}: the software is said to be quicker", where=TIMING, fix=fix)


def impossible(message: str, name: str) -> Impossible:
    """The error about a figure of an answer about the plan or file of this name."""
    return Impossible(f"impossible figure: {message}; {BUG}", where=name, fix="report it with this file")


@contextmanager
def answer_about(file: str, place_of: Callable[[str], str] = str) -> Iterator[None]:
    """Names the file that was asked about where a figure of its answer is impossible, or where its prices are:
    `place_of` those in a plan.
    """
    try:
        yield
    except Impossible as error:
        error.where = file
        raise
    except InputError as error:
        if error.where.startswith((FITS, RATES, TIMING, COLLECTIVES)):
            error.where = place_of(error.where)
        raise
