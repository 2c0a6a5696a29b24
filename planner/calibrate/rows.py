"""Which published records tell of step times, and on which machines, before anything is fitted to them."""

from collections.abc import Sequence

from planner.calibrate.frameworks import FRAMEWORKS
from planner.costs.compute.assumed import complete
from planner.costs.compute.machine import Machine
from planner.published.case import Case
from planner.published.machinery import network
from planner.specs import library
from planner.specs.base import changed
from planner.specs.parameters import parameters
from planner.specs.profile import Profile

LEAST = 0.5e9  # parameters: smaller models are tests of correctness, whose steps are all overhead
DOUBTED = "check:"  # in the notes of records that contradict themselves


def telling(cases: Sequence[Case]) -> list[Case]:
    """Those that ended, were timed, and are not doubted by who wrote them down."""
    return [
        case
        for case in cases
        if case.seconds
        and not (case.oom or case.encoder)
        and DOUBTED not in case.settings
        and parameters(case.module).total >= LEAST
    ]


def machines(cases: Sequence[Case]) -> list[Machine]:
    """Of each case: its device as measured kernel by kernel, and what its framework is known for. Raises InputError."""
    profiles = {name: unpaced(library.read(name, Profile)[0]) for name in {case.device for case in cases}}
    found = []
    for case in cases:
        device, rates = profiles[case.device].device, complete(profiles[case.device].rates)
        known = FRAMEWORKS.get(case.software, FRAMEWORKS["generic"])
        found.append(Machine(device, rates, network(case.fabric, device, rates), known.timing, known.accounting))
    return found


def unpaced(profile: Profile) -> Profile:
    """Without what an earlier fit of the same kind has left in it."""
    return changed(profile, rates=changed(profile.rates, sustained={})) if profile.rates else profile
