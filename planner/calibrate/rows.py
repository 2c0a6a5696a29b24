"""Published records whose step times are fitted, and the machines they ran on before any fit."""

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

LEAST = 0.5e9  # parameters: smaller models are correctness tests, whose steps are mostly overhead
DOUBTED = "check:"  # marks records that contradict themselves, in their notes


def telling(cases: Sequence[Case]) -> list[Case]:
    """Cases that completed, were timed, have one module, and are not marked as doubtful."""
    return [
        case
        for case in cases
        if case.seconds
        and not (case.oom or case.encoder)
        and DOUBTED not in case.settings
        and parameters(case.module).total >= LEAST
    ]


def machines(cases: Sequence[Case]) -> list[Machine]:
    """The machine of each case: rates of kernels timed alone, and known facts of the framework. Raises InputError."""
    profiles = {name: unpaced(library.read(name, Profile)[0]) for name in {case.device for case in cases}}
    result = []
    for case in cases:
        device, rates = profiles[case.device].device, complete(profiles[case.device].rates)
        facts = FRAMEWORKS.get(case.software, FRAMEWORKS["generic"])
        result.append(Machine(device, rates, network(case.fabric, device, rates), facts.timing, facts.accounting))
    return result


def unpaced(profile: Profile) -> Profile:
    """The profile without the sustained rates of an earlier fit."""
    return changed(profile, rates=changed(profile.rates, sustained={})) if profile.rates else profile
