"""Which modules share the devices of their ranks, and how much of each they have (Mosaic, arXiv 2605.18710).

Decision: a share q_m of its devices' compute for each module m, whose layouts, samples and order are those of the
refined strategy; without one it has them alone, and in turn:

    T_m(q) = (compute / q + memory_bound / min(κ·q, 1)) · (1 + γ·max(0, Σ demanded − 1))    DeviceUse (costs/compute)
    T_m(q) ≥ seconds in which its host launches it; launches of one thread queue            simulate/engine.py
    Σ over modules of a micro-batch of q_m ≤ 1, in steps of 1/8                             ShareSearch.is_division
    T simulated                                                                             ShareSearch, plan (here)

Of Mosaic (named Apollo too) only the abstract is known here: the formula is a roofline with contention, whose constants
`planner profile --shares` times, and nothing more is claimed of it. It keeps what it starts from where no shares are
quicker, so it is never slower.
"""

from planner.costs import SharedPrices, pricing_of
from planner.errors import Unsupported
from planner.plan.join_plans import round_digits
from planner.plan.legal.plan_laws import require_legal
from planner.plan.plan_file import Alternative, Plan
from planner.scoring import with_score
from planner.specs.base import with_fields
from planner.specs.inputs import Inputs
from planner.strategies.sharing import STEPS, Shares, ShareSearch, sharing_modules, with_shares
from planner.strategies.static import fitting_seconds
from planner.units import percent

SUMMARY = "modules side by side on the same devices, each with a share of their compute"

NAME = "spatial_sharing"


def supports(inputs: Inputs) -> str | None:
    """Needs software that runs modules side by side."""
    if inputs.software.knobs.orders == "named":
        name = inputs.software.name or "the software"
        return f"{name} runs modules one after another, each on whole devices | software: any, or one of yours"
    return None


def inputs_for_base(inputs: Inputs) -> Inputs:
    """The job as given to the refined strategy."""
    return inputs


def plan(inputs: Inputs, base: Plan | None) -> Plan:
    """The base with the best shares found, or as it is. Raises Infeasible."""
    if base is None:
        raise Unsupported("spatial_sharing starts from layouts", where="strategy", fix="solve the job whole")
    if not sharing_modules(base):
        return as_before(base, "each module has ranks of its own, and shares none with another")
    shares, seconds, tried = best_shares(base, STEPS)
    if not shares or seconds >= fitting_seconds(base):
        return as_before(base, f"of {tried} divisions of devices, none is quicker than modules in turn")
    shared = with_shares(base, shares)
    require_legal(shared, str(inputs.file))
    found = with_score(
        shared, f"{base.outcome.effort}; {tried} divisions of devices simulated: {division_text(shares)}"
    )
    return with_fields(found, alternatives=(without_shares(base, found), *base.alternatives))


def best_shares(base: Plan, steps: int) -> tuple[Shares, float, int]:
    """The best shares found, in `steps` of a device, their simulated seconds, and how many were simulated."""
    shared = SharedPrices()
    threads = pricing_of(base, shared).device_shares.launch_threads
    search = ShareSearch(base, threads, lambda shares: fitting_seconds(with_shares(base, shares), shared), steps)
    found, seconds = search.best()
    return found, seconds, len(search.known)


def division_text(shares: Shares) -> str:
    """Shares as text: `vision 3/8, audio 5/8`."""
    return ", ".join(f"{name} {round(share * STEPS)}/{STEPS}" for name, share in shares.items())


def without_shares(base: Plan, chosen: Plan) -> Alternative:
    """The refined plan beside that with shares."""
    value = base.outcome.value
    slower = percent(value / chosen.outcome.value - 1.0)
    return Alternative(
        strategy="without_shares",
        value=round_digits(value),
        because=f"modules in turn, each with its devices alone: {slower} slower",
    )


def as_before(base: Plan, reason: str) -> Plan:
    """The plan as it is, with the reason why its modules have their devices alone."""
    return with_fields(base, alternatives=(Alternative(strategy=NAME, because=reason), *base.alternatives))
