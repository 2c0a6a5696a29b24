"""Families of sources that are left out of the fit together."""

from benchmarks.families import LABS
from planner.calibrate.left_out import shipped_coefficients


def test_every_source_that_a_fit_has_seen_is_of_one_lab():
    for source in shipped_coefficients().sources:
        assert len({lab for prefix, lab in LABS.items() if source.startswith(prefix)}) == 1
