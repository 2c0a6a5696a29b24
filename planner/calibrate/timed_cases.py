"""Published records whose step times are fitted, and the machines they ran on before any fit."""

from collections.abc import Sequence

from planner.calibrate.framework_facts import FRAMEWORKS
from planner.costs import KERNELS_AS, MachineModel
from planner.published import PublishedCase, device_profile, pricing_machine
from planner.specs.base import with_fields
from planner.specs.hardware.profile import Profile
from planner.specs.parameters import parameter_counts

LEAST_PARAMETERS = 0.5e9  # parameters: smaller models are correctness tests, whose steps are mostly overhead
GUESSED = frozenset({"layout", "seq_len"})  # a fit would learn what was guessed for them
DOUBTED_MARK = "check:"  # marks records that contradict themselves, in their notes


def timed_cases(cases: Sequence[PublishedCase]) -> list[PublishedCase]:
    """Cases that completed, were timed, have one module, state what they ran, and are not marked as doubtful; none in a
    precision that is priced by the kernels of another.
    """
    return [
        case
        for case in cases
        if case.seconds
        and not (case.oom or case.encoders or case.doubts)
        and DOUBTED_MARK not in case.settings_text
        and not GUESSED & {*case.assumed}
        and case.setup.dtype not in KERNELS_AS
        and parameter_counts(case.module).total >= LEAST_PARAMETERS
    ]


def machines_of_cases(cases: Sequence[PublishedCase]) -> list[MachineModel]:
    """The machine of each case: rates of kernels timed alone, and known facts of the framework. Raises InputError."""
    profiles = {name: without_sustained_rates(device_profile(name)) for name in {case.device for case in cases}}
    facts = [FRAMEWORKS.get(case.software, FRAMEWORKS["generic"]) for case in cases]
    return [
        pricing_machine(case, profiles[case.device], known.timing, known.accounting)
        for case, known in zip(cases, facts, strict=True)
    ]


def without_sustained_rates(profile: Profile) -> Profile:
    """The profile without the sustained rates of an earlier fit."""
    return with_fields(profile, rates=with_fields(profile.rates, sustained={})) if profile.rates else profile
